"""A step replayed from small recordings is the step that is recorded at any size, byte for byte."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.training.recording import Kind, Recording, Segment, record_step
from tasks.training.replay import NotAlikeError, Replay, are_alike
from tasks.training.twins import has_twin_passes
from tests.support.zoo import Transformer, WithOwnFunction, convolutional, images, perceptron, resnet20, rows, texts

Batch = Callable[[int], tuple[Any, Any]]
OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "foreach": True}),
}


def recorded(model: Callable[[], nn.Module], batch: Batch, samples: int, optimizer: str) -> Recording:
    kind, arguments = OPTIMIZERS[optimizer]
    with FakeTensorMode():
        made = model()
        its: Any = kind(made.parameters(), **arguments)
        return record_step(made, its, nn.functional.cross_entropy, batch, samples)


@pytest.mark.parametrize(
    ("model", "batch", "optimizer"),
    [
        *(
            (model, batch, optimizer)
            for optimizer in OPTIMIZERS
            for model, batch in ((perceptron, rows), (convolutional, images))
        ),
        *((WithOwnFunction, rows, optimizer) for optimizer in OPTIMIZERS),
        (resnet20, images, "momentum"),
        (Transformer, texts, "SGD"),
        (lambda: Transformer(checkpointed=True), texts, "AdamW"),
    ],
)
def test_a_replay_is_the_step_itself(model: Callable[[], nn.Module], batch: Batch, optimizer: str) -> None:
    small = [recorded(model, batch, samples, optimizer) for samples in (4, 7, 12)]
    replay = Replay(small, part=0)
    for samples in (64, 512):
        itself = Replay([recorded(model, batch, samples, optimizer)], part=0)
        for accumulating in (False, True):
            assert replay.peak(samples, accumulating) == itself.peak(samples, accumulating)
    assert replay.interacting == ()


def made(samples: int, sizes: list[int], kinds: list[Kind], **segments: tuple[int, ...]) -> Recording:
    every: dict[Segment, tuple[int, ...]] = dict.fromkeys(
        ("setup", "single", "accumulating", "first_update", "update"), ()
    )
    every |= segments  # type: ignore[arg-type]
    return Recording(samples, tuple(sizes), tuple(kinds), tuple(f"m{n}" for n in range(len(sizes))), every)


def passes(recording: Recording) -> list[int]:
    return [event for events in recording.segments.values() for event in events if event >= 0]


def small_step(samples: int, of_activation: int | None = None) -> Recording:
    """Parameters 100, inputs 2 a sample, an activation of 10 a sample, gradients 100, state 50."""
    activation = 10 * samples if of_activation is None else of_activation
    return made(
        samples,
        [100, 2 * samples, activation, 100, 100, 50, 30],
        ["parameters", "inputs", "activations", "gradients", "temporaries", "optimizer_state", "temporaries"],
        setup=(0, 1),
        single=(2, 3, ~2),
        accumulating=(4, ~4),
        first_update=(5,),
        update=(6, ~6),
    )


def test_a_peak_is_the_largest_of_all_phases_with_what_is_alive_then() -> None:
    replay = Replay([small_step(4), small_step(7)], part=1)
    few = replay.peak(1, False)
    # 100 parameters, 2 inputs, 100 gradients, 50 state and 30 in the second update.
    assert (few.bytes, few.module) == (282, "m6")
    assert few.breakdown["optimizer_state"] == 50
    many = replay.peak(100, False)
    # In the second step, whose pass finds the optimizer's state.
    assert (many.bytes, many.module) == (100 + 200 + 50 + 1000 + 100, "m3")
    assert many.breakdown | {"activations": 1000, "gradients": 100, "parameters": 100} == many.breakdown
    # Gradients of an earlier pass, and those of this one until they are added: 100 + 2 + 50 + 100 + 100.
    assert replay.peak(1, True).bytes == 352


def test_passes_that_are_twins_are_recorded_once_at_the_other_sizes() -> None:
    full = [recorded(perceptron, rows, samples, "AdamW") for samples in (4, 7, 12)]
    assert has_twin_passes(full[0])
    single = [replace(one, segments={name: one.segments[name] for name in ("setup", "single")}) for one in full[1:]]
    cut = [replace(one, sizes=one.sizes[: len(passes(one))], kinds=one.kinds[: len(passes(one))]) for one in single]
    short = Replay([full[0], *cut], part=0)
    for accumulating in (False, True):
        assert short.peak(500, accumulating) == Replay(full, part=0).peak(500, accumulating)


def test_a_pass_that_copies_its_first_gradients_has_no_twin() -> None:
    assert not has_twin_passes(small_step(4))


def test_inputs_are_those_of_the_whole_part() -> None:
    few, many = (Replay([small_step(4), small_step(7)], part).peak(10, False).bytes for part in (10, 1000))
    assert many - few == 2 * 990
    one, other = (Replay([small_step(4)], part).peak(4, False).bytes for part in (4, 1000))
    assert other - one == 2 * 996


def test_the_peak_is_not_on_the_line_through_two_of_its_points() -> None:
    replay = Replay([small_step(4), small_step(7)], part=0)
    near, far, beyond = (replay.peak(samples, False).bytes for samples in (1, 2, 500))
    assert beyond > 2 * (near + (far - near) * 499)


def test_deaths_that_come_at_once_have_no_order() -> None:
    original = recorded(perceptron, rows, 4, "SGD")
    numbers = random.Random(1)

    def shuffled(events: tuple[int, ...]) -> tuple[int, ...]:
        mixed: list[int] = []
        for is_death, run in groupby(events, key=lambda event: event < 0):
            together = list(run)
            mixed += numbers.sample(together, len(together)) if is_death else together
        return tuple(mixed)

    mixed = {segment: shuffled(events) for segment, events in original.segments.items()}
    assert mixed != original.segments
    assert are_alike(original, replace(original, segments=mixed))


@pytest.mark.parametrize("change", ["events", "kinds", "modules"])
def test_recordings_of_other_operations_are_not_alike(change: str) -> None:
    one, other = small_step(4), small_step(7)
    if change == "events":
        other = replace(other, segments=other.segments | {"single": (2, ~2, 3)})
    elif change == "kinds":
        other = replace(other, kinds=("parameters", *other.kinds[:-1]))
    else:
        other = replace(other, modules=("elsewhere", *other.modules[1:]))
    with pytest.raises(NotAlikeError):
        Replay([one, other], part=0)


def test_a_storage_that_grows_with_the_square_is_a_parabola_and_named() -> None:
    replay = Replay([small_step(n, of_activation=4 * n * n + 3 * n + 8) for n in (4, 7, 12)], part=0)
    assert replay.interacting == ("m2",)
    assert replay.sizes(1000)[2] == 4_000_000 + 3_000 + 8


@pytest.mark.parametrize("step", [8, 16, 64])
def test_sizes_that_are_rounded_up_are_no_interaction_and_err_on_the_safe_side(step: int) -> None:
    replay = Replay([small_step(n, of_activation=-(-n // step) * step * 10) for n in (4, 7, 12)], part=0)
    assert replay.interacting == ()
    if step < 12:
        assert replay.sizes(1000)[2] >= -(-1000 // step) * step * 10


def test_what_is_unlike_is_scaled_from_the_larger_recording() -> None:
    small = made(
        4, [100, 8, 40, 64], ["parameters", "inputs", "activations", "temporaries"], setup=(0, 1), single=(2, 3)
    )
    large = made(
        8,
        [100, 16, 70, 64, 9],
        ["parameters", "inputs", "activations", "temporaries", "temporaries"],
        setup=(0, 1),
        single=(2, 3, 4),
    )
    replay = Replay.of_unlike(small, large, part=0)
    assert replay.sizes(80) == [100, 160, 700, 64, 90]
    assert replay.sizes(2) == [100, 16, 70, 64, 9]
    assert replay.interacting == ()


def test_a_pass_that_is_left_out_leaves_nothing_behind() -> None:
    """Without a second pass the storages that die in it are still gone before the next step."""
    recording = made(
        1, [10, 5, 7], ["parameters", "temporaries", "temporaries"], setup=(0,), single=(1,), accumulating=(2, ~1)
    )
    replay = Replay([recording], part=0)
    assert replay.peak(1, False).bytes == 15
    assert replay.peak(1, True).bytes == 22
    for accumulating in (False, True):
        alive = [event.storage for event in replay.program(accumulating) if event.is_birth]
        dead = [event.storage for event in replay.program(accumulating) if not event.is_birth]
        assert sorted(alive) == sorted([*dead, 0])
