from __future__ import annotations

from tasks.storage.samples import StallCause
from tasks.storage.stalls import Stalls


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_waiting_is_shared_out_by_what_was_read_at_that_time_and_decoding_counts_for_itself() -> None:
    clock = Clock()
    read: dict[StallCause, float] = {"store": 5.0, "node": 5.0}
    stalls = Stalls(lambda: read, clock)
    with stalls.waiting() as wait:
        wait.spend(lambda: clock.sleep(2.0), decoding=False)
        read |= {"store": 8.0, "node": 6.0}
        wait.spend(lambda: clock.sleep(0.5), decoding=True)
    assert stalls.by_cause == {"store": 1.5, "node": 0.5, "decoding": 0.5}
    assert stalls.seconds == 2.5


def test_a_read_that_has_not_ended_counts_for_the_store() -> None:
    clock = Clock()
    stalls = Stalls(dict, clock)
    with stalls.waiting() as wait:
        wait.spend(lambda: clock.sleep(2.0), decoding=False)
    assert stalls.by_cause == {"store": 2.0, "node": 0.0, "decoding": 0.0}
