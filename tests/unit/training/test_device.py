"""Claim B4: the resource is the memory of the device, which is chosen, or asked for and there."""

from __future__ import annotations

import subprocess

import pytest
import torch

from tasks.errors import ParameterError, RetrainingError
from tasks.storage.memory_limits import available_memory_bytes
from tasks.training import device
from tasks.training.device import (
    CPU_HEAP_FACTOR,
    CUDA_LIBRARY_BYTES,
    check_workers,
    choose_device,
    cuda_room_bytes,
    device_memory_bytes,
)


def test_the_best_device_is_chosen_and_the_cpu_is_always_there() -> None:
    best = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device("auto") == best
    assert choose_device("cpu") == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ParameterError, match=r"cluster.device: 'cuda' is not here; allowed .* auto, .*cpu"):
        choose_device("cuda")


def test_workers_on_a_cpu_are_processes_and_on_accelerators_one_each() -> None:
    check_workers("cpu", 64)
    with pytest.raises(ParameterError, match=r"cluster.workers: 9999 is more than the \d+ cuda devices"):
        check_workers("cuda", 9999)
    check_workers("mps", 1)
    with pytest.raises(ParameterError, match=r"cluster\.workers: 2 is more than the 1 mps devices"):
        check_workers("mps", 2)


def test_a_number_is_taken_as_it_is() -> None:
    assert device_memory_bytes("cpu", 12_345, 4) == 12_345


def test_on_a_cpu_the_workers_share_the_memory_that_this_process_may_use() -> None:
    shares = [device_memory_bytes("cpu", "auto", workers) for workers in (1, 4)]
    available = available_memory_bytes() / CPU_HEAP_FACTOR
    assert shares[0] == pytest.approx(available, rel=0.2)
    assert shares[1] == pytest.approx(available / 4, rel=0.2)


def test_a_limit_of_a_process_holds_for_each_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "available_memory_bytes", lambda: 12_000)
    monkeypatch.setattr(device, "process_room_bytes", lambda: 5_000)
    assert device_memory_bytes("cpu", "auto", 2) == 5_000 / CPU_HEAP_FACTOR
    assert device_memory_bytes("cpu", "auto", 3) == 4_000 / CPU_HEAP_FACTOR


GIB = 1 << 30


def test_on_cuda_free_memory_and_what_the_allocator_holds_count_up_to_the_fraction_of_the_process() -> None:
    assert cuda_room_bytes(free=3 * GIB, reserved=GIB, total=6 * GIB, fraction=1.0) == 4 * GIB
    assert cuda_room_bytes(free=3 * GIB, reserved=GIB, total=6 * GIB, fraction=0.5) == 3 * GIB


def test_on_a_large_cuda_device_the_libraries_take_their_share() -> None:
    assert cuda_room_bytes(free=20 * GIB, reserved=0, total=24 * GIB, fraction=1.0) == 20 * GIB - CUDA_LIBRARY_BYTES
    assert cuda_room_bytes(free=GIB // 8, reserved=0, total=24 * GIB, fraction=1.0) == 0


def test_the_smallest_of_the_cuda_devices_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def answer(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(
            command, 0, f"[[{4 * GIB}, 0, {6 * GIB}, 1.0], [{GIB}, {GIB}, {6 * GIB}, 1.0]]"
        )

    monkeypatch.setattr(subprocess, "run", answer)
    assert device_memory_bytes("cuda", "auto", 2) == 2 * GIB
    assert asked[0][-1] == "2"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_cuda_device_that_cant_be_asked_is_one_line() -> None:
    with pytest.raises(RetrainingError, match=r"the memory of the CUDA device can't be read"):
        device_memory_bytes("cuda", "auto", 1)


def test_on_mps_what_the_driver_holds_without_use_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("recommended_max_memory", 10 * GIB),
        ("driver_allocated_memory", 3 * GIB),
        ("current_allocated_memory", GIB),
    ):
        monkeypatch.setattr(torch.mps, name, lambda value=value: value)
    assert device_memory_bytes("mps", "auto", 1) == 8 * GIB
