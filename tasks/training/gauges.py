"""How much memory a pass of training really takes, by whatever keeps count of it on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import torch

from tasks.training.allocated import with_peak_and_rest
from tasks.training.device import CPU_HEAP_FACTOR, cuda_room_bytes

Result = TypeVar("Result")


class Gauge(Protocol):
    """Measures calls one after the other, from the moment that it was made."""

    def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
        """What the function returns, and the most bytes at any moment of it above those at the gauge's beginning."""


class AllocatorGauge:
    """The bytes that torch's CPU allocator hands out: tensors, and the scratch memory of kernels.

    That is what a number for `batch.device_memory` limits; the process and its libraries are far larger than such a
    number may be.
    """

    def __init__(self) -> None:
        self.live = 0

    def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
        result, peak, rest = with_peak_and_rest(function)
        most = self.live + peak
        self.live += rest
        return result, most


class ProcessGauge:
    """The resident memory of this process, by the kernel's high-water mark, which each call resets.

    What the heap can't reuse counts here, and code that is loaded at its first use.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        self.process = process
        self.base = self._read("VmRSS")

    def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
        (self.process / "clear_refs").write_text("5")
        result = function()
        return result, self._read("VmHWM") - self.base

    def _read(self, name: str) -> int:
        lines = (self.process / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


class CudaGauge:
    """The bytes that torch's allocator hands out on a CUDA device, the workspaces of libraries among them.

    What it has reserved beside them comes in segments of up to 20 MiB, too coarse for small passes; the prediction has
    an estimate of it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.base = torch.cuda.memory_allocated(device)

    def measure(self, function: Callable[[], Result]) -> tuple[Result, int]:
        torch.cuda.reset_peak_memory_stats(self.device)
        result = function()
        torch.cuda.synchronize(self.device)
        return result, torch.cuda.max_memory_allocated(self.device) - self.base


def gauge_of(
    device: torch.device, setting: int | Literal["auto"], budget_bytes: int
) -> tuple[Callable[[], Gauge], int] | None:
    """What makes a gauge, and the bytes that its measure of a whole step may reach. None where nothing keeps count.

    The headroom isn't taken off again: it is for what a prediction doesn't know, and this does.
    On a CPU whose memory is the budget (`auto`) that is the memory of the process: the factor that was left for its
    heap gives way to what is measured. On CUDA it is what the device has now, if others have taken some since.
    """
    if device.type == "cuda":
        if setting == "auto":
            free, total = torch.cuda.mem_get_info(device)
            fraction = torch.cuda.get_per_process_memory_fraction(device)
            now = cuda_room_bytes(free, torch.cuda.memory_reserved(device), total, fraction)
            budget_bytes = min(budget_bytes, now)
        return lambda: CudaGauge(device), budget_bytes
    if device.type == "cpu" and setting != "auto":
        return AllocatorGauge, budget_bytes
    if device.type == "cpu" and _high_water_mark_can_be_reset():
        return ProcessGauge, int(budget_bytes * CPU_HEAP_FACTOR)
    return None


def _high_water_mark_can_be_reset() -> bool:
    """Linux only, and not in every container."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
