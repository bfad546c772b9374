"""What a pass weighs: what its loss's mean divides by, known or told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.training.denominators import denominators

LABELS = torch.tensor([0, 1, 2, -100, 2, -100])


def test_a_loss_that_is_not_known_is_a_mean_over_samples() -> None:
    assert denominators(nn.functional.mse_loss, LABELS, [4, 2]) == [4.0, 2.0]
    assert denominators(nn.MSELoss(), LABELS, [1, 5]) == [1.0, 5.0]


def test_cross_entropy_divides_by_its_valid_targets() -> None:
    assert denominators(nn.functional.cross_entropy, LABELS, [3, 1, 2]) == [3.0, 0.0, 1.0]
    assert denominators(nn.CrossEntropyLoss(ignore_index=2), LABELS.abs() % 100, [3, 3]) == [2.0, 2.0]
    assert denominators(nn.functional.nll_loss, LABELS, [6]) == [4.0]


def test_class_weights_are_added_up() -> None:
    weights = torch.tensor([1.0, 10.0, 100.0])
    assert denominators(nn.CrossEntropyLoss(weight=weights), LABELS, [3, 3]) == [111.0, 100.0]
    assert denominators(nn.NLLLoss(weight=weights, ignore_index=2), LABELS[:3], [3]) == [11.0]


def test_every_target_of_a_sequence_counts() -> None:
    assert denominators(nn.CrossEntropyLoss(), torch.tensor([[0, -100, 1], [2, 2, 2]]), [1, 1]) == [2.0, 3.0]


def test_probabilities_of_classes_are_all_valid() -> None:
    assert denominators(nn.CrossEntropyLoss(), torch.full((3, 4), 0.25), [2, 1]) == [2.0, 1.0]


class Told(nn.Module):
    def forward(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return (outputs[:, 0] * labels).sum() / labels.sum()

    def denominator(self, labels: torch.Tensor) -> torch.Tensor:
        return labels.sum()


def test_a_loss_says_itself_what_it_divides_by() -> None:
    assert denominators(Told(), torch.tensor([1.0, 2.0, 3.0]), [2, 1]) == [3.0, 3.0]


def test_a_denominator_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"denominator\(labels\) gives -1.0 for 1 labels"):
        denominators(Told(), torch.tensor([-1.0]), [1])
    with pytest.raises(ValueError, match="gives nan for 2 labels"):
        denominators(Told(), torch.tensor([float("nan"), 1.0]), [2])


def test_no_pass_has_no_weight() -> None:
    assert denominators(nn.functional.cross_entropy, LABELS[:0], []) == []
