"""Claims B1 and B5: the accumulated gradient is exactly that of the whole batch, however it is split."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.training.step import accumulate, inexact_layers

mean_loss = nn.functional.cross_entropy


def samples(count: int, width: int = 5, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    features = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return features, torch.randint(classes, (count,), generator=generator)


def linear() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(5, 3, dtype=torch.float64)


def gradients(model: nn.Module) -> torch.Tensor:
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return torch.cat([grad.flatten() for grad in grads])


def whole(features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    model = linear()
    torch.autograd.backward(mean_loss(model(features), labels))
    return gradients(model)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(("count", "micro"), [(10, 4), (10, 10), (10, 1), (37, 16), (97, 13)])
def test_the_sum_over_passes_is_the_gradient_of_the_whole_batch(count: int, micro: int) -> None:
    features, labels = samples(count)
    model = linear()
    loss = accumulate(model, model, mean_loss, features, labels, part_sizes(count, micro), count)
    assert relative_error(gradients(model), whole(features, labels)) < 1e-12
    assert loss == pytest.approx(mean_loss(linear()(features), labels).item(), rel=1e-12)


def test_a_short_last_pass_counts_by_its_samples() -> None:
    features, labels = samples(10)
    model = linear()
    accumulate(model, model, mean_loss, features, labels, [4, 4, 2], 10)
    assert relative_error(gradients(model), whole(features, labels)) < 1e-12


def test_weighting_every_pass_alike_would_be_wrong() -> None:
    """The other side of the test before: 4, 4 and 2 samples as thirds are far off."""
    features, labels = samples(10)
    model = linear()
    for start, stop in [(0, 4), (4, 8), (8, 10)]:
        torch.autograd.backward(mean_loss(model(features[start:stop]), labels[start:stop]) / 3)
    assert relative_error(gradients(model), whole(features, labels)) > 1e-2


def test_an_epoch_of_37_samples_in_batches_of_16_is_three_exact_steps() -> None:
    features, labels = samples(37)
    split, unsplit = linear(), linear()
    steps = 0
    for start in range(0, 37, 16):
        part, wanted = features[start : start + 16], labels[start : start + 16]
        for model, micro in ((split, 4), (unsplit, 16)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            optimizer.zero_grad()
            accumulate(model, model, mean_loss, part, wanted, part_sizes(len(part), micro), len(part))
            optimizer.step()
        steps += 1
    assert steps == 3
    assert len(part) == 5
    assert relative_error(split.weight.detach(), unsplit.weight.detach()) < 1e-12


def test_parts_of_unequal_ranks_average_to_the_gradient_of_the_batch() -> None:
    """Each rank's gradient is scaled by the number of ranks, and the mean over ranks is taken, as DDP does."""
    features, labels = samples(7)
    total = torch.zeros(18, dtype=torch.float64)
    for start, stop in [(0, 3), (3, 5), (5, 7), (7, 7)]:
        model = linear()
        accumulate(
            model, model, mean_loss, features[start:stop], labels[start:stop], part_sizes(stop - start, 2), 7, 4.0
        )
        total += gradients(model) / 4
    assert relative_error(total, whole(features, labels)) < 1e-12


def test_only_the_last_pass_goes_through_the_wrapper() -> None:
    seen: list[tuple[str, int]] = []
    model = linear()

    class Recorded(nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name
            self.inner = model

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            seen.append((self.name, len(features)))
            outputs: torch.Tensor = self.inner(features)
            return outputs

    features, labels = samples(5)
    accumulate(Recorded("bare"), Recorded("wrapper"), mean_loss, features, labels, [2, 2, 1], 5)
    assert seen == [("bare", 2), ("bare", 2), ("wrapper", 1)]


def test_a_part_without_a_sample_gives_every_parameter_a_gradient_of_zero() -> None:
    features, labels = samples(0)
    model = linear()
    assert accumulate(model, model, mean_loss, features, labels, [], 7) == 0.0
    assert len(gradients(model)) == 18
    assert not gradients(model).any()


def test_blank_samples_pass_a_batch_norm_and_leave_no_trace_in_it() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    features, labels = samples(0)
    accumulate(model, model, mean_loss, features, labels, [], 7)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_layers_that_see_the_batch_are_named_only_while_they_do() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.Sequential(nn.BatchNorm1d(2)))
    assert inexact_layers(model) == ("1 (BatchNorm2d)", "3.0 (BatchNorm1d)")
    model[1].eval()
    assert inexact_layers(model) == ("3.0 (BatchNorm1d)",)
    assert inexact_layers(nn.BatchNorm1d(2)) == ("model (BatchNorm1d)",)
