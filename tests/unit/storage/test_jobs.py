from __future__ import annotations

import numpy as np

from tasks.decisions.moving import plan_moving
from tasks.storage.jobs import HURRIED_READS, HURRIED_SHARDS, Job, Jobs
from tasks.storage.look_ahead import LookAhead
from tasks.storage.order import Orders
from tasks.storage.ring import Ring
from tasks.storage.samples import Samples
from tasks.storage.validation_rows import ValidationRows

ROWS = 10


class Desk:
    """Jobs of a set of equal shards, given out one by one, and training that goes through its epochs."""

    def __init__(self, shards: int, look_ahead: int, validation: int = 0) -> None:
        counts = [ROWS] * shards
        self.plan = plan_moving(counts, look_ahead)
        self.orders = Orders(counts, seed=7)
        self.ring = Ring(self.plan.ring_rows, 1, "float32", shards)
        rows = [np.arange(validation)] * shards
        self.validation = ValidationRows(rows, row_bytes=1, keep_bytes=3 * validation, ahead=look_ahead)
        self.look_ahead = LookAhead(self.orders, counts, self.plan)
        self.jobs = Jobs(self.ring, self.look_ahead, counts, self.plan, self.validation, 2)
        self.look_from(0, 0)

    def look_from(self, epoch: int, position: int) -> None:
        self.look_ahead.move_to(epoch, *self.orders.of(epoch).in_use(position))
        self.jobs.forget_unwanted()

    def all_now(self) -> list[Job]:
        """All jobs that may be under way at a time."""
        found = []
        while (job := self.jobs.next()) is not None:
            found.append(job)
        return found

    def finish(self, job: Job) -> None:
        if job.kind == "read":
            self.jobs.has_read(job.shard, b"")
        elif job.kind == "decode":
            self.jobs.has_decoded(job.shard)
        else:
            self.validation.take(job.shard, Samples(np.zeros((1, 1)), np.zeros(1, np.int64)))
            self.jobs.has_validated(job.shard)

    def settle(self) -> list[Job]:
        """Do all that there is to do."""
        done = []
        while found := self.all_now():
            for job in found:
                self.finish(job)
            done += found
        return done


def test_the_first_shards_are_read_in_a_hurry_and_in_the_order_of_their_need() -> None:
    desk = Desk(40, look_ahead=4)
    first = desk.orders.of(0).sequence[:HURRIED_READS]
    assert desk.all_now() == [Job("read", shard, hurry=True, turn=turn) for turn, shard in enumerate(first, 1)]


def test_the_next_ones_have_the_link_to_themselves_until_the_lead_is_there() -> None:
    desk = Desk(40, look_ahead=8)
    running: list[Job] = []
    hurried, most = [], 0
    while True:
        running += desk.all_now()
        reads = [job for job in running if job.kind == "read"]
        if any(job.hurry for job in reads):
            assert len(reads) <= HURRIED_READS
        most = max(most, len(reads))
        if not running:
            break
        job = running.pop(0)
        hurried += [job.shard] * job.hurry
        desk.finish(job)
    assert hurried == list(desk.orders.of(0).sequence[: 1 + HURRIED_SHARDS])
    assert most == desk.plan.in_flight_shards - 1


def test_ring_and_window_are_filled_and_then_nothing_is_done_until_training_goes_on() -> None:
    desk = Desk(64, look_ahead=4)
    done = desk.settle()
    sequence = desk.orders.of(0).sequence
    assert desk.ring.shards == list(sequence[:12])
    assert [job.shard for job in done if job.kind == "read"] == list(sequence[:16])
    desk.look_from(0, 30 * ROWS)
    first, stop = desk.orders.of(0).in_use(30 * ROWS)
    desk.settle()
    assert set(sequence[first:stop]) <= set(desk.ring.shards)


def test_bounds_hold_at_every_moment_of_an_epoch_and_each_shard_is_read_once() -> None:
    desk = Desk(64, look_ahead=3)
    plan, random, running = desk.plan, np.random.default_rng(0), []
    read: list[int] = []
    position = 0
    while position < 64 * ROWS:
        new = desk.all_now()
        running += new
        read += [job.shard for job in new if job.kind == "read"]
        assert len(running) <= plan.in_flight_shards + plan.window_shards
        assert sum(job.kind == "read" for job in running) < plan.in_flight_shards
        assert desk.ring.free_rows >= 0
        if running:
            desk.finish(running.pop(int(random.integers(len(running)))))
        shards, _ = desk.orders.of(0).slice(position, position + 1)
        if desk.ring.holds(int(shards[0])):
            position += 1
            desk.look_from(*((0, position) if position < 64 * ROWS else (1, 0)))
    assert len(set(read)) == 64
    assert len(read) <= 64 + 12 + 3  # those of the next epoch that have room


def test_going_back_reads_again_what_is_gone_and_drops_what_lay_ready() -> None:
    desk = Desk(64, look_ahead=4)
    sequence = desk.orders.of(0).sequence
    desk.look_from(0, 40 * ROWS)
    desk.settle()
    desk.look_from(0, 0)
    desk.settle()
    assert set(desk.ring.shards) == set(sequence[:12])
    assert desk.jobs.shards_held == 16


def test_a_read_that_failed_is_not_tried_again_by_itself() -> None:
    desk = Desk(40, look_ahead=4)
    first, *others = desk.all_now()
    desk.jobs.has_failed(first, OSError("gone"))
    for other in others:
        desk.finish(other)
    assert first.shard not in [job.shard for job in desk.settle()]
    assert not desk.jobs.failures[first.shard].was_awaited
    desk.jobs.try_again(first.shard)
    assert first.shard in [job.shard for job in desk.settle() if job.kind == "read"]


def test_validation_rows_that_memory_has_no_room_for_are_read_in_every_round_and_the_others_once() -> None:
    desk = Desk(40, look_ahead=4, validation=2)
    kept = [job.shard for job in desk.settle() if job.kind == "validate"]
    assert sorted(kept) == [0, 1, 2]
    for _ in range(2):
        number = desk.validation.begin_round()
        read = []
        for shard in range(40):
            read += [job.shard for job in desk.settle() if job.kind == "validate"]
            assert desk.validation.get(shard) is not None
            desk.validation.used(shard)
        desk.validation.end_round(number)
        assert read == list(range(3, 40))


def test_no_more_are_decoded_at_a_time_than_there_are_decoders() -> None:
    desk = Desk(64, look_ahead=8)
    running: list[Job] = []
    most = 0
    while running or (running := desk.all_now()):
        most = max(most, sum(job.kind == "decode" for job in running))
        # Reads end before decoding does, so that as much as can be lies ready.
        running.sort(key=lambda job: job.kind == "decode")
        desk.finish(running.pop(0))
        running += desk.all_now()
    assert most == 2


def test_a_hurried_read_has_a_later_turn_than_the_one_before_and_others_have_none() -> None:
    desk = Desk(64, look_ahead=8)
    reads = [job for job in desk.settle() if job.kind == "read"]
    turns = [job.turn for job in reads if job.turn is not None]
    assert turns == sorted(set(turns))
    assert [job.turn is not None for job in reads] == [job.hurry for job in reads]


def test_training_is_in_a_hurry_until_the_lead_is_there_and_when_it_waits() -> None:
    desk = Desk(64, look_ahead=8)
    jobs = desk.all_now()
    assert desk.jobs.is_in_a_hurry
    for job in jobs:
        desk.finish(job)
    desk.settle()
    assert not desk.jobs.is_in_a_hurry
    desk.jobs.awaited = 5
    assert desk.jobs.is_in_a_hurry
