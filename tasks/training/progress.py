"""All that the decisions of a phase depend on, as plain values that a checkpoint carries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tasks.decisions.gradient_coefficients import BestAccuracy
from tasks.decisions.loss_scale import LossScale
from tasks.decisions.noise_scale import NoiseSums
from tasks.records import UpdateMode
from tasks.training.cursor import Cursor, Range
from tasks.training.exchange import Shared
from tasks.training.rounds import Round


@dataclass
class Progress:
    """Where a phase stands. Every rank holds the same values.

    `steps` and `samples` count this phase; `earlier_steps` and `earlier_samples` those of the phases before, so that
    metrics go on along one axis, and the learning rate along one schedule. A window of asynchronous steps counts as the
    whole batches that its samples make. `skipped` are ranges before `position` of the epoch's order that nobody has
    taken. `left_seconds` is what is left of the budget. `micro_batch` is the plan's, or what a shortage of memory has
    left of it (0: not known yet); `skipped_steps` had no valid target and `overflowed_steps` gradients that float16
    can't hold; both are among the steps. `noise` tells of the gradients of the steps so far, the later ones more, and
    `noise_scale` (in samples) is what came of it at the last evaluation, if anything did. The last evaluation and
    checkpoint were at so many seconds of the budget, the checkpoint at `saved_at_clock_seconds` since 1970 and by so
    many `workers`. The phase `is_over` where nothing is left to do.
    """

    left_seconds: float
    steps: int = 0
    samples: int = 0
    earlier_steps: int = 0
    earlier_samples: int = 0
    rounds: int = 0
    epoch: int = 0
    position: int = 0
    skipped: tuple[Range, ...] = ()
    mode: UpdateMode = "synchronous"
    rounds_in_mode: int = 0
    slow_step_seconds: float | None = None
    slow_step_for: str = ""
    micro_batch: int = 0
    skipped_steps: int = 0
    overflowed_steps: int = 0
    loss_scale: LossScale = field(default_factory=LossScale)
    data_version: str = ""
    best: BestAccuracy = field(default_factory=BestAccuracy)
    accuracy: float | None = None
    noise: NoiseSums = field(default_factory=NoiseSums)
    noise_scale: float | None = None
    evaluated_at_seconds: float = 0.0
    saved_at_seconds: float = 0.0
    saved_at_clock_seconds: float = 0.0
    workers: int = 0
    is_over: bool = False
    bytes_from_store: int = 0
    bytes_from_nodes: int = 0
    stalled_seconds: float = 0.0
    stalled_by: dict[str, float] = field(default_factory=dict)

    @property
    def first_left(self) -> int:
        """No sample before this one of the epoch's order is needed any more."""
        return min([start for start, _ in self.skipped], default=self.position)

    def cursor(self, samples_per_epoch: int) -> Cursor:
        """Where the phase stands in the data."""
        return Cursor(samples_per_epoch, self.epoch, self.position, list(self.skipped))

    def add(self, done: Round, shared: Shared, cursor: Cursor) -> None:
        """One more round is over, and the data stands at `cursor`."""
        self.steps += done.steps
        self.samples += done.samples
        self.epoch, self.position, self.skipped = cursor.epoch, cursor.position, tuple(cursor.skipped)
        self.skipped_steps += shared.skipped_steps
        self.overflowed_steps += shared.overflowed_steps
        if shared.noise.is_finite:
            self.noise = self.noise.plus(shared.noise)
        self.rounds += 1
        self.rounds_in_mode += 1

    def plain(self) -> dict[str, Any]:
        return asdict(self) | {"noise": list(self.noise)}

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> Progress:
        known = {item.name for item in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        kept["best"] = BestAccuracy(**values["best"])
        kept["noise"] = NoiseSums(*values.get("noise", ()))
        kept["skipped"] = tuple((start, stop) for start, stop in values.get("skipped", ()))
        kept["loss_scale"] = LossScale(**values.get("loss_scale", {}))
        return cls(**kept)
