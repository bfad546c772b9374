"""Bytes that torch's CPU allocator has out at once, as its profiler tells: what predictions of memory are judged by."""

from __future__ import annotations

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_allocated_bytes(function: Callable[[], object]) -> int:
    """The most bytes above those before the call that were allocated at one time while `function` ran."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        function()
    results = recorded.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak
