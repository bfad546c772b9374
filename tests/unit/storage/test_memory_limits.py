from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.storage.memory_limits import NO_LIMIT, available_memory_bytes, process_room_bytes

MIB = 1 << 20


def group(folder: Path, **files: str | int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"memory.{name}").write_text(f"{content}\n")


def member_of(root: Path, *lines: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines) + "\n")
    return root


def test_a_group_of_version_2_leaves_its_limit_minus_what_is_no_page_cache(tmp_path: Path) -> None:
    """Page cache is not counted as used, read once or often: it is given back when it is needed. tmpfs is used."""
    root = member_of(tmp_path, "0::/job")
    stat = f"anon {10 * MIB}\nshmem {40 * MIB}\ninactive_file {200 * MIB}\nactive_file {50 * MIB}"
    group(root / "sys/fs/cgroup/job", max=400 * MIB, current=300 * MIB, stat=stat)
    assert available_memory_bytes(root) == 350 * MIB


def test_a_group_that_is_slowed_down_above_a_mark_has_room_up_to_that(tmp_path: Path) -> None:
    root = member_of(tmp_path, "0::/job")
    group(root / "sys/fs/cgroup/job", max=400 * MIB, high=100 * MIB, current=30 * MIB, stat="inactive_file 0")
    assert available_memory_bytes(root) == 70 * MIB
    group(root / "sys/fs/cgroup/job", max="max", high=50 * MIB)
    assert available_memory_bytes(root) == 20 * MIB


def test_a_group_of_version_1_leaves_its_limit_minus_what_is_no_page_cache(tmp_path: Path) -> None:
    root = member_of(tmp_path, "5:cpu,cpuacct:/job", "4:memory:/job")
    group(
        root / "sys/fs/cgroup/memory/job",
        limit_in_bytes=400 * MIB,
        usage_in_bytes=300 * MIB,
        stat=f"inactive_file 1\ntotal_inactive_file {60 * MIB}\ntotal_active_file {40 * MIB}",
    )
    assert available_memory_bytes(root) == 200 * MIB


def test_the_tightest_of_all_ancestors_counts(tmp_path: Path) -> None:
    root = member_of(tmp_path, "0::/outer/inner")
    group(root / "sys/fs/cgroup/outer", max=100 * MIB, current=40 * MIB, stat="inactive_file 0")
    group(root / "sys/fs/cgroup/outer/inner", max="max", current=10 * MIB, stat="inactive_file 0")
    assert available_memory_bytes(root) == 60 * MIB


def test_inside_a_container_the_group_is_the_mount_itself(tmp_path: Path) -> None:
    root = member_of(tmp_path, "4:memory:/docker/0123")
    group(root / "sys/fs/cgroup/memory", limit_in_bytes=90 * MIB, usage_in_bytes=20 * MIB, stat="total_inactive_file 0")
    assert available_memory_bytes(root) == 70 * MIB


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    root = member_of(tmp_path, "0::/job")
    group(root / "sys/fs/cgroup/job", max=100 * MIB, current=150 * MIB, stat="inactive_file 0")
    assert available_memory_bytes(root) == 0


def test_without_limits_the_machine_counts(tmp_path: Path) -> None:
    root = member_of(tmp_path, "4:memory:/", "0::/")
    group(root / "sys/fs/cgroup/memory", limit_in_bytes=9223372036854771712, usage_in_bytes=5, stat="cache 0")
    assert abs(available_memory_bytes(root) - psutil.virtual_memory().available) < 512 * MIB


@pytest.mark.parametrize("limit", [resource.RLIMIT_AS, resource.RLIMIT_DATA], ids=["address space", "data"])
def test_a_process_with_a_limit_of_its_own_has_what_that_leaves(limit: int) -> None:
    """Of 4 GiB this interpreter has some MiB, and the kernel refuses a little more than what is said to be left."""
    code = """
import mmap
from tasks.storage.memory_limits import process_room_bytes
room = process_room_bytes()
kept = mmap.mmap(-1, room - (32 << 20), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
try:
    mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    print("more")
except OSError:
    print(room)
"""
    most = 4096 * MIB
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )
    assert 2048 * MIB < int(found.stdout) < most


def test_a_process_without_limits_has_all() -> None:
    code = "from tasks.storage.memory_limits import process_room_bytes; print(process_room_bytes())"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert int(found.stdout) == NO_LIMIT


def test_where_the_kernel_says_nothing_of_a_process_there_is_no_limit(tmp_path: Path) -> None:
    assert process_room_bytes(tmp_path) == NO_LIMIT
