"""Objects from real servers into DVC's cache."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from hashlib import md5
from pathlib import Path

import pytest

from tasks.errors import RetrainingError
from tasks.storage import retries
from tasks.storage.leftovers import partial_name
from tasks.storage.listing import object_name
from tasks.storage.places import locate
from tasks.storage.retries import Retries
from tasks.storage.store import WrongObjectError
from tasks.storage.transfer import StoredObject, fetch_objects
from tests.support.coming import comes
from tests.support.faulty_server import Fault, FaultyServer, faulty_server
from tests.support.rclone import serve_s3, serve_sftp
from tests.support.repositories import make_repository, tables
from tests.support.virtual_clock import VirtualClock

CONTENTS = [bytes([number]) * 70_000 for number in range(6)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    clock = VirtualClock()
    with faulty_server() as server:
        monkeypatch.setitem(retries.BY_PLACE, locate(server.url)[0].url, Retries(clock, clock.sleep))
        yield server


def items_on(server: FaultyServer, contents: Sequence[bytes] = CONTENTS, sizes: bool = True) -> list[StoredObject]:
    """Stored on the server, as DVC names them."""
    items = []
    for number, content in enumerate(contents):
        version = md5(content).hexdigest()
        server.objects[f"/{object_name(version)}"] = content
        url = f"{server.url}/{object_name(version)}"
        items.append(StoredObject(f"digits/part-{number}", url, version, len(content) if sizes else None))
    return items


def cached(cache: Path, item: StoredObject) -> Path:
    return cache / object_name(item.version)


def files_in(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if not file.is_dir()]


def damage(file: Path) -> None:
    """Wrong bytes, and read-only, so that DVC would trust them."""
    content = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(content[:-1] + b"?")
    file.chmod(0o444)


def test_objects_lie_in_the_cache_as_dvc_has_them(server: FaultyServer, tmp_path: Path) -> None:
    items = items_on(server)
    fetch_objects(items, tmp_path, {})
    assert [cached(tmp_path, item).read_bytes() for item in items] == CONTENTS
    assert {stat.S_IMODE(file.stat().st_mode) for file in files_in(tmp_path)} == {0o444}
    assert len(files_in(tmp_path)) == len(items), "nothing else lies there"


def test_what_is_there_and_right_is_not_asked_for_and_what_is_wrong_is_fetched_anew(
    server: FaultyServer, tmp_path: Path
) -> None:
    items = items_on(server)
    fetch_objects(items, tmp_path, {})
    damage(cached(tmp_path, items[2]))
    server.requests.clear()
    fetch_objects(items, tmp_path, {})
    assert [request.path for request in server.requests] == [f"/{object_name(items[2].version)}"]
    assert cached(tmp_path, items[2]).read_bytes() == CONTENTS[2]


def test_equal_objects_are_fetched_once(server: FaultyServer, tmp_path: Path) -> None:
    first = items_on(server, CONTENTS[:1])[0]
    fetch_objects([first, first._replace(name="digits/the same again")], tmp_path, {})
    assert len(server.requests) == 1


def test_many_come_side_by_side(server: FaultyServer, tmp_path: Path) -> None:
    items = items_on(server, [bytes([number]) * 1000 for number in range(40)])
    server.always, server.slow_pause_seconds = "slow", 0.2
    fetch_objects(items, tmp_path, {})
    assert server.most_at_once >= 8


def test_a_large_one_comes_in_ranges(server: FaultyServer, tmp_path: Path) -> None:
    content = os.urandom(9_000_000)
    server.always, server.slow_pause_seconds = "slow", 0.2
    fetch_objects(items_on(server, [content]), tmp_path, {})
    assert files_in(tmp_path)[0].read_bytes() == content
    assert server.most_at_once >= 8


@pytest.mark.parametrize("sizes", [True, False])
def test_progress_adds_up_whatever_happens_on_the_way(server: FaultyServer, tmp_path: Path, sizes: bool) -> None:
    items = items_on(server, sizes=sizes)
    # One each: an object that is wrong twice fails.
    faults: list[Fault] = ["wrong", 503, "cut", "short", 429]
    for item, fault in zip(items, faults, strict=False):
        server.faults[f"/{object_name(item.version)}"] = [fault]
    lock, done = threading.Lock(), [0]

    def count(size: int) -> None:
        with lock:
            done.append(done[-1] + size)

    fetch_objects(items, tmp_path, {}, count)
    assert done[-1] == sum(map(len, CONTENTS))
    assert all(0 <= value <= done[-1] for value in done)
    fetch_objects(items, tmp_path, {}, count)
    assert done[-1] == 2 * sum(map(len, CONTENTS)), "what is there counts too"


def test_the_one_that_fails_is_named_and_those_that_arrived_stay(server: FaultyServer, tmp_path: Path) -> None:
    items = items_on(server)
    server.objects[f"/{object_name(items[3].version)}"] = b"damaged"
    with pytest.raises(WrongObjectError, match=r"^digits/part-3: can't be read from .*expected the hash"):
        fetch_objects(items, tmp_path, {})
    assert not cached(tmp_path, items[3]).exists()
    for file in files_in(tmp_path):
        assert md5(file.read_bytes()).hexdigest() == file.parent.name + file.name
    assert server.objects[f"/{object_name(items[3].version)}"] == b"damaged", "the store's copy is left alone"
    assert {request.method for request in server.requests} == {"GET"}


def test_a_full_disk_ends_the_fetch_and_is_not_tried_again(
    server: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written leads to /dev/full, where the system says what it says of a full disk."""
    item = items_on(server, CONTENTS[1:2])[0]
    cached(tmp_path, item).parent.mkdir()
    (cached(tmp_path, item).parent / "partial").symlink_to("/dev/full")
    monkeypatch.setattr("tasks.storage.transfer.partial_name", lambda _: "partial")
    with pytest.raises(RetrainingError, match=r"^digits/part-0: can't be kept in DVC's cache: no space left"):
        fetch_objects([item], tmp_path, {})
    assert len(server.requests) == 1
    assert files_in(tmp_path) == []


