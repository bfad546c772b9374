"""What lies between the gradients of a step and the weights: loss scale, clipping and the learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from tasks.config import Optimizer, Params
from tasks.decisions.learning_rate import RateSchedule
from tasks.decisions.loss_scale import BACKOFF, FIRST_SCALE, LossScale
from tasks.training.precision import PrecisionName

# Rprop knows its rate in the first step only, ASGD's comes a step late, Adafactor's is a bound that falls by itself.
NOT_BY_THE_RATE = (torch.optim.Rprop, torch.optim.ASGD, torch.optim.Adafactor)
# The scale grows where all ranks agree on it, and never by itself.
NEVER = 2**31 - 1


@dataclass(frozen=True)
class UpdateRule:
    """The settings of an update besides its optimizer; `clip_norm` bounds the norm of the whole gradient."""

    schedule: RateSchedule = field(default_factory=RateSchedule)
    clip_norm: float | None = None
    precision: PrecisionName = "float32"


def rule_of(params: Params) -> UpdateRule:
    """The settings of an update as in params.yaml."""
    return UpdateRule(schedule_of(params.optimizer), params.optimizer.clip_norm, params.cluster.precision)


def schedule_of(settings: Optimizer) -> RateSchedule:
    """The learning rate's schedule as in params.yaml."""
    return RateSchedule(settings.schedule, settings.warmup_samples, settings.horizon_samples, settings.final_factor)


class Update:
    """Applies gradients, of losses that were multiplied with `loss_scale`.

    `samples` is how many samples all ranks have taken since training began, as far as all of them know: it is set when
    a round begins, and synchronous steps count on.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, rule: UpdateRule, device: torch.device) -> None:
        self.optimizer = optimizer
        self.rule = rule
        self.samples = 0
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self.scaler = torch.amp.GradScaler(
            device.type, FIRST_SCALE, backoff_factor=BACKOFF, growth_interval=NEVER, enabled=rule.precision == "float16"
        )
        self.scaler.scale(torch.ones((), device=device))  # which is when it makes its own tensors

    @property
    def loss_scale(self) -> float:
        """1 where the precision needs none. On a device this waits for it."""
        return self.scaler.get_scale()

    def scale_by(self, scale: LossScale) -> None:
        """Go on with the scale that all ranks have agreed on."""
        if self.scaler.is_enabled():
            self.scaler.update(scale.scale)

    def agree(self, before: LossScale, smallest: float, steps: int, overflowed_steps: int) -> LossScale:
        """The scale of all ranks after a round, for this rank too; the arguments are those of `LossScale.after`."""
        if not self.scaler.is_enabled():
            return before
        found = before.after(smallest, steps, overflowed_steps)
        self.scale_by(found)
        return found

    def unscale(self) -> None:
        """Make the gradients those of the loss as it is. Once before each `apply`."""
        self.scaler.unscale_(self.optimizer)

    def apply(self, coefficient: float) -> bool:
        """One update with the gradients, the learning rate multiplied with `coefficient` and the schedule's factor.

        Returns whether it was made: with gradients that overflowed nothing is changed, but the loss scale.
        """
        before = self.scaler.get_scale()
        if self.rule.clip_norm is not None:
            clip(self.parameters, self.rule.clip_norm)
        with lowered_rate(self.optimizer, coefficient * self.rule.schedule.factor(self.samples)):
            self.scaler.step(self.optimizer)
        self.scaler.update()
        return self.scaler.get_scale() == before


def clip(parameters: list[torch.Tensor], most: float) -> None:
    """What `torch.nn.utils.clip_grad_norm_` does, to sparse gradients too."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and parameter.grad.is_sparse:
            parameter.grad = parameter.grad.coalesce()  # values at one place count as their sum
        if parameter.grad is not None:
            gradients.append(parameter.grad.values() if parameter.grad.is_sparse else parameter.grad)
    norm = torch.nn.utils.get_total_norm(gradients)
    torch.nn.utils.clip_grads_with_norm_(parameters, most, norm)


@contextmanager
def lowered_rate(optimizer: torch.optim.Optimizer, coefficient: float) -> Iterator[None]:
    """Updates move the parameters `coefficient` times as far, for as long as the context lasts.

    The learning rates are multiplied with it; where an optimizer doesn't go by its rate, what it did is cut down.
    """
    if isinstance(optimizer, NOT_BY_THE_RATE):
        yield from _cut_down(optimizer, coefficient)
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        group["lr"] = group["lr"] * coefficient
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def _cut_down(optimizer: torch.optim.Optimizer, coefficient: float) -> Iterator[None]:
    """Takes another copy of the parameters, where there is something to cut."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    before = [] if coefficient == 1 else [parameter.detach().clone() for parameter in parameters]
    yield
    with torch.no_grad():
        for parameter, start in zip(parameters, before, strict=bool(before)):
            parameter.lerp_(start, 1 - coefficient)
