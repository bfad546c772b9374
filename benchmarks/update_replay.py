"""U13: are all ranks alike, bit by bit, after each merge, and does a phase done once more by its log end alike?

Training changes its mode twice and has momentum and BatchNorm. The replay is run on ranks of other speeds.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

from benchmarks.figures import Measure, begin, report, say
from benchmarks.updating.digits import digits
from benchmarks.updating.paced import Speeds, alike, normalised
from benchmarks.updating.phases import Record, Settings
from benchmarks.updating.ranks import RANKS, in_ranks
from benchmarks.updating.real import train_ours
from tasks.training.trainee import Trainee

ALIKE = Measure("U13.a", "rounds after which ranks differ in any bit", "rounds", "== 0")
REPLAY = Measure("U13.b", "replays of logged plans that end with another hash", "replays", "== 0")

SEEDS = range(3)
PERIOD_SECONDS = 2.0
SPEEDS = Speeds(((1.0, 1.0, 1.0, 5.0), (5.0,) * 4, (1.0, 1.0, 1.0, 5.0)), PERIOD_SECONDS)
LEARNING_RATE, MOMENTUM = 0.05, 0.9


@dataclass(frozen=True)
class Phase:
    """A training, and its replay. `differing_rounds` are those after which the ranks were not alike."""

    rounds: int
    changes: list[str]
    differing_rounds: list[int]
    hash: str
    hash_of_replay: str


def main() -> None:
    begin(ALIKE, REPLAY)
    phases: list[Phase] = in_ranks(take_turns)[0]
    told = [asdict(phase) for phase in phases]
    report(ALIKE.figure(sum(len(phase.differing_rounds) for phase in phases), phases=told))
    report(REPLAY.figure(sum(phase.hash != phase.hash_of_replay for phase in phases), phases=told))


def take_turns(rank: int, _ranks: int) -> list[Phase]:
    found: list[Phase] = []
    settings = Settings(3 * PERIOD_SECONDS, "auto", LEARNING_RATE, MOMENTUM, evaluate_every_seconds=1.0)
    for seed in SEEDS:
        differing: list[int] = []

        def look(trainee: Trainee, record: Record, differing: list[int] = differing) -> None:
            hashes: list[str] = [""] * RANKS
            # BatchNorm's statistics of synchronous steps stay a rank's own until the next evaluation.
            dist.all_gather_object(hashes, hash_of(trainee, buffers=record.rounds[-1].mode == "asynchronous"))
            if len(set(hashes)) > 1:
                differing.append(len(record.rounds))

        record, trainee = train_ours(rank, settings, SPEEDS, digits(seed), seed, look=look, inner=normalised)
        log = [record.log]
        dist.broadcast_object_list(log)
        again = train_ours(rank, settings, alike(RANKS), digits(seed), seed, replay=log[0], inner=normalised)[1]
        hashes = [hash_of(each, buffers=True) for each in (trainee, again)]
        found.append(Phase(len(record.rounds), record.changes, differing, *hashes))
        if rank == 0:
            say(f"seed {seed}: {found[-1]}")
    return found


def hash_of(trainee: Trainee, buffers: bool) -> str:
    """Of parameters and optimizer state, and of the buffers too."""
    tensors = [*trainee.model.parameters(), *(trainee.model.buffers() if buffers else ())]
    for state in trainee.optimizer.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(tensor.detach().numpy().tobytes())
    return hashed.hexdigest()[:16]


if __name__ == "__main__":
    main()