def test_a_cache_that_nobody_may_write_to_is_named(server: FaultyServer) -> None:
    with pytest.raises(RetrainingError, match=r"^digits/part-0: can't be kept in DVC's cache: /sys/kernel"):
        fetch_objects(items_on(server, CONTENTS[:1]), Path("/sys/kernel"), {})


def test_leftovers_go_with_their_writers_of_this_machine_or_when_they_are_old(
    server: FaultyServer, tmp_path: Path
) -> None:
    items = items_on(server, CONTENTS[:1])
    folder = tmp_path / "ab"
    folder.mkdir()
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    mine = partial_name("name")
    dead = mine.replace(f".{os.getpid()}@", f".{died.pid}@")
    elsewhere = f".name.{died.pid}@another-machine.1.tmp"
    old = f".old.{died.pid}@another-machine.1.tmp"
    for name in (mine, dead, elsewhere, old):
        (folder / name).touch()
    os.utime(folder / old, (0, 0))
    fetch_objects(items, tmp_path, {})
    assert {file.name for file in folder.iterdir()} == {mine, elsewhere}


FETCH = """
import sys
from pathlib import Path
from tasks.storage.transfer import StoredObject, fetch_objects
cache, *versions = sys.argv[2:]
items = [StoredObject(each, f"{sys.argv[1]}/{each[:2]}/{each[2:]}", each) for each in versions]
fetch_objects(items, Path(cache), {})
"""


def fetching(server: FaultyServer, cache: Path, items: Sequence[StoredObject]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, server.url, str(cache), *(item.version for item in items)], stderr=subprocess.PIPE
    )


def test_two_runs_may_fetch_into_one_cache_at_the_same_time(server: FaultyServer, tmp_path: Path) -> None:
    items = items_on(server, [bytes([number]) * 200_000 for number in range(20)])
    server.always = "slow"
    runs = [fetching(server, tmp_path, items) for _ in range(2)]
    for run in runs:
        assert run.wait(120) == 0, run.communicate()[1]
    assert len(files_in(tmp_path)) == len(items)
    for item in items:
        assert md5(cached(tmp_path, item).read_bytes()).hexdigest() == item.version


def test_what_a_killed_run_leaves_is_never_taken_for_an_object(server: FaultyServer, tmp_path: Path) -> None:
    items = items_on(server, [bytes([number]) * 3_000_000 for number in range(4)], sizes=False)
    server.always, server.slow_pause_seconds = "slow", 0.5
    run = fetching(server, tmp_path, items)
    try:
        assert comes(lambda: any(file.stat().st_size for file in files_in(tmp_path)))
    finally:
        run.kill()
        run.communicate()
    assert any(file.name.endswith(".tmp") for file in files_in(tmp_path))
    assert not any(cached(tmp_path, item).exists() for item in items)
    server.always = None
    fetch_objects(items, tmp_path, {})
    assert [file for file in files_in(tmp_path) if file.name.endswith(".tmp")] == []
    assert len(files_in(tmp_path)) == len(items)


@pytest.mark.parametrize("serve", [serve_s3, serve_sftp])
def test_dvc_agrees_with_what_came_from_a_real_server(serve: object, tmp_path: Path) -> None:
    """`dvc checkout` and `dvc status`, with the remote gone."""
    files = {**tables(30, 1, 17), "a folder/readme.txt": b"about this set"}
    root = make_repository(tmp_path / "project", digits=files)
    with serve(tmp_path / "server") as served:  # type: ignore[operator]
        shutil.copytree(root / "store", served.folder, dirs_exist_ok=True)
        shutil.rmtree(root / "store")
        shutil.rmtree(root / "digits")
        shutil.rmtree(root / ".dvc/cache")
        objects = [path.relative_to(served.folder / "files/md5") for path in files_in(served.folder / "files/md5")]
        items = [
            StoredObject(str(path), f"{served.url}/files/md5/{path}", str(path).replace("/", "")) for path in objects
        ]
        assert len(items) == len(files) + 1
        fetch_objects(items, root / ".dvc/cache/files/md5", served.options)
    dvc = [str(Path(sys.executable).with_name("dvc"))]
    environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
    subprocess.run([*dvc, "checkout", "-q"], cwd=root, check=True, env=environment)
    assert {str(file.relative_to(root / "digits")): file.read_bytes() for file in files_in(root / "digits")} == files
    said = subprocess.run([*dvc, "status"], cwd=root, check=True, env=environment, capture_output=True, text=True)
    assert "up to date" in said.stdout
