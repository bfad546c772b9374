"""The bytes that torch's CPU allocator really hands out, the scratch memory of kernels too, which is in no tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
_autograd: Any = torch.autograd


def with_peak(function: Callable[[], Result]) -> tuple[Result, int]:
    """What the function returns, and the most bytes that were allocated at one time while it ran."""
    result, peak, _ = with_peak_and_rest(function)
    return result, peak


def with_peak_and_rest(function: Callable[[], Result]) -> tuple[Result, int, int]:
    """The same, and the bytes that it has left allocated, fewer than 0 where it has freed what was there before.

    The older of torch's two profilers is used: the newer one takes seconds at its first start and writes to stderr.
    """
    # The switches are: shapes, memory, stacks, FLOPs, modules.
    switches = False, True, False, False, False
    plain = torch._C._profiler._ExperimentalConfig()
    _autograd._enable_profiler_legacy(_autograd.ProfilerConfig(_autograd.ProfilerState.CPU, *switches, plain))
    try:
        result = function()
    finally:
        threads = _autograd._disable_profiler_legacy()
    live = peak = 0
    for event in (event for events in threads for event in events if event.kind() == "memory_alloc"):
        live += event.cpu_memory_usage()
        peak = max(peak, live)
    return result, peak, live
