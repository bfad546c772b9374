from __future__ import annotations

from tasks.storage.node_health import OPEN_SECONDS, NodeHealth

MB = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_node() -> tuple[NodeHealth, Clock]:
    clock = Clock()
    return NodeHealth(clock), clock


def test_a_node_that_failed_is_left_alone_and_then_asked_by_one() -> None:
    health, clock = a_node()
    assert health.advice() == "ask"
    health.failed()
    assert health.advice() == "leave"
    clock.now += OPEN_SECONDS - 0.1
    assert health.advice() == "leave"
    clock.now += 0.2
    assert [health.advice() for _ in range(3)] == ["probe", "leave", "leave"]


def test_a_probe_that_succeeds_brings_the_node_back() -> None:
    health, clock = a_node()
    health.failed()
    clock.now += OPEN_SECONDS
    assert health.advice() == "probe"
    health.succeeded(0.01, MB)
    assert health.advice() == "ask"


def test_a_probe_that_fails_leaves_it_alone_for_as_long_again() -> None:
    health, clock = a_node()
    health.failed()
    clock.now += OPEN_SECONDS
    assert health.advice() == "probe"
    health.failed()
    clock.now += OPEN_SECONDS - 0.1
    assert health.advice() == "leave"
    clock.now += 0.2
    assert health.advice() == "probe"


def test_an_answer_that_it_lacks_something_is_an_answer() -> None:
    health, clock = a_node()
    health.failed()
    clock.now += OPEN_SECONDS
    health.advice()
    health.answered()
    assert health.advice() == "ask"


def test_late_is_several_times_the_usual_for_the_size() -> None:
    health, _ = a_node()
    assert health.late_after_seconds(MB) == 1.0
    for _ in range(5):
        health.succeeded(0.1, MB)
    assert round(health.late_after_seconds(MB), 3) == 0.4
    assert round(health.late_after_seconds(10 * MB), 3) == 4.0
    assert health.late_after_seconds(1000) == 0.2


def test_one_that_is_late_again_and_again_is_left_alone() -> None:
    health, _ = a_node()
    assert [health.was_late() for _ in range(3)] == [False, False, True]
    assert health.advice() == "leave"


def test_one_that_is_late_now_and_then_is_not() -> None:
    health, _ = a_node()
    for _ in range(5):
        assert not health.was_late()
        assert not health.was_late()
        health.succeeded(0.01, MB)
    assert health.advice() == "ask"


def test_a_slow_node_is_not_brought_back_by_a_slow_probe() -> None:
    health, clock = a_node()
    for _ in range(5):
        health.succeeded(0.01, MB)
    for _ in range(3):
        health.was_late()
    clock.now += OPEN_SECONDS
    assert health.advice() == "probe"
    health.succeeded(2.0, MB)
    assert health.advice() == "leave"
    clock.now += OPEN_SECONDS
    assert health.advice() == "probe"
    health.succeeded(0.01, MB)
    assert health.advice() == "ask"


def test_a_slow_node_that_is_faster_than_the_other_source_is_good_again() -> None:
    """All has become slower: its usual time is another one now."""
    health, clock = a_node()
    for _ in range(5):
        health.succeeded(0.01, MB)
    for _ in range(3):
        health.was_late()
    clock.now += OPEN_SECONDS
    health.advice()
    health.succeeded(2.0, MB)
    health.has_won()
    assert health.advice() == "ask"
    health.succeeded(2.0, MB)
    assert health.late_after_seconds(MB) == 8.0


def test_a_late_answer_does_not_make_a_node_good_that_failed_since() -> None:
    """What was asked for before the failure may still come after it."""
    health, _ = a_node()
    health.failed()
    health.succeeded(3.0, MB)
    assert health.advice() == "leave"
