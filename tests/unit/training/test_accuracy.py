"""Each sample is counted once; what can't be judged never counts as right."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from tasks.training.accuracy import accuracy

CPU = torch.device("cpu")


class Echo(nn.Module):
    """Gives its inputs as outputs."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


def one_hot(*classes: int) -> torch.Tensor:
    return nn.functional.one_hot(torch.tensor(classes), 3).float()


def test_it_is_the_share_of_right_samples_over_blocks_of_any_size() -> None:
    blocks = [
        (one_hot(0, 1, 2, 2), torch.tensor([0, 1, 2, 1])),
        (one_hot(1), torch.tensor([0])),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)),
        (one_hot(2, 0), torch.tensor([2, 0])),
    ]
    assert accuracy(Echo(), blocks) == 5 / 7


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_outputs_that_are_not_finite_count_as_wrong(bad: float) -> None:
    outputs = one_hot(0, 0, 0)
    outputs[1, 0] = bad
    assert accuracy(Echo(), [(outputs, torch.zeros(3, dtype=torch.int64))]) == 2 / 3


def test_a_class_ruled_out_by_minus_infinity_is_no_fault() -> None:
    outputs = one_hot(0, 0)
    outputs[:, 2] = -math.inf
    assert accuracy(Echo(), [(outputs, torch.zeros(2, dtype=torch.int64))]) == 1.0


def test_outputs_that_are_all_bad_are_no_sample_right() -> None:
    blocks = [(torch.full((4, 3), math.nan), torch.zeros(4, dtype=torch.int64))]
    assert accuracy(Echo(), blocks) == 0.0


def test_without_a_sample_it_is_nan() -> None:
    assert math.isnan(accuracy(Echo(), []))


def test_a_label_of_two_classes_and_of_one_can_be_judged() -> None:
    assert accuracy(Echo(), [(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))]) == 0.5
    assert accuracy(Echo(), [(torch.tensor([[1.0], [1.0]]), torch.tensor([0, 0]))]) == 1.0


def test_the_model_is_judged_in_evaluation_mode_and_every_layer_is_put_back() -> None:
    """A layer that the user has frozen stays frozen."""
    seen: list[bool] = []

    class Watching(Echo):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.BatchNorm1d(3).eval()

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            seen.append(self.training)
            return features

    model = Watching()
    accuracy(model, [(one_hot(0), torch.tensor([0]))])
    assert seen == [False]
    assert (model.training, model.frozen.training) == (True, False)


def test_the_modes_are_put_back_after_a_failure_too() -> None:
    model = nn.Linear(5, 3)
    with pytest.raises(RuntimeError):
        accuracy(model, [(one_hot(0), torch.tensor([0]))])
    assert model.training
