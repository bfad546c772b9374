"""A training that only waits: for samples, and as long as a step would take. What it measures of itself."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

BATCH = 128


@dataclass
class Epoch:
    """`seconds` from the start of the epoch (of the first one: from opening) to its last step's end."""

    samples: int = 0
    seconds: float = 0.0
    waited_seconds: float = 0.0
    longest_wait_seconds: float = 0.0


@dataclass
class Training:
    """`processor_seconds` are those of this process and its children since it was opened."""

    began: float = field(default_factory=time.monotonic)
    began_processor: float = field(default_factory=lambda: processor_seconds())
    first_batch_seconds: float | None = None
    epochs: list[Epoch] = field(default_factory=list)

    def run(self, batches: Iterable[int], step_seconds: float) -> None:
        """An epoch over `batches`, that are the number of samples in each as it comes."""
        epoch = Epoch()
        start = self.began if not self.epochs else time.monotonic()
        asked = time.monotonic()
        for samples in batches:
            waited = time.monotonic() - asked
            if self.first_batch_seconds is None:
                self.first_batch_seconds = time.monotonic() - self.began
            else:
                epoch.longest_wait_seconds = max(epoch.longest_wait_seconds, waited)
            epoch.waited_seconds += waited
            epoch.samples += samples
            time.sleep(step_seconds)
            asked = time.monotonic()
        epoch.seconds = time.monotonic() - start
        self.epochs.append(epoch)

    def found(self, **more: Any) -> dict[str, Any]:
        """All figures, as a program prints them."""
        return {
            "first_batch_seconds": self.first_batch_seconds,
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "processor_seconds": processor_seconds() - self.began_processor,
            **more,
        }


def processor_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def since_start_seconds() -> float:
    """Since this process was started, imports included, to a hundredth of a second."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")


def memory_bytes(name: str = "VmRSS") -> int:
    """Memory of this process as Linux says it: VmRSS is now, VmHWM the most since `forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")
