"""Claims B1 and B5: the accumulated gradient is exactly that of the whole batch, however it is split."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.training.batch_statistics import BatchStatistics
from tasks.training.denominators import Loss, denominators
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


def run(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    sizes: Sequence[int],
    denominator: float | None = None,
    loss: Loss = mean_loss,
) -> float:
    """The passes of a part, weighted by what the loss divides by. Its own weights add up to the denominator, if none
    is given."""
    weights = denominators(loss, labels, sizes)
    divisor = sum(weights) if denominator is None else denominator
    return accumulate(model, BatchStatistics(model), loss, features, labels, sizes, weights, divisor)


def whole(features: torch.Tensor, labels: torch.Tensor, loss: Loss = mean_loss) -> torch.Tensor:
    model = linear()
    torch.autograd.backward(loss(model(features), labels))
    return gradients(model)


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize(("count", "micro"), [(10, 4), (10, 10), (10, 1), (37, 16), (97, 13)])
def test_the_sum_over_passes_is_the_gradient_of_the_whole_batch(count: int, micro: int) -> None:
    features, labels = samples(count)
    model = linear()
    loss = run(model, features, labels, part_sizes(count, micro))
    assert relative_error(gradients(model), whole(features, labels)) < 1e-12
    assert loss == pytest.approx(mean_loss(linear()(features), labels).item(), rel=1e-12)


def test_a_short_last_pass_counts_by_its_samples() -> None:
    features, labels = samples(10)
    model = linear()
    run(model, features, labels, [4, 4, 2])
    assert relative_error(gradients(model), whole(features, labels)) < 1e-12


def test_weighting_every_pass_alike_would_be_wrong() -> None:
    """The other side of the test before: 4, 4 and 2 samples as thirds are far off."""
    features, labels = samples(10)
    model = linear()
    for start, stop in [(0, 4), (4, 8), (8, 10)]:
        torch.autograd.backward(mean_loss(model(features[start:stop]), labels[start:stop]) / 3)
    assert relative_error(gradients(model), whole(features, labels)) > 1e-2


def weighted(**arguments: object) -> nn.CrossEntropyLoss:
    weights = torch.tensor([0.2, 1.0, 5.0], dtype=torch.float64)
    return nn.CrossEntropyLoss(weight=weights, **arguments)  # type: ignore[arg-type]


MASKED: list[Loss] = [
    mean_loss,
    nn.CrossEntropyLoss(ignore_index=2),
    nn.CrossEntropyLoss(ignore_index=2, label_smoothing=0.1),
    weighted(),
    weighted(ignore_index=0),
    weighted(ignore_index=0, label_smoothing=0.1),
]


@pytest.mark.parametrize("loss", MASKED)
def test_masked_targets_and_class_weights_are_weighted_as_the_loss_weights_them(loss: Loss) -> None:
    features, labels = samples(23)
    labels[:9] = -100 if loss is mean_loss else labels[:9]
    model = linear()
    value = run(model, features, labels, [6, 6, 6, 5], loss=loss)
    assert relative_error(gradients(model), whole(features, labels, loss)) < 1e-12
    assert value == pytest.approx(loss(linear()(features), labels).item(), rel=1e-12)


@pytest.mark.parametrize("loss", MASKED)
def test_weighting_them_by_samples_would_be_wrong(loss: Loss) -> None:
    """The other side of the test before."""
    features, labels = samples(23)
    labels[:9] = -100 if loss is mean_loss else labels[:9]
    labels[18:] = 1
    model, sizes = linear(), [6, 6, 6, 5]
    live = [6.0 if (labels[start : start + 6] != -100).any() else 0.0 for start in (0, 6, 12)] + [5.0]
    accumulate(model, BatchStatistics(model), loss, features, labels, sizes, live, 23)
    assert relative_error(gradients(model), whole(features, labels, loss)) > 1e-3


def test_a_pass_without_a_valid_target_is_not_run_and_gives_no_nan() -> None:
    features, labels = samples(9)
    labels[:3] = -100
    model = linear()
    loss = run(model, features, labels, [3, 3, 3])
    assert relative_error(gradients(model), whole(features, labels)) < 1e-12
    assert loss == pytest.approx(mean_loss(linear()(features), labels).item(), rel=1e-12)
    assert run(model, features[:3], labels[:3], [2, 1]) == 0.0
    assert bool(torch.isfinite(gradients(model)).all())


def test_an_epoch_of_37_samples_in_batches_of_16_is_three_exact_steps() -> None:
    features, labels = samples(37)
    split, unsplit = linear(), linear()
    steps = 0
    for start in range(0, 37, 16):
        part, wanted = features[start : start + 16], labels[start : start + 16]
        for model, micro in ((split, 4), (unsplit, 16)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
            optimizer.zero_grad()
            run(model, part, wanted, part_sizes(len(part), micro))
            optimizer.step()
        steps += 1
    assert steps == 3
    assert len(part) == 5
    assert relative_error(split.weight.detach(), unsplit.weight.detach()) < 1e-12


def test_parts_of_unequal_ranks_add_up_to_the_gradient_of_the_batch() -> None:
    features, labels = samples(7)
    total = torch.zeros(18, dtype=torch.float64)
    for start, stop in [(0, 3), (3, 5), (5, 7)]:
        model = linear()
        run(model, features[start:stop], labels[start:stop], part_sizes(stop - start, 2), denominator=7)
        total += gradients(model)
    assert relative_error(total, whole(features, labels)) < 1e-12


def test_a_part_without_a_sample_runs_no_pass() -> None:
    features, labels = samples(0)
    model = linear()
    assert run(model, features, labels, [], denominator=7) == 0.0
    assert model.weight.grad is None


def test_layers_that_see_the_batch_are_named_only_while_they_do() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.Sequential(nn.BatchNorm1d(2)))
    assert inexact_layers(model) == ("1 (BatchNorm2d)", "3.0 (BatchNorm1d)")
    model[1].eval()
    assert inexact_layers(model) == ("3.0 (BatchNorm1d)",)
    assert inexact_layers(nn.BatchNorm1d(2)) == ("model (BatchNorm1d)",)


def test_every_layer_of_the_batch_norm_kind_is_named() -> None:
    kinds = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm]
    model = nn.Sequential(*(kind(2) for kind in kinds), nn.LazyBatchNorm1d(), nn.InstanceNorm1d(2))
    named = " ".join(inexact_layers(model))
    assert all(kind.__name__ in named for kind in [*kinds, nn.LazyBatchNorm1d])
    assert "InstanceNorm" not in named
