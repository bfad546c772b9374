"""BatchNorm and its kind in several passes: no crash on one sample, and statistics that move as in one pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.training.batch_statistics import BatchStatistics
from tasks.training.step import accumulate


def features_of(count: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    return 3.0 + torch.randn(count, 4, *shape, dtype=torch.float64, generator=generator)


def sum_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (outputs.flatten(1).mean(dim=1) * labels).mean()


def passes(model: nn.Module, features: torch.Tensor, sizes: list[int]) -> None:
    labels = torch.arange(len(features), dtype=torch.float64)
    weights = [float(size) for size in sizes]
    accumulate(model, BatchStatistics(model), sum_loss, features, labels, sizes, weights, len(features))


LAYERS = [
    (nn.BatchNorm1d(4), ()),
    (nn.BatchNorm1d(4), (3,)),
    (nn.BatchNorm2d(4), (3, 3)),
    (nn.BatchNorm3d(4), (2, 2, 2)),
    (nn.InstanceNorm1d(4, track_running_stats=True, affine=True), (3,)),
    (nn.InstanceNorm2d(4, track_running_stats=True, affine=True), (3, 3)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_running_statistics_of_equal_passes_move_as_far_as_in_one(layer: nn.Module, shape: tuple[int, ...]) -> None:
    """Passes that are all alike: then 1 - (1 - m)^(1/k) is exactly right, and m would be far off."""
    layer = layer.double().train()
    layer.reset_running_stats()  # type: ignore[operator]
    block = features_of(8, *shape)
    passes(layer, block, [8])
    once = [buffer.clone() for buffer in layer.buffers() if buffer.is_floating_point()]
    layer.reset_running_stats()  # type: ignore[operator]
    passes(layer, torch.cat([block] * 4), [8] * 4)
    for found, expected in zip((buffer for buffer in layer.buffers() if buffer.is_floating_point()), once, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert layer.momentum == 0.1


def test_a_pass_that_is_not_run_does_not_count_as_one() -> None:
    layer = nn.BatchNorm1d(4).double()
    features, labels = features_of(8), torch.arange(8, dtype=torch.float64)
    accumulate(layer, BatchStatistics(layer), sum_loss, features, labels, [4, 4], [4.0, 0.0], 4.0)
    expected = nn.BatchNorm1d(4).double()
    expected(features[:4])
    assert layer.running_mean is not None
    assert expected.running_mean is not None
    assert torch.equal(layer.running_mean, expected.running_mean)


def test_a_layer_without_momentum_averages_over_all_passes() -> None:
    layer = nn.BatchNorm1d(4, momentum=None).double()
    features = features_of(8)
    passes(layer, features, [4, 4])
    assert layer.running_mean is not None
    torch.testing.assert_close(layer.running_mean, features.mean(dim=0), rtol=1e-12, atol=0)
    assert layer.momentum is None


def test_the_momentum_is_as_it_was_after_a_pass_that_fails() -> None:
    layer = nn.BatchNorm1d(4)
    with pytest.raises(RuntimeError), BatchStatistics(layer).over(3):
        raise RuntimeError("no")
    assert layer.momentum == 0.1


def test_a_batch_norm_takes_a_lone_sample_with_its_running_statistics_and_keeps_them() -> None:
    layer = nn.BatchNorm1d(4).double()
    features = features_of(5)
    passes(layer, features[:4], [4])
    before = [buffer.clone() for buffer in layer.buffers()]
    expected = nn.functional.batch_norm(features[4:], layer.running_mean, layer.running_var, layer.weight, layer.bias)
    seen: list[torch.Tensor] = []
    handle = layer.register_forward_hook(lambda _layer, _inputs, outputs: seen.append(outputs.detach()))
    passes(layer, features[4:], [1])
    handle.remove()
    assert torch.equal(seen[0], expected)
    assert all(torch.equal(one, other) for one, other in zip(layer.buffers(), before, strict=True))
    assert layer.training
    assert not layer._forward_hooks
    assert not layer._forward_pre_hooks


def test_a_rest_of_one_sample_does_not_crash() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).double()
    passes(model, features_of(5), [2, 2, 1])
    assert all(
        bool(torch.isfinite(parameter.grad).all()) for parameter in model.parameters() if parameter.grad is not None
    )
    passes(model, features_of(1), [1])


def test_a_batch_norm_without_running_statistics_gives_a_lone_sample_its_bias() -> None:
    layer = nn.BatchNorm1d(4, track_running_stats=False).double()
    torch.nn.init.constant_(layer.bias, 0.5)
    with BatchStatistics(layer).alone():
        outputs = layer(features_of(1))
    torch.testing.assert_close(outputs, torch.full((1, 4), 0.5, dtype=torch.float64), rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        layer(features_of(1))


def test_an_image_of_one_sample_has_statistics_of_its_own() -> None:
    layer = nn.BatchNorm2d(4).double()
    passes(layer, features_of(1, 3, 3), [1])
    assert layer.num_batches_tracked is not None
    assert int(layer.num_batches_tracked) == 1


def test_a_layer_that_fails_on_a_lone_sample_still_trains_afterwards() -> None:
    layer = nn.BatchNorm1d(4)
    with pytest.raises(RuntimeError), BatchStatistics(layer).alone():
        layer(torch.ones(1, 4, dtype=torch.complex64))
    assert layer.training
