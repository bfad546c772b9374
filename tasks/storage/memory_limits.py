"""How many bytes of memory this process may really use: the machine's, capped by its control groups and own limits."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil

_CACHE = ("inactive_file", "active_file")
_CACHE_OF_ALL = ("total_inactive_file", "total_active_file")

# Kernels write "no limit" of version 1 as a number near 2**63.
NO_LIMIT = 1 << 60


def available_memory_bytes(root: Path = Path("/")) -> int:
    """Free memory of the machine (page cache counts as free), capped by what each control group has left.

    `root` is where /proc and /sys are looked for.
    """
    machine = int(psutil.virtual_memory().available)
    return max(0, min([machine, *_group_rooms(root)]))


def process_room_bytes(root: Path = Path("/")) -> int:
    """What this process may still take by its own limits of address space and data (`ulimit -v`, `ulimit -d`).

    `NO_LIMIT` where it has none. Its children inherit the limits, and each has them for itself.
    """
    rooms = [NO_LIMIT]
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(limit)
        used = _process_bytes(root / "proc/self/status", name)
        if most != resource.RLIM_INFINITY and used is not None:
            rooms.append(max(0, most - used))
    return min(rooms)


def _process_bytes(status: Path, name: str) -> int | None:
    """A number of the kernel's on this process, which it gives in KiB. None without such a file."""
    if not status.exists():
        return None
    found = (line.split() for line in status.read_text().splitlines())
    return next((int(words[1]) * 1024 for words in found if words[:1] == [f"{name}:"]), None)


def _group_rooms(root: Path) -> list[int]:
    """Limit minus what is used of it, in every control group that this process is in, and in their ancestors.

    The kernel gives up its cache of files for whoever needs memory, so that is not used; files in memory (tmpfs) are.
    """
    table = root / "proc/self/cgroup"
    if not table.exists():
        return []
    rooms: list[int] = []
    for line in table.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", _CACHE)
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", _CACHE_OF_ALL)
        else:
            continue
        group = base / path.lstrip("/")
        while True:
            room = _room(group, *names)
            if room is not None:
                rooms.append(room)
            if group == base:
                break
            group = group.parent
    return rooms


def _room(group: Path, limit_name: str, usage_name: str, cache_names: tuple[str, ...]) -> int | None:
    limits = [limit for name in (limit_name, "memory.high") if (limit := _read(group / name)) is not None]
    limit = min(limits, default=None)
    usage = _read(group / usage_name)
    if limit is None or usage is None or limit >= NO_LIMIT:
        return None
    cached = 0
    statistics = group / "memory.stat"
    if statistics.exists():
        for line in statistics.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name in cache_names:
                cached += int(value)
    return max(0, limit - max(0, usage - cached))


def _read(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
