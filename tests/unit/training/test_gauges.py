"""What passes take is read from whatever counts it: torch's allocator, the kernel, or CUDA's allocator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tasks.training import gauges
from tasks.training.device import CPU_HEAP_FACTOR, CUDA_LIBRARY_BYTES
from tasks.training.gauges import AllocatorGauge, CudaGauge, ProcessGauge, gauge_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
MIB = 1 << 20


def test_the_allocator_counts_what_is_there_at_one_time_and_what_earlier_calls_have_left() -> None:
    gauge = AllocatorGauge()
    kept: list[torch.Tensor] = []

    def work(lasting: int, passing: int) -> int:
        kept.append(torch.zeros(lasting * MIB, dtype=torch.uint8))
        return len(torch.zeros(passing * MIB, dtype=torch.uint8))

    assert gauge.measure(lambda: work(1, 3)) == (3 * MIB, 4 * MIB)
    assert gauge.measure(lambda: work(1, 2)) == (2 * MIB, 4 * MIB)
    kept.clear()
    assert gauge.measure(lambda: work(1, 1))[1] == 4 * MIB  # of which two are of before and gone unseen


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="there is no /proc")
def test_the_kernel_s_high_water_mark_is_that_of_the_call_alone() -> None:
    def work(size: int) -> int:
        return len(torch.ones(size * MIB, dtype=torch.uint8))

    gauge = ProcessGauge()
    large = gauge.measure(lambda: work(300))[1]
    small = gauge.measure(lambda: work(10))[1]
    assert 290 * MIB < large < 400 * MIB
    assert small < 100 * MIB


def test_the_kernel_s_numbers_are_read_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t    5000 kB\nVmRSS:\t    1000 kB\n")
    gauge = ProcessGauge(tmp_path)
    assert gauge.measure(lambda: "done") == ("done", 4000 * 1024)
    assert (tmp_path / "clear_refs").read_text() == "5"


def test_on_cuda_the_allocator_s_peak_above_the_beginning_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 1700)
    for name in ("reset_peak_memory_stats", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda _, name=name: called.append(name))
    gauge = CudaGauge(CUDA)
    assert gauge.measure(lambda: called.append("work")) == (None, 700)
    assert called == ["reset_peak_memory_stats", "work", "synchronize"]


def test_a_number_is_for_the_tensors_of_a_step() -> None:
    assert gauge_of(CPU, 6_000_000, 6_000_000) == (AllocatorGauge, 6_000_000)


def test_the_machine_s_memory_is_for_the_process_and_the_factor_for_its_heap_is_measured_instead() -> None:
    if not gauges._high_water_mark_can_be_reset():
        pytest.skip("the high-water mark can't be reset here")
    assert gauge_of(CPU, "auto", 1000) == (ProcessGauge, int(1000 * CPU_HEAP_FACTOR))


def test_where_nothing_keeps_count_the_prediction_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "_high_water_mark_can_be_reset", lambda: False)
    assert gauge_of(CPU, "auto", 1000) is None
    assert gauge_of(torch.device("mps"), 1000, 1000) is None


def test_on_cuda_memory_that_others_have_taken_since_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (gib, 16 * gib))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: gib)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)
    for setting, budget, limit in (
        ("auto", 8 * gib, 2 * gib - CUDA_LIBRARY_BYTES),
        ("auto", gib, gib),
        (8 * gib, 8 * gib, 8 * gib),
    ):
        found = gauge_of(CUDA, setting, budget)  # type: ignore[arg-type]
        assert found is not None
        assert found[1] == limit
