"""Where a phase stands, through a checkpoint and back."""

from __future__ import annotations

from tasks.decisions.gradient_coefficients import BestAccuracy
from tasks.decisions.loss_scale import LossScale
from tasks.decisions.noise_scale import NoiseSums
from tasks.training.progress import Progress


def test_all_of_it_comes_back_from_plain_values() -> None:
    progress = Progress(
        12.5,
        steps=3,
        epoch=2,
        position=90,
        skipped=((10, 20), (40, 44)),
        mode="asynchronous",
        best=BestAccuracy(0.5, 0.6),
        noise=NoiseSums(1, 2, 3, 4, 5),
        loss_scale=LossScale(1024.0, 7),
        workers=4,
        is_over=True,
    )
    assert Progress.from_plain(progress.plain()) == progress


def test_what_is_needed_from_on_is_what_was_skipped_or_else_the_position() -> None:
    for skipped in ((), ((10, 20), (40, 44))):
        progress = Progress(1.0, position=90, skipped=skipped)
        assert progress.first_left == progress.cursor(100).first_left == (10 if skipped else 90)
