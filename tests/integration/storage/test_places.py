"""Every kind of place on a real server: the same objects, the same errors."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tasks.storage.place_errors import DeniedError, FullError, MissingError
from tasks.storage.places import Place, locate, open_place
from tests.support.rclone import serve_http, serve_s3, serve_sftp, serve_webdav

CONTENT = b"0123456789" * 100_000
NAME = "ab/a name with 20% of ö"


@pytest.fixture(scope="module")
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def places(stack: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Place]:
    folder = tmp_path_factory.mktemp("places")
    s3 = stack.enter_context(serve_s3(folder / "s3"))
    webdav = stack.enter_context(serve_webdav(folder / "webdav"))
    sftp = stack.enter_context(serve_sftp(folder / "sftp"))
    return {
        "folder": open_place(str(folder / "folder")),
        "file": open_place(f"file://{folder}/file"),
        "s3": open_place(f"{s3.url}/some folder", {**s3.options, "read_timeout": "120"}),
        "webdav": open_place(f"{webdav.url}/some%20folder", {**webdav.options, "read_timeout": "120"}),
        "sftp": open_place(f"{sftp.url}/some folder", sftp.options),
    }


@pytest.fixture(params=["folder", "file", "s3", "webdav", "sftp"])
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    return places[request.param]


def test_what_was_written_can_be_read_whole_in_ranges_and_in_pieces(place: Place) -> None:
    place.write(NAME, CONTENT)
    assert place.size(NAME) == len(CONTENT)
    assert bytes(place.read(NAME)) == CONTENT
    assert bytes(place.read(NAME, 3, 17)) == CONTENT[3:17]
    assert bytes(place.read(NAME, len(CONTENT) - 7)) == CONTENT[-7:]
    assert b"".join(place.chunks(NAME)) == CONTENT
    assert b"".join(place.chunks(NAME, 12_345)) == CONTENT[12_345:]
    tail, size = place.tail(NAME, 10)
    assert (bytes(tail), size) == (CONTENT[-10:], len(CONTENT))
    assert place.has_ranges


def test_there_is_nothing_beyond_the_end(place: Place) -> None:
    place.write(NAME, CONTENT)
    assert bytes(place.read(NAME, len(CONTENT) - 5, len(CONTENT) + 5)) == CONTENT[-5:]
    assert bytes(place.read(NAME, len(CONTENT) + 5, len(CONTENT) + 9)) == b""
    assert bytes(place.read(NAME, 5, 5)) == b""
    assert bytes(place.tail(NAME, 10 * len(CONTENT))[0]) == CONTENT


def test_an_empty_object_is_one(place: Place) -> None:
    place.write("empty", b"")
    assert place.size("empty") == 0
    assert bytes(place.read("empty")) == b""
    assert list(place.chunks("empty")) == []
    tail, size = place.tail("empty", 10)
    assert (bytes(tail), size) == (b"", 0)


def test_an_object_is_replaced_and_removed(place: Place) -> None:
    place.write(NAME, CONTENT)
    place.write(NAME, memoryview(b"newer"))
    assert bytes(place.read(NAME)) == b"newer"
    place.remove(NAME)
    with pytest.raises(MissingError):
        place.read(NAME)


@pytest.mark.parametrize(
    "ask",
    [
        lambda place: place.read("none"),
        lambda place: place.read("none", 1, 2),
        lambda place: place.size("none"),
        lambda place: place.tail("none", 5),
        lambda place: list(place.chunks("none")),
    ],
)
def test_what_is_not_there_is_missing(place: Place, ask: Callable[[Place], object]) -> None:
    with pytest.raises(MissingError, match="none is not there"):
        ask(place)


def _read_in_child(place: Place, name: str, results: multiprocessing.Queue[bytes | str]) -> None:
    try:
        results.put(bytes(place.read(name)))
    except DeniedError as error:
        results.put(str(error))


def read_in_fork(place: Place, name: str) -> bytes | str:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[bytes | str] = context.Queue()
    child = context.Process(target=_read_in_child, args=(place, name, results))
    child.start()
    try:
        return results.get(timeout=60)
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("kind", ["folder", "sftp"])
def test_a_place_that_was_used_can_be_used_after_a_fork(places: dict[str, Place], kind: str) -> None:
    place = places[kind]
    place.write("forked", b"content")
    assert bytes(place.read("forked")) == b"content"
    assert read_in_fork(place, "forked") == b"content"
    assert bytes(place.read("forked")) == b"content"


def test_what_cannot_be_used_after_a_fork_says_so_and_does_not_hang(places: dict[str, Place]) -> None:
    place = places["s3"]
    place.write("forked", b"content")
    assert "before this process was forked" in str(read_in_fork(place, "forked"))
    assert bytes(place.read("forked")) == b"content"


def test_an_object_s_url_leads_to_it(stack: ExitStack, tmp_path: Path) -> None:
    s3 = stack.enter_context(serve_s3(tmp_path))
    (s3.folder / "ab").mkdir()
    (s3.folder / "ab/cd").write_bytes(b"content")
    for url, options in [
        (f"{s3.url}/ab/cd", s3.options),
        (f"{s3.folder}/ab/cd", {}),
        (f"file://{s3.folder}/ab/cd", {}),
    ]:
        place, path = locate(url, options)
        assert bytes(place.read(path)) == b"content"
    assert locate(f"{s3.url}/other", s3.options)[0] is locate(f"{s3.url}/ab", s3.options)[0], "one for a bucket"


def test_http_wants_its_password(stack: ExitStack, tmp_path: Path) -> None:
    server = stack.enter_context(serve_http(tmp_path, password="right"))
    (tmp_path / "a b").write_bytes(b"content")
    assert bytes(open_place(server.url, server.options).read("a b")) == b"content"
    in_url = server.url.replace("//", f"//{server.options['user']}:right@")
    place = open_place(in_url)
    assert bytes(place.read("a b")) == b"content"
    assert "right" not in place.url
    with pytest.raises(DeniedError, match=r"access is denied \(401\); give user and password") as caught:
        open_place(server.url, {**server.options, "password": "wrong"}).read("a b")
    assert "wrong" not in str(caught.value)


def test_http_that_only_reads_refuses_to_write(stack: ExitStack, tmp_path: Path) -> None:
    server = stack.enter_context(serve_http(tmp_path))
    with pytest.raises(DeniedError, match="refuses the request"):
        open_place(server.url).write("a", b"content")


def test_s3_refuses_wrong_keys(stack: ExitStack, tmp_path: Path) -> None:
    s3 = stack.enter_context(serve_s3(tmp_path))
    with pytest.raises(DeniedError, match=r"access is denied .*; set AWS_ACCESS_KEY_ID") as caught:
        open_place(s3.url, {**s3.options, "secret_access_key": "wrong-secret"}).read("a")
    assert "wrong-secret" not in str(caught.value)


def test_sftp_refuses_a_wrong_password(stack: ExitStack, tmp_path: Path) -> None:
    sftp = stack.enter_context(serve_sftp(tmp_path))
    with pytest.raises(DeniedError, match=r"access is denied .*; give credentials"):
        open_place(sftp.url, {"password": "wrong"}).read("a")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gs://bucket/folder", r"gs://bucket/folder: gs:// needs the package gcsfs: pip install gcsfs"),
        ("az://me:secret@bucket", r"az://me@bucket: az:// needs the package adlfs: pip install adlfs"),
        ("nothing://bucket", r"nothing opens nothing://; allowed are folders, s3://, http://"),
    ],
)
def test_a_scheme_that_cannot_be_opened_is_one_line_that_says_what_to_install(url: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        open_place(url)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_full_disk_is_no_error_of_a_transfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that is written leads to /dev/full, where the system says what it says of a full disk."""
    (tmp_path / "partial").symlink_to("/dev/full")
    monkeypatch.setattr("tasks.storage.folder_place.partial_name", lambda _: "partial")
    with pytest.raises(FullError, match="no space left"):
        open_place(str(tmp_path)).write("a", CONTENT)
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_a_folder_that_nobody_may_write_to_refuses() -> None:
    with pytest.raises(DeniedError, match="/sys/kernel/a"):
        open_place("/sys/kernel").write("a", b"content")
