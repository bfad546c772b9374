from __future__ import annotations

from typing import Any

import pytest

from tasks.quantities import read_bytes, read_seconds, write_bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (5, 5.0),
        (0.5, 0.5),
        ("5", 5.0),
        ("90 s", 90.0),
        ("10 min", 600.0),
        ("2h", 7200.0),
        ("250 ms", 0.25),
        ("1 d", 86400.0),
    ],
)
def test_durations_are_read_as_people_write_them(text: Any, seconds: float) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (1, 1),
        ("64 MiB", 64 * 2**20),
        ("2 GB", 2 * 10**9),
        ("12MB", 12 * 10**6),
        ("1e3", 1000),
        ("1.5 KiB", 1536),
        ("7 b", 7),
    ],
)
def test_sizes_are_read_as_people_write_them(text: Any, size: int) -> None:
    assert read_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "s", "-5", "5 x", "1 2", True, None, [], "nan", "inf", float("nan"), float("inf"), 0, "0 s"]
)
def test_what_is_no_quantity_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="above 0"):
        read_seconds(text)
    with pytest.raises(ValueError, match="above 0"):
        read_bytes(text)


def test_sizes_are_written_in_binary_units() -> None:
    assert [write_bytes(size) for size in (0, 1023, 1536, 3 * 2**30, 5 * 2**40)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 GiB", "5.0 TiB",
    ]  # fmt: skip
