"""The gradient noise scale's sums, from the gradients of the passes that a step has anyway.

A hook on each parameter sees the gradient of a pass before it is added to those of the passes before, so that nothing
is kept but one norm a parameter and pass. Hooks are there in every tenth step only: the others pay nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from tasks.decisions.noise_scale import NoiseSums

# Of so many steps one is watched, the second of them: the first one of a process is unlike the others.
WATCHED_STEPS = 10
WATCHED = 1


class GradientNoise:
    """Chooses the steps that are watched. The count of joint steps is the same on every rank, and so is the choice."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.steps = {True: 0, False: 0}

    def next_step(self, together: bool) -> WatchedStep | None:
        """To be called once a step; `together`: it is that of all ranks. None for a step that isn't watched."""
        count = self.steps[together]
        self.steps[together] = count + 1
        return WatchedStep(self.parameters) if count % WATCHED_STEPS == WATCHED else None


class WatchedStep:
    """The gradients of one step's passes, of which their norms are kept."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.device = parameters[0].device
        self.divisor: float | None = None
        self.passes: list[tuple[float, torch.Tensor]] = []
        self.seen: dict[int, torch.Tensor] = {}
        self.is_clear = True

    @contextmanager
    def watched(self, divisor: float) -> Iterator[Callable[[float], None]]:
        """An attempt of the step, in which the mean of a pass of some weight counts weight / `divisor`.

        Yields what is to be called after each pass, with its weight.
        """
        self.divisor, self.is_clear = divisor, True
        self.passes.clear()
        self.seen.clear()
        hooks = [
            parameter.register_hook(partial(self._see, number))  # type: ignore[no-untyped-call]
            for number, parameter in enumerate(self.parameters)
        ]
        try:
            yield self._end_pass
        finally:
            for hook in hooks:
                hook.remove()

    def sums(self, samples: int, weight: float, reports: bool) -> NoiseSums:
        """This rank's share of the step's sums; those of all ranks together are the step's.

        `samples` and `weight` are those of the whole batch, whose mean gradient the parameters hold by now; the rank
        that `reports` counts it for all. Where targets or classes have weights, these stand for samples. Not a number
        where a parameter had several gradients in one pass, whose sum nobody has seen; nothing where no attempt was
        watched.
        """
        if self.divisor is None:
            return NoiseSums()
        norms = [norm for _, norm in self.passes]
        if reports:
            norms.append(self._whole(_norm(each.grad) for each in self.parameters if each.grad is not None))
        # Read all at once: each reading waits for the device.
        squares = [norm * norm for norm in torch.stack(norms).tolist()] if norms else []
        factor = samples / weight * self.divisor**2
        spread = sum(factor / share * square for (share, _), square in zip(self.passes, squares, strict=False))
        found = NoiseSums(spread if self.is_clear else math.nan, len(self.passes))
        if reports:
            whole = squares[-1]
            found = found.plus(NoiseSums(-samples * whole, -1, whole, 1 / samples, 1))
        return found

    def _see(self, number: int, gradient: torch.Tensor) -> None:
        self.is_clear &= number not in self.seen
        self.seen[number] = _norm(gradient)

    def _end_pass(self, weight: float) -> None:
        self.passes.append((weight, self._whole(self.seen.values())))
        self.seen.clear()

    def _whole(self, norms: Iterable[torch.Tensor]) -> torch.Tensor:
        """The norm of all gradients together."""
        found = list(norms)
        return torch.linalg.vector_norm(torch.stack(found)) if found else torch.zeros((), device=self.device)


def _norm(gradient: torch.Tensor) -> torch.Tensor:
    """Without dimensions, in float32 at least; nothing waits for it."""
    dense = gradient.coalesce().values() if gradient.is_sparse else gradient
    dtype = torch.promote_types(dense.dtype, torch.float32)
    norm: torch.Tensor = torch.linalg.vector_norm(dense.detach(), dtype=dtype)
    return norm
