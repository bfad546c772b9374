"""Which kind of device a run trains on, and how many bytes one of them has for it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Literal

import torch

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.memory_limits import available_memory_bytes, process_room_bytes

# On a CPU the heap grows beyond the tensors in it by a factor that depends on the net; measured 1.1 to 4.5.
CPU_HEAP_FACTOR = 2.0

# What libraries take on a large CUDA device beside the tensors (workspaces of cuBLAS, cuDNN and NCCL, lazily loaded
# kernels). The predicted peak has the allocator's fragmentation in it, but not these.
CUDA_LIBRARY_BYTES = 256 << 20
LARGE_CUDA_DEVICE_BYTES = 8 << 30

_CUDA_QUERY = """
import json
import sys
import torch
rooms = []
for device in range(int(sys.argv[1])):
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    rooms.append((free, reserved, total, torch.cuda.get_per_process_memory_fraction(device)))
print(json.dumps(rooms))
"""
QUERY_SECONDS = 60.0


def choose_device(kind: Literal["auto", "cpu", "cuda", "mps"]) -> str:
    """The kind of device: the best there is for `auto`. Raises `ParameterError` for one that isn't there."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if kind == "auto":
        return next(name for name, found in there.items() if found)
    if not there[kind]:
        found = ", ".join(name for name, present in there.items() if present)
        raise ParameterError([f"cluster.device: {kind!r} is not here; allowed on this machine are auto, {found}"])
    return kind


def check_workers(device: str, workers: int) -> None:
    """Raises `ParameterError` for more workers than accelerators; on a CPU workers are processes."""
    count = torch.cuda.device_count() if device == "cuda" else 1
    if device != "cpu" and workers > count:
        raise ParameterError([f"cluster.workers: {workers} is more than the {count} {device} devices of this machine"])


def device_memory_bytes(device: str, setting: int | Literal["auto"], processes: int) -> int:
    """Bytes that each of `processes` workers may occupy on its device, the smallest of them.

    CUDA is asked in a process of its own, so that the caller keeps no context on the device. On a CPU the processes
    share the memory that this one may use; limits of a process (`ulimit`) hold for each of them.
    """
    if setting != "auto":
        return setting
    if device == "cuda":
        found = subprocess.run(
            [sys.executable, "-c", _CUDA_QUERY, str(processes)],
            capture_output=True,
            text=True,
            timeout=QUERY_SECONDS,
            check=False,
        )
        if found.returncode:
            raise RetrainingError(f"the memory of the CUDA device can't be read: {found.stderr.strip()[-300:]}")
        return min(cuda_room_bytes(*room) for room in json.loads(found.stdout))
    if device == "mps":
        # What the driver holds for this process and no tensor uses is lost to it.
        unused = torch.mps.driver_allocated_memory() - torch.mps.current_allocated_memory()
        return int(torch.mps.recommended_max_memory()) - int(unused)
    return int(min(available_memory_bytes() / processes, process_room_bytes()) / CPU_HEAP_FACTOR)


def cuda_room_bytes(free: int, reserved: int, total: int, fraction: float) -> int:
    """What a process may have on a CUDA device: free memory and what its allocator holds, capped by its fraction."""
    room = min(free + reserved, int(fraction * total))
    return max(0, room - (CUDA_LIBRARY_BYTES if total >= LARGE_CUDA_DEVICE_BYTES else 0))
