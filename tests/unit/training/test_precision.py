"""Mixed precision: forward passes and losses in the format that was asked for, parameters and gradients in float32."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tasks.config import Cluster, Model, Params
from tasks.errors import ParameterError
from tasks.training.accuracy import accuracy
from tasks.training.check_model import try_precision
from tasks.training.cursor import Cursor
from tasks.training.precision import PrecisionName, casting, check_precision, fault_of
from tasks.training.speed import Trial, run
from tasks.training.trainee import Trainee
from tasks.training.update import UpdateRule
from tests.support.factories import FormatSeen
from tests.support.schemas import images
from tests.support.trainees import plan_of, samples_of, take_steps, trainee_of

HALVES: tuple[PrecisionName, ...] = ("bfloat16", "float16")
FORMATS: dict[PrecisionName, torch.dtype] = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
}  # fmt: skip


class Watched(nn.Module):
    """Remembers the formats of its outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)
        self.seen: set[torch.dtype] = set()

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(features)
        self.seen.add(outputs.dtype)
        return outputs


def trained(precision: PrecisionName, micro: int = 4, steps: int = 5) -> tuple[Trainee, Watched]:
    torch.manual_seed(3)
    model = Watched()
    rule = UpdateRule(precision=precision)
    trainee = trainee_of(model, plan_of(16, micro), samples_of(80), rule=rule, dtype=torch.float32, momentum=0.9)
    take_steps(trainee, Cursor(80), steps)
    return trainee, model


@pytest.mark.parametrize("precision", ["float32", *HALVES])
def test_outputs_have_the_format_and_all_that_is_kept_is_float32(precision: PrecisionName) -> None:
    trainee, model = trained(precision)
    assert model.seen == {FORMATS[precision]}
    model.seen.clear()
    assert trainee.evaluate() > 0
    assert model.seen == {FORMATS[precision]}
    kept = [*model.parameters(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]
    kept += [state["momentum_buffer"] for state in trainee.optimizer.state.values()]
    assert len(kept) == 6
    assert {tensor.dtype for tensor in kept} == {torch.float32}


@pytest.mark.parametrize("precision", HALVES)
@pytest.mark.parametrize("micro", [16, 5])
def test_training_goes_where_it_goes_in_float32_as_far_as_the_format_can_tell(
    precision: PrecisionName, micro: int
) -> None:
    """Five steps: the scale of float16 is out of the loss and of the gradients again."""
    exact, _ = trained("float32")
    near, _ = trained(precision, micro)
    for one, other in zip(near.model.parameters(), exact.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.005)
        assert not torch.equal(one, other)
    assert near.tally.loss_sum == pytest.approx(exact.tally.loss_sum, rel=0.01)
    assert near.tally.overflowed_steps == 0


@pytest.mark.parametrize("precision", HALVES)
def test_the_noise_of_gradients_is_that_of_the_unscaled_ones(precision: PrecisionName) -> None:
    exact, near = trained("float32")[0].tally.noise, trained(precision)[0].tally.noise
    assert exact.is_finite
    assert list(near) == pytest.approx(list(exact), rel=0.05)
    assert any(exact)


def test_evaluation_is_in_the_format_and_no_more() -> None:
    model = Watched()
    accuracy(model, [(torch.ones(2, 5), torch.zeros(2, dtype=torch.int64))], casting("bfloat16", "cpu"))
    assert model.seen == {torch.bfloat16}
    assert model(torch.ones(2, 5)).dtype == torch.float32


def params_in(precision: PrecisionName, factory: str) -> Params:
    model = Model(factory=f"tests.support.factories:{factory}", arguments={}, allowed_packages=("tests",))
    return Params(model=model, cluster=Cluster(precision=precision))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("precision", HALVES)
def test_a_model_that_fails_under_it_is_one_line_before_anything_is_trained(
    precision: PrecisionName, device: str
) -> None:
    with pytest.raises(ParameterError) as error:
        try_precision(params_in(precision, "Unmixable"), images(), device)
    (line,) = error.value.faults
    assert line.startswith("cluster.precision: a step of 'tests.support.factories:Unmixable' with ")
    assert f"fails in {precision}: RuntimeError: " in line
    assert "\n" not in line
    try_precision(params_in("float32", "Unmixable"), images(), device)
    try_precision(params_in(precision, "FormatSeen"), images(), device)


def test_a_format_that_the_device_does_not_have_is_one_line() -> None:
    for precision in ("float32", *HALVES):
        check_precision(precision, "cpu")
    assert fault_of("bfloat16", "meta") is not None
    with pytest.raises(
        ParameterError, match=r"cluster\.precision: 'bfloat16' can't be had on meta: .*; float32 always"
    ):
        check_precision("bfloat16", "meta")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_cuda_is_asked_in_another_process_and_says_in_one_line_that_it_isnt_there() -> None:
    with pytest.raises(ParameterError) as error:
        check_precision("float16", "cuda")
    (line,) = error.value.faults
    assert "can't be had on cuda" in line
    assert "\n" not in line


@pytest.mark.parametrize("precision", ["float32", *HALVES])
def test_sizes_are_timed_in_the_format_of_training(precision: PrecisionName) -> None:
    FormatSeen.formats.clear()
    run(Trial(params_in(precision, "FormatSeen"), images(), "cpu", (4, 2)))
    assert FormatSeen.formats == {FORMATS[precision]}
