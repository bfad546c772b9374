from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tasks.storage.place_errors import BusyError, DeniedError, FullError, MissingError
from tasks.storage.retries import (
    ATTEMPTS,
    FAILURES_TO_OPEN,
    LONGEST_PAUSE_SECONDS,
    PATIENCE_SECONDS,
    Breaker,
    Retries,
)
from tests.support.virtual_clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def retries(clock: VirtualClock, chance: float = 1.0) -> Retries:
    return Retries(clock, clock.sleep, lambda: chance)


def failing(times: int, error: type[OSError] = BusyError) -> tuple[Callable[[], str], list[int]]:
    """Something that fails so many times before it succeeds, and its calls."""
    calls: list[int] = []

    def act() -> str:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error(f"failure {len(calls)}")
        return "done"

    return act, calls


def test_what_succeeds_at_once_waits_for_nothing(clock: VirtualClock) -> None:
    act, calls = failing(0)
    assert retries(clock).run(act) == "done"
    assert (len(calls), clock.sleeps) == (1, [])


def test_pauses_double(clock: VirtualClock) -> None:
    act, calls = failing(4)
    assert retries(clock).run(act) == "done"
    assert clock.sleeps == pytest.approx([0.1, 0.2, 0.4, 0.8])
    assert len(calls) == 5


def test_chance_shortens_a_pause_to_half_at_most(clock: VirtualClock) -> None:
    act, _ = failing(2)
    retries(clock, chance=0.0).run(act)
    assert clock.sleeps == pytest.approx([0.05, 0.1])


def test_the_last_attempt_raises_its_own_error(clock: VirtualClock) -> None:
    act, calls = failing(99)
    with pytest.raises(BusyError, match=f"^failure {ATTEMPTS}$"):
        retries(clock).run(act)
    assert len(calls) == ATTEMPTS
    assert max(clock.sleeps) <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize("error", [MissingError, DeniedError, FullError])
def test_what_asking_again_does_not_help_is_asked_once(clock: VirtualClock, error: type[OSError]) -> None:
    act, calls = failing(1, error)
    with pytest.raises(error):
        retries(clock).run(act)
    assert (len(calls), clock.sleeps) == (1, [])


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_through_at_a_time(clock: VirtualClock) -> None:
    breaker = Breaker(3, first_seconds=1.0, clock=clock)
    for _ in range(2):
        breaker.failed()
    assert breaker.seconds_to_wait() == 0.0
    breaker.failed()
    assert breaker.seconds_to_wait() == pytest.approx(1.0)
    clock.sleep(1.0)
    assert breaker.seconds_to_wait() == 0.0
    assert breaker.seconds_to_wait() > 0.0, "only one is let through"


def test_a_success_between_them_keeps_the_breaker_closed(clock: VirtualClock) -> None:
    breaker = Breaker(3, clock=clock)
    for _ in range(5):
        breaker.failed()
        breaker.failed()
        breaker.succeeded()
    assert breaker.seconds_to_wait() == 0.0
    assert breaker.failing_for() == 0.0


def test_an_open_breaker_waits_longer_each_time_and_closes_at_the_first_success(clock: VirtualClock) -> None:
    breaker = Breaker(1, first_seconds=1.0, longest_seconds=3.0, clock=clock)
    breaker.failed()
    pauses = []
    for _ in range(4):
        pauses.append(breaker.seconds_to_wait())
        clock.sleep(pauses[-1])
        assert breaker.seconds_to_wait() == 0.0
        breaker.failed()
    assert pauses == pytest.approx([1.0, 2.0, 3.0, 3.0])
    clock.sleep(3.0)
    assert breaker.seconds_to_wait() == 0.0
    breaker.succeeded()
    assert breaker.seconds_to_wait() == breaker.seconds_to_wait() == 0.0


def test_failures_of_what_was_under_way_do_not_lengthen_the_wait(clock: VirtualClock) -> None:
    breaker = Breaker(2, first_seconds=1.0, clock=clock)
    for _ in range(32):
        breaker.failed()
    assert breaker.seconds_to_wait() == pytest.approx(1.0)


def test_one_who_was_let_through_and_never_came_back_keeps_nobody_waiting_for_ever(clock: VirtualClock) -> None:
    breaker = Breaker(1, first_seconds=1.0, clock=clock)
    breaker.failed()
    clock.sleep(1.0)
    assert breaker.seconds_to_wait() == 0.0
    clock.sleep(breaker.seconds_to_wait())
    assert breaker.seconds_to_wait() == 0.0


def test_an_answer_that_is_no_success_closes_the_breaker_too(clock: VirtualClock) -> None:
    shared = retries(clock)
    for _ in range(FAILURES_TO_OPEN):
        shared.breaker.failed()
    act, _ = failing(1, MissingError)
    with pytest.raises(MissingError):
        shared.run(act)
    assert shared.breaker.seconds_to_wait() == 0.0


def test_a_place_that_only_fails_is_given_up_by_all_with_what_it_said_last(clock: VirtualClock) -> None:
    """Many threads, one place that is down: they don't ask it in a crowd, and all are told in the end."""
    shared = retries(clock)
    lock, calls, errors = threading.Lock(), [], []

    def act() -> None:
        with lock:
            calls.append(clock.now)
        raise BusyError("the store is down")

    def run() -> None:
        try:
            shared.run(act)
        except BusyError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(errors) == 32
    assert all("the store is down" in error for error in errors)
    assert len(calls) < 32 * ATTEMPTS


def test_waiting_for_a_place_ends_after_its_patience(clock: VirtualClock) -> None:
    shared = retries(clock)
    for _ in range(FAILURES_TO_OPEN):
        shared.breaker.failed()
    clock.sleep(PATIENCE_SECONDS + 1)
    shared.breaker.seconds_to_wait()  # another one is asking
    with pytest.raises(BusyError, match="for 60 s"):
        shared.wait_for_turn()
