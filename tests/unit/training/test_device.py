"""Claim B4: the resource is the memory of the device, which is chosen, or asked for and there."""

from __future__ import annotations

import pytest
import torch

from tasks.errors import ParameterError
from tasks.storage.memory_limits import available_memory_bytes
from tasks.training.device import CPU_HEAP_FACTOR, check_workers, choose_device, device_memory_bytes


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
