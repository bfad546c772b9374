"""A model is tried with a few samples before anything is fetched or trained."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tasks.config import Model, Optimizer, Params
from tasks.errors import ParameterError
from tasks.training.check_model import try_model
from tests.support.schemas import images, table

HERE = "tests.support.factories"


def params(
    factory: str = f"{HERE}:Linear", loss: str = "cross_entropy", optimizer: str = "sgd", **arguments: Any
) -> Params:
    model = Model(factory=factory, loss=loss, arguments={}, allowed_packages=("tests",))
    return Params(model=model, optimizer=Optimizer(name=optimizer, arguments=arguments))


def test_a_model_that_fits_the_data_passes() -> None:
    try_model(Params(), images())
    try_model(params(), table())
    try_model(params(f"{HERE}:Sparse"), images())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (params(f"{HERE}:Flattening"), "model.factory: 'tests.support.factories:Flattening' returns (16, 10)"),
        (params(f"{HERE}:Swapped"), "returns (10, 2) for 2 samples in training; must be (2, 10)"),
        (params(f"{HERE}:Picky"), "a sample of shape (1, 8, 8) does not go through"),
        (params(f"{HERE}:WithAuxiliary"), "returns tuple for 2 samples in training; must be (2, 10)"),
        (params(f"{HERE}:LosesASample"), "returns (1, 10) for 2 samples in evaluation; must be (2, 10)"),
        (
            params(f"{HERE}:Detached"),
            "factory: 'tests.support.factories:Detached' gives outputs that no gradient",
        ),
        (
            params(f"{HERE}:Sparse", optimizer="adam"),
            "optimizer.name: 'adam' can't train names of 'tests.support.factories:Sparse', whose gradients are sparse: "
            "RuntimeError: Adam does not support sparse gradients",
        ),
        (
            params(f"{HERE}:Sparse", optimizer="sgd", momentum=0.9),
            "optimizer.name: 'sgd' can't train names of 'tests.support.factories:Sparse', whose gradients are sparse: "
            "TypeError: its state becomes sparse too, which several workers can't merge",
        ),
        (
            params(loss=f"{HERE}:NamedDenominator"),
            "model.loss: the denominator of 'tests.support.factories:NamedDenominator' can't be used: ValueError",
        ),
        (params(loss=f"{HERE}:LearningLoss"), "has parameters of its own, which nothing trains"),
        (params(f"{HERE}:Late"), "makes seen in its forward pass, and a checkpoint can't give it back to a new model"),
        (params(f"{HERE}:Expanded"), "has an expanded tensor in scale, which a checkpoint can't give back"),
        (params(f"{HERE}:Leaving"), "does not go through 'tests.support.factories:Leaving' in training: SystemExit: 5"),
        (
            params(loss=f"{HERE}:loss_without_gradient"),
            "model.loss: 'tests.support.factories:loss_without_gradient' returns a number that no gradient",
        ),
        (params(loss=f"{HERE}:loss_for_each"), "model.loss: 'tests.support.factories:loss_for_each' must return one"),
        (params(loss=f"{HERE}:summed_loss"), "must be the mean over the samples, but gives"),
        (params(loss="torch.nn:MarginRankingLoss"), "model.loss: 'torch.nn:MarginRankingLoss' does not take the"),
        (params(optimizer="sdg"), "optimizer.name: 'sdg' is not known"),
    ],
)
def test_what_does_not_go_together_is_one_line(given: Params, said: str) -> None:
    with pytest.raises(ParameterError) as error:
        try_model(given, images())
    (fault,) = error.value.faults
    assert said in fault
    assert "\n" not in fault


def test_swapped_dimensions_are_noticed_with_two_classes_too() -> None:
    with pytest.raises(ParameterError, match=r"returns \(2, 3\) for 3 samples"):
        try_model(params(f"{HERE}:Swapped"), table(classes=("no", "yes")))


def test_trying_leaves_the_random_state_as_it_was() -> None:
    before = torch.get_rng_state()
    try_model(Params(), images())
    assert torch.equal(torch.get_rng_state(), before)


def test_complex_numbers_are_refused_for_several_workers_and_named() -> None:
    given = params(f"{HERE}:Complex")
    with pytest.raises(ParameterError, match="has complex numbers in spectrum"):
        try_model(given, table())
    alone = given.model_copy(update={"cluster": given.cluster.model_copy(update={"workers": 1})})
    try_model(alone, table())
