"""Optimizers whose later updates need not be run to be known: they do what the first does, on state that is there."""

from __future__ import annotations

from dataclasses import replace

from torch import optim

from tasks.training.recording import Recording

# A test runs two updates of each. Subclasses may do something else.
STEADY: tuple[type[optim.Optimizer], ...] = (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad)


def is_steady(optimizer: optim.Optimizer) -> bool:
    """Does its second update do what its first one does, except for making its state?"""
    hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    return type(optimizer) in STEADY and not hooks and "step" not in vars(optimizer)


def with_later_update(recording: Recording) -> Recording:
    """A recording that ends with the first update of a steady optimizer, and the second one: what stays of the first is
    there already."""
    events = recording.segments["first_update"]
    gone = {~event for event in events if event < 0}
    passing = [event for event in events if event in gone]
    numbers = {first: second for second, first in enumerate(passing, start=len(recording.sizes))}
    known = (event for event in events if (event if event >= 0 else ~event) in numbers)
    update = tuple(numbers[event] if event >= 0 else ~numbers[~event] for event in known)
    return replace(
        recording,
        sizes=(*recording.sizes, *(recording.sizes[number] for number in passing)),
        kinds=(*recording.kinds, *(recording.kinds[number] for number in passing)),
        modules=(*recording.modules, *(recording.modules[number] for number in passing)),
        segments=recording.segments | {"update": update},
    )
