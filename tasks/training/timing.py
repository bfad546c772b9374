"""How long a rank's own steps take, whatever it waits for in between."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable

import torch

from tasks.decisions.update_mode import LEAST_STEP_SECONDS

REMEMBERED_STEPS = 5
# Asked so often in a row without a step in between, what is remembered is of another time.
STALE_AFTER = 5


class StepTimer:
    """Own compute time of one step, scaled to an equal part of the global batch; the median of the last five.

    The first step of a process is left out (lazy imports, kernels chosen at first use), and so are steps on less than
    half of what was planned for them, whose fixed costs would make the rank look slow. A step after rounds without one
    (of a rank too slow for the window, which is probed now and then) counts alone: it tells of a recovery at once. On
    CUDA the spans are taken between events, since the host runs ahead of the device; on a CPU by the clock.
    """

    def __init__(self, part: int, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> None:
        self.part = part
        self.device = device
        self.clock = clock
        self.first = True
        self.durations: deque[float] = deque(maxlen=REMEMBERED_STEPS)
        self.asked_in_vain = 0
        self.factors: dict[int, float] = {}
        self.spans: list[tuple[int, bool, list[tuple[Moment, Moment]]]] = []
        self.open: Moment | None = None

    def begin_step(self, samples: int, planned: int | None = None) -> None:
        """A step on `samples` samples starts, and its first span with it; `planned` were an equal part unless given."""
        is_whole = samples > 0 and samples * 2 >= (self.part if planned is None else planned)
        self.spans.append((samples, is_whole, []))
        self.resume()

    def resume(self) -> None:
        """The rank computes again."""
        self.open = self._moment()

    def pause(self) -> None:
        """The rank's own work is done for now: what follows is waiting for others."""
        if self.open is not None:
            self.spans[-1][2].append((self.open, self._moment()))
            self.open = None

    def discard_step(self) -> None:
        """The step that has just ended tells nothing: it is run again, or there was nothing to do."""
        self.open = None
        self.spans.pop()

    def forget(self) -> None:
        """What was measured so far is of other passes."""
        self.spans.clear()
        self.durations.clear()
        self.factors.clear()

    def seconds(self) -> float | None:
        """The duration of a planned part; None before there is a warmed-up step."""
        if self.spans and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.asked_in_vain += not self.spans
        for samples, is_whole, spans in self.spans:
            if not samples:
                continue
            if self.first:
                self.first = False
            elif is_whole:
                spent = sum(_between(start, end) for start, end in spans)
                if self.asked_in_vain >= STALE_AFTER:
                    self.durations.clear()
                self.asked_in_vain = 0
                self.durations.append(max(LEAST_STEP_SECONDS, spent * self._factor(samples, spent)))
        self.spans.clear()
        return statistics.median(self.durations) if self.durations else None

    def _factor(self, samples: int, spent: float) -> float:
        """How many times as long a whole part takes as `samples` of it.

        Fixed costs lie between a step that takes as long whatever it has, and one that takes as long as it has samples.
        What a size costs is learned when it first comes, from what a whole part took until then; without that it
        is taken to go with the samples. Parts that differ by one sample are as good as equal.
        """
        if abs(samples - self.part) <= 1:
            return 1.0
        by_samples = self.part / samples
        if samples not in self.factors:
            if not self.durations:
                return by_samples
            learned = statistics.median(self.durations) / max(spent, LEAST_STEP_SECONDS)
            self.factors[samples] = min(max(1.0, by_samples), max(min(1.0, by_samples), learned))
        return self.factors[samples]

    def _moment(self) -> Moment:
        if self.device.type != "cuda":
            return self.clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        return event


Moment = float | torch.cuda.Event


def _between(start: Moment, end: Moment) -> float:
    if isinstance(start, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
        return float(start.elapsed_time(end)) / 1000
    assert isinstance(start, float)
    assert isinstance(end, float)
    return end - start
