"""Servers of objects that misbehave, over S3 and HTTP: each fault is one of four kinds, in one line. Renewed keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.storage.place_errors import BusyError, DeniedError, FullError, MissingError
from tasks.storage.places import Place, open_place
from tests.support.faulty_server import Fault, FaultyServer, faulty_server
from tests.support.loopback import free_port

CONTENT = b"0123456789" * 100_000


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with faulty_server() as server:
        server.objects["/bucket/a"] = CONTENT
        yield server


def over_s3(server: FaultyServer, **options: str) -> Place:
    keys = {"access_key_id": "id", "secret_access_key": "secret"} if "anonymous" not in options else {}
    return open_place("s3://bucket", {"endpoint": server.url, **keys, **options})


def over_http(server: FaultyServer, **options: str) -> Place:
    return open_place(f"{server.url}/bucket", options)


@pytest.mark.parametrize("over", [over_s3, over_http])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (401, DeniedError),
        (403, DeniedError),
        ((400, "ExpiredToken"), DeniedError),
        (404, MissingError),
        (429, BusyError),
        (500, BusyError),
        (503, BusyError),
        (507, FullError),
        ("cut", BusyError),
        ("hang", BusyError),
    ],
)
@pytest.mark.parametrize(
    "ask",
    [lambda place: place.read("a"), lambda place: place.read("a", 5, 500_000), lambda place: list(place.chunks("a"))],
)
def test_a_fault_is_one_of_four_kinds_and_is_asked_about_once(
    server: FaultyServer, over: Callable[..., Place], fault: Fault, kind: type[OSError], ask: Callable[[Place], object]
) -> None:
    place = over(server, read_timeout="1" if fault == "hang" else "30")
    server.faults["*"] = [fault]
    with pytest.raises(kind, match=r"/a|//bucket") as caught:
        ask(place)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize("over", [over_s3, over_http])
def test_slow_is_no_fault_as_long_as_something_arrives(server: FaultyServer, over: Callable[..., Place]) -> None:
    server.always = "slow"
    server.slow_pause_seconds = 0.3
    assert bytes(over(server, read_timeout="2").read("a")) == CONTENT


@pytest.mark.parametrize("over", [over_s3, over_http])
def test_a_server_without_ranges_is_read_whole(server: FaultyServer, over: Callable[..., Place]) -> None:
    server.always = "whole"
    place = over(server)
    assert bytes(place.read("a", 5, 50)) == CONTENT[5:50]
    assert not place.has_ranges
    assert bytes(place.read("a", 50, 70)) == CONTENT[50:70]
    tail, size = place.tail("a", 9)
    assert (bytes(tail), size) == (CONTENT[-9:], len(CONTENT))
    assert b"".join(place.chunks("a", 999_990)) == CONTENT[999_990:]
    tail, size = over(server).tail("a", 9)
    assert (bytes(tail), size) == (CONTENT[-9:], len(CONTENT))


def test_a_place_that_nobody_answers_at_is_busy() -> None:
    with pytest.raises(BusyError, match="can't be reached"):
        open_place(f"http://127.0.0.1:{free_port()}").read("a")


def test_keys_that_were_renewed_in_a_file_are_read_again_before_giving_up(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expired credentials in mid-epoch: whoever renews them writes the file of profiles."""
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def renew(name: str) -> None:
        file.write_text(f"[default]\naws_access_key_id = {name}\naws_secret_access_key = secret\n")

    renew("OLD")
    place = open_place("s3://bucket", {"endpoint": server.url})
    assert bytes(place.read("a")) == CONTENT
    renew("NEW")
    server.faults["*"] = [(400, "ExpiredToken")]
    assert bytes(place.read("a")) == CONTENT
    assert [("NEW" in (request.authorization or "")) for request in server.requests] == [False, False, True]
    server.faults["*"] = [(400, "ExpiredToken")]
    with pytest.raises(DeniedError, match="the credentials have expired"):
        place.read("a")
    assert len(server.requests) == 4, "the same keys are not tried again"


def test_keys_of_the_environment_that_were_renewed_are_read_again(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OLD")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    place = open_place("s3://bucket", {"endpoint": server.url})
    place.read("a")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "NEW")
    server.faults["*"] = [403]
    assert bytes(place.read("a")) == CONTENT
    assert "NEW" in (server.requests[-1].authorization or "")


def test_a_token_in_the_environment_does_not_join_keys_from_elsewhere(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-other-keys")
    over_s3(server).read("a")
    assert "x-amz-security-token" not in (server.requests[-1].authorization or "")
    over_s3(server, session_token="its-own").read("a")
    assert "x-amz-security-token" in (server.requests[-1].authorization or "")


def test_a_public_bucket_is_asked_without_a_signature(server: FaultyServer) -> None:
    assert bytes(over_s3(server, anonymous="true").read("a")) == CONTENT
    assert server.requests[-1].authorization is None


def test_missing_credentials_say_what_to_do(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(DeniedError, match=r"credentials are missing.*set AWS_ACCESS_KEY_ID"):
        open_place("s3://bucket", {"endpoint": server.url}).read("a")
    assert server.requests == []
