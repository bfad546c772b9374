from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tasks.journal import Journal
from tasks.records import Manifest, Shard
from tasks.storage.samples import Samples, StallCause
from tasks.training.stall_watch import StallWatch
from tests.support.trainees import InMemory

SET = Manifest("digits", "v", None, 4000, 1, None, None, (Shard("a", "0", "url", 4000, 10, 9000),))


class Stalling(InMemory):
    stalled_by: Mapping[StallCause, float] = {"store": 2.0, "node": 0.0, "decoding": 1.0}
    stalled_seconds = 3.0


def test_a_phase_that_waits_for_its_data_is_warned_of_once(tmp_path: Path) -> None:
    journal, times = Journal(tmp_path / "journal.jsonl"), iter([0.0, 10.0, 20.0])
    source = Stalling(Samples(np.zeros((1, 1)), np.zeros(1, np.int64)))
    watch = StallWatch(journal, "pretrain", SET, source, samples=100, clock=lambda: next(times))
    watch.look(17_600)
    watch.look(20_000)
    (event,) = journal.events()
    assert event["event"] == "warning"
    assert "3.0 of 10.0 s (30%): store 67%, decoding 33%" in event["message"]
    assert "needed 1.0 MB/s and got 0.7" in event["message"]
