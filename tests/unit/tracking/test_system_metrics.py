from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.journal import Event, Journal
from tasks.tracking import system_metrics
from tasks.tracking.operations import Log, operations
from tasks.tracking.system_metrics import Machine, gpu_values, sampled


def samples(journal: Journal) -> list[Event]:
    return [event for event in journal.events() if event["event"] == "system_metrics"]


def test_the_shortest_branch_has_a_sample_and_waits_for_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    began = time.monotonic()
    with sampled(journal, "pretrain"):
        pass
    assert time.monotonic() - began < system_metrics.FIRST_PAUSE_SECONDS
    (sample,) = samples(journal)
    assert (sample["branch"], sample["step"]) == ("pretrain", 0)


def test_a_branch_is_sampled_while_it_trains_and_once_more_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_metrics, "FIRST_PAUSE_SECONDS", 0.05)
    journal = Journal(tmp_path / "journal.jsonl")
    with sampled(journal, "pretrain"):
        time.sleep(0.3)
        during = len(samples(journal))
    assert during >= 1
    assert [sample["step"] for sample in samples(journal)] == list(range(during + 1))


def test_pauses_grow_to_the_longest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_metrics, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(system_metrics, "LONGEST_PAUSE_SECONDS", 0.04)
    journal = Journal(tmp_path / "journal.jsonl")
    with sampled(journal, "pretrain"):
        time.sleep(1)
    # Pauses that go on growing allow 7 of them in a second.
    assert len(samples(journal)) > 9


def test_a_branch_that_goes_on_counts_on_from_its_earlier_samples(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for branch in ("pretrain", "continue", "pretrain"):
        with sampled(journal, branch):
            pass
    assert [sample["step"] for sample in samples(journal) if sample["branch"] == "pretrain"] == [0, 1]


def test_an_error_in_the_branch_passes_and_its_last_sample_is_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(RuntimeError), sampled(journal, "pretrain"):
        raise RuntimeError
    assert len(samples(journal)) == 1


def test_a_machine_that_cannot_be_asked_stops_no_branch_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise PermissionError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_percent", refuse)
    journal = Journal(tmp_path / "journal.jsonl")
    with sampled(journal, "pretrain"):
        pass
    (event,) = journal.events()
    assert event["event"] == "warning"
    assert "/proc/stat" in event["message"]


def test_the_names_are_those_that_mlflow_draws() -> None:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    kinds: Any = (CPUMonitor, DiskMonitor, NetworkMonitor)
    theirs: set[str] = set()
    for kind in kinds:
        monitor = kind()
        monitor.collect_metrics()
        theirs |= {f"system/{name}" for name in monitor.metrics}
    ours = {name for name in Machine().values() if not name.startswith("system/gpu_")}
    assert ours == theirs


def test_values_are_shares_and_sizes_of_this_machine() -> None:
    values = Machine().values()
    total = psutil.virtual_memory().total / 1e6
    assert 0 < values["system/system_memory_usage_megabytes"] < total
    assert 0 <= values["system/cpu_utilization_percentage"] <= 100
    assert values["system/network_receive_megabytes"] >= 0


def test_gpus_are_told_each_under_its_number() -> None:
    assert gpu_values("0, 50, 1000, 4000, 75.00, 300.00\n1, 0, 0, 4000, 30.00, 300.00\n") == {
        "gpu_0_utilization_percentage": 50.0,
        "gpu_0_memory_usage_megabytes": 1048.576,
        "gpu_0_memory_usage_percentage": 25.0,
        "gpu_0_power_usage_watts": 75.0,
        "gpu_0_power_usage_percentage": 25.0,
        "gpu_1_utilization_percentage": 0.0,
        "gpu_1_memory_usage_megabytes": 0.0,
        "gpu_1_memory_usage_percentage": 0.0,
        "gpu_1_power_usage_watts": 30.0,
        "gpu_1_power_usage_percentage": 10.0,
    }


def test_what_a_gpu_does_not_tell_is_left_out() -> None:
    assert gpu_values("0, [N/A], 1000, 4000, [Not Supported], [N/A]\n").keys() == {
        "gpu_0_memory_usage_megabytes",
        "gpu_0_memory_usage_percentage",
    }


def tool(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho asked >> {folder}/asked\n{script}\n")
    program.chmod(0o755)


def test_the_gpus_of_the_machine_are_asked_through_their_own_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "echo '0, 50, 1000, 4000, 75.00, 300.00'")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert Machine().values()["system/gpu_0_utilization_percentage"] == 50.0


def test_a_tool_that_fails_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "echo 'no driver'; exit 9")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    machine = Machine()
    for _ in range(3):
        assert not any("gpu" in name for name in machine.values())
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_samples_are_points_of_their_branch(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    with sampled(journal, "pretrain"):
        pass
    (log,) = operations(samples(journal)[0])
    assert isinstance(log, Log)
    assert log.branch == "pretrain"
    assert "system/cpu_utilization_percentage" in {point.key for point in log.points}
