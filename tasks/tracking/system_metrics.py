"""Samples how busy this machine is into the journal, from a thread, while a branch trains.

MLflow's own monitor sends each sample itself, and loses it while the server is away; from the journal they are sent
like everything else. The names are MLflow's, under which its UI has a page for them.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tasks.journal import Journal

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
JOIN_SECONDS = 2.0
GPU_SECONDS = 5.0
GPU_COMMAND = (
    "nvidia-smi",
    "--query-gpu=index,utilization.gpu,memory.used,memory.total,power.draw,enforced.power.limit",
    "--format=csv,noheader,nounits",
)

MEGABYTE = 1e6
MEGABYTES_A_MEBIBYTE = 1.048576


@contextmanager
def sampled(journal: Journal, branch: str) -> Iterator[None]:
    """Write events `system_metrics` of `branch` while the body runs: the first after a second, the last at its end."""
    stop = threading.Event()
    thread = threading.Thread(target=_sample, args=(journal, branch, stop), name="system-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)


class Machine:
    """This machine's load since it was asked last: processors, memory, disk, network, and NVIDIA's GPUs if there."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # What comes next is measured from here.
        self._received, self._sent = _network()
        self._has_gpus = True

    def values(self) -> dict[str, float]:
        """The present values by MLflow's names; megabytes of the network since the start."""
        memory, disk = psutil.virtual_memory(), psutil.disk_usage("/")
        received, sent = _network()
        found = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": 100 * memory.used / memory.total,
            "disk_usage_percentage": disk.percent,
            "disk_usage_megabytes": disk.used / MEGABYTE,
            "disk_available_megabytes": disk.free / MEGABYTE,
            "network_receive_megabytes": (received - self._received) / MEGABYTE,
            "network_transmit_megabytes": (sent - self._sent) / MEGABYTE,
            **self._gpus(),
        }
        return {f"system/{name}": round(value, 3) for name, value in found.items()}

    def _gpus(self) -> dict[str, float]:
        """Nothing where NVIDIA's tool is missing or fails, which is tried once."""
        if not self._has_gpus:
            return {}
        try:
            answer = subprocess.run(GPU_COMMAND, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
        except (OSError, subprocess.SubprocessError):
            self._has_gpus = False
            return {}
        return gpu_values(answer.stdout)


def gpu_values(answer: str) -> dict[str, float]:
    """What `GPU_COMMAND` says of each GPU, a line each, without the numbers that a GPU doesn't tell."""
    found: dict[str, float] = {}
    for line in answer.splitlines():
        index, *numbers = (field.strip() for field in line.split(","))
        utilization, used, total, power, limit = (_number(text) for text in numbers)
        values = {
            "utilization_percentage": utilization,
            "memory_usage_megabytes": None if used is None else used * MEGABYTES_A_MEBIBYTE,
            "memory_usage_percentage": _percentage(used, total),
            "power_usage_watts": power,
            "power_usage_percentage": _percentage(power, limit),
        }
        found |= {f"gpu_{index}_{name}": value for name, value in values.items() if value is not None}
    return found


def _sample(journal: Journal, branch: str, stop: threading.Event) -> None:
    try:
        machine = Machine()
        earlier = [event for event in journal.events() if event["event"] == "system_metrics"]
        step = sum(event["branch"] == branch for event in earlier)
        pause, stopped = FIRST_PAUSE_SECONDS, False
        while not stopped:
            stopped = stop.wait(pause)
            journal.write("system_metrics", branch=branch, step=step, values=machine.values())
            step += 1
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    except Exception as error:  # A machine that can't be asked is no reason to stop training on it.
        journal.write("warning", message=f"no system metrics of {branch!r}: {type(error).__name__}: {error}")


def _network() -> tuple[int, int]:
    """Bytes received and sent since the machine was started; 0 where it has no network."""
    counted = psutil.net_io_counters()
    return (0, 0) if counted is None else (counted.bytes_recv, counted.bytes_sent)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _percentage(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else 100 * part / whole
