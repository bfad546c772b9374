"""Models, losses and optimizers are found by name within the rules, and refused without being called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tasks.config import Model, Optimizer
from tasks.errors import ParameterError
from tasks.training.factories import build_loss, build_model, build_optimizer, check_metric
from tests.support import factories
from tests.support.schemas import table

HERE = "tests.support.factories"


def settings(factory: str = f"{HERE}:Linear", *, allowed: tuple[str, ...] = (), **arguments: Any) -> Model:
    return Model(factory=factory, arguments=arguments, allowed_packages=allowed)


def fault_of(error: pytest.ExceptionInfo[ParameterError]) -> str:
    assert len(error.value.faults) == 1
    assert "\n" not in error.value.faults[0]
    return error.value.faults[0]


@pytest.mark.parametrize("factory", [f"{HERE}:Linear", f"{HERE}:marked"])
def test_a_module_class_or_a_marked_function_is_called_with_shape_classes_and_arguments(factory: str) -> None:
    model = build_model(settings(factory, bias=False), table(width=5, classes=("a", "b", "c")))
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(3, 5)]


def test_lazy_layers_have_their_shapes_and_are_in_training() -> None:
    model = build_model(settings(f"{HERE}:Lazy"), table(width=5, classes=("a", "b", "c")))
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(4, 5), (4,), (4,), (4,), (3, 4), (3,)]
    assert model.training
    assert type(model.layers[1]) is nn.BatchNorm1d  # type: ignore[index]
    assert model.layers[1].running_mean.tolist() == [0.0] * 4  # type: ignore[index, union-attr]


def test_a_plain_function_is_called_only_if_its_package_is_allowed() -> None:
    factories.CALLS.clear()
    with pytest.raises(ParameterError) as error:
        build_model(settings(f"{HERE}:plain", allowed=("examples",)), table())
    assert "model.allowed_packages (examples)" in fault_of(error)
    assert factories.CALLS == []
    build_model(settings(f"{HERE}:plain", allowed=("examples", "tests")), table())
    assert factories.CALLS == ["plain"]


def test_a_package_whose_name_only_begins_like_an_allowed_one_is_not_allowed() -> None:
    with pytest.raises(ParameterError):
        build_model(settings(f"{HERE}:plain", allowed=("test", "tests.support")), table())


@pytest.mark.parametrize(
    "factory", ["os:system", "subprocess:run", "builtins:eval", "builtins:exec", "importlib:import_module"]
)
def test_what_is_no_factory_is_refused_without_being_called(factory: str, tmp_path: Path) -> None:
    witness = tmp_path / "called"
    arguments: dict[str, Any] = {
        "command": f"touch {witness}",
        "args": ["touch", str(witness)],
        "source": f"open({str(witness)!r}, 'w')",
    }
    with pytest.raises(ParameterError) as error:
        build_model(settings(factory, **arguments), table())
    assert "is refused" in fault_of(error)
    assert not witness.exists()


def test_what_an_allowed_module_has_imported_from_elsewhere_is_refused() -> None:
    with pytest.raises(ParameterError) as error:
        build_model(settings(f"{HERE}:os.system", allowed=("tests",), command="true"), table())
    assert "is refused" in fault_of(error)


def test_an_object_that_has_every_attribute_is_not_taken_for_a_marked_function() -> None:
    factories.CALLS.clear()
    with pytest.raises(ParameterError):
        build_model(settings(f"{HERE}:lookalike"), table())
    assert factories.CALLS == []


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("nothing", "allowed are default, or module:callable"),
        ("no.such.module:Model", "No module named 'no'"),
        (f"{HERE}:Absent", "has no attribute 'Absent'"),
        (f"{HERE}:", "is not known"),
        (":Linear", "is not known"),
        (".relative:Linear", "can't be found"),
        (f"{HERE}:marked_but_returns_text", "must return an nn.Module, not str"),
        (f"{HERE}:marked_but_broken", "no weights for (4,) and 2"),
    ],
)
def test_a_wrong_factory_is_one_line_that_says_why(factory: str, said: str) -> None:
    with pytest.raises(ParameterError) as error:
        build_model(settings(factory), table())
    fault = fault_of(error)
    assert fault.startswith("model.")
    assert said in fault


def test_a_module_that_fails_while_it_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "model_with_a_fault.py").write_text("raise OSError('weights are\\nmissing')\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ParameterError) as error:
            build_model(settings("model_with_a_fault:Net"), table())
    finally:
        sys.path.remove(str(tmp_path))
    assert "weights are missing" in fault_of(error)


def test_arguments_that_do_not_fit_are_one_line() -> None:
    with pytest.raises(ParameterError) as error:
        build_model(settings(f"{HERE}:Linear", depth=3), table())
    assert "unexpected keyword argument 'depth'" in fault_of(error)


def test_a_loss_class_is_made_first_and_gives_what_the_function_gives() -> None:
    outputs, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    known = build_loss(Model())(outputs, labels)
    assert build_loss(Model(loss="torch.nn:CrossEntropyLoss"))(outputs, labels) == known
    assert known == nn.functional.cross_entropy(outputs, labels)


def test_a_loss_follows_the_same_rule_as_a_factory() -> None:
    with pytest.raises(ParameterError) as error:
        build_loss(Model(loss="os:system"))
    assert fault_of(error).startswith("model.loss: 'os:system' is refused")


def test_an_unknown_metric_is_refused_with_what_is_allowed() -> None:
    check_metric(Model())
    with pytest.raises(ParameterError) as error:
        check_metric(Model(metric="precision"))
    assert "allowed are accuracy" in fault_of(error)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("SGD", torch.optim.SGD),
        ("AdamW", torch.optim.AdamW),
        ("rmsprop", torch.optim.RMSprop),
    ],
)
def test_optimizers_are_found_in_any_case_with_their_rate(name: str, kind: type) -> None:
    optimizer = build_optimizer(Optimizer(name=name, learning_rate=0.25), nn.Linear(2, 2))
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["lr"] == 0.25


def test_optimizer_arguments_arrive() -> None:
    optimizer = build_optimizer(Optimizer(name="sgd", arguments={"momentum": 0.5}), nn.Linear(2, 2))
    assert optimizer.param_groups[0]["momentum"] == 0.5


@pytest.mark.parametrize("name", ["sdg", "lbfgs", "optimizer", ""])
def test_an_optimizer_that_can_not_be_used_is_refused_with_the_names_of_those_that_can(name: str) -> None:
    with pytest.raises(ParameterError) as error:
        build_optimizer(Optimizer(name=name), nn.Linear(2, 2))
    assert "allowed are adadelta, " in fault_of(error)
    assert ", sgd" in fault_of(error)


@pytest.mark.parametrize("arguments", [{"mometum": 0.9}, {"momentum": -1}, {"lr": 0.1}, {"nesterov": True}])
def test_wrong_optimizer_arguments_are_one_line(arguments: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as error:
        build_optimizer(Optimizer(name="sgd", arguments=arguments), nn.Linear(2, 2))
    assert fault_of(error).startswith("optimizer.arguments: ")


def test_an_optimizer_that_the_parameters_are_not_for_is_named_itself() -> None:
    with pytest.raises(ParameterError) as error:
        build_optimizer(Optimizer(name="muon"), nn.Linear(2, 2))
    assert fault_of(error).startswith("optimizer.name: 'muon': ValueError: Muon only supports 2D parameters")


def test_a_faulty_list_of_betas_is_one_line() -> None:
    with pytest.raises(ParameterError) as error:
        build_optimizer(Optimizer(name="adam", arguments={"betas": []}), nn.Linear(2, 2))
    assert fault_of(error).startswith("optimizer.arguments: ")
