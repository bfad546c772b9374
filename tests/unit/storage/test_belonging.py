"""Which files of a set are its data."""

from __future__ import annotations

import pytest

from tasks.errors import ParameterError
from tasks.storage.belonging import data_among


def test_what_people_and_programs_leave_beside_data_is_left_out_and_said() -> None:
    beside = ["README", "readme.txt", "sub/README.md", ".gitkeep", "_SUCCESS", "LICENSE.txt", "a.parquet.crc"]
    data, notes = data_among(["a.parquet", *beside, "sub/b.CSV", "c.jsonl"], "mine", "data.path")
    assert data == ["a.parquet", "sub/b.CSV", "c.jsonl"]
    (note,) = notes
    assert all(name in note for name in beside)


def test_nothing_is_said_where_nothing_is_left_out() -> None:
    assert data_among(["a.parquet"], "mine", "data.path") == (["a.parquet"], ())


@pytest.mark.parametrize("strange", ["notes.txt", "model.pt", "a.png", "data.json", "b.parquet.bak"])
def test_each_file_that_does_not_belong_is_one_line(strange: str) -> None:
    with pytest.raises(ParameterError) as caught:
        data_among(["a.parquet", strange, "more/other.bin"], "mine", "data.path")
    assert len(caught.value.faults) == 2
    assert caught.value.faults[0].startswith(f"data.path: mine/{strange} doesn't belong to a set of tables; allowed")


def test_many_files_that_do_not_belong_are_not_listed_to_the_end() -> None:
    with pytest.raises(ParameterError) as caught:
        data_among(["a.csv", *(f"{n}.bin" for n in range(500))], "mine", "data.path")
    assert len(caught.value.faults) == 11
    assert caught.value.faults[-1] == "data.path: and 490 more files like these"


def test_images_need_folders_that_name_their_classes() -> None:
    assert data_among(["cat/1.png", "dog/x/2.JPEG"], "photos", "data.path")[0] == ["cat/1.png", "dog/x/2.JPEG"]
    with pytest.raises(ParameterError, match=r"photos/3\.png lies in no folder that would name its class"):
        data_among(["cat/1.png", "3.png"], "photos", "data.path")


@pytest.mark.parametrize("files", [[], ["README.md"], ["notes.txt"]])
def test_a_set_without_data_is_empty(files: list[str]) -> None:
    with pytest.raises(ParameterError, match=r"^data\.path: 'mine' is an empty data set"):
        data_among(files, "mine", "data.path")
