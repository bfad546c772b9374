"""Models, losses, metrics and optimizers by name: known ones, and `module:callable` within the rules.

What may be called is decided before anything is called: a subclass of `nn.Module`, a function marked with
`model_factory`, or a callable of a package that `model.allowed_packages` lists.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from tasks.config import Model, Optimizer
from tasks.errors import ParameterError
from tasks.records import Schema
from tasks.training.models import DefaultModel
from tasks.training.step import Loss

Factory = TypeVar("Factory", bound=Callable[..., Any])

MODELS: dict[str, Callable[..., nn.Module]] = {"default": DefaultModel}
LOSSES: dict[str, Loss] = {"cross_entropy": nn.functional.cross_entropy}
METRICS = ("accuracy",)
CPU = torch.device("cpu")
OPTIMIZERS = {
    name.lower(): kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind)
    and issubclass(kind, torch.optim.Optimizer)
    and kind not in (torch.optim.Optimizer, torch.optim.LBFGS, torch.optim.SparseAdam)
}
_MARK = "_is_model_factory"


def model_factory(function: Factory) -> Factory:
    """Mark a function as a factory that `model.factory`, `model.loss` or `model.metric` may name."""
    setattr(function, _MARK, True)
    return function


def build_model(settings: Model, schema: Schema) -> nn.Module:
    """The model for samples of `schema.input_shape` and its number of classes. Raises `ParameterError`."""
    factory = _find("model.factory", settings.factory, MODELS, settings.allowed_packages)
    try:
        model = factory(input_shape=schema.input_shape, classes=len(schema.classes), **settings.arguments)
        if isinstance(model, nn.Module):
            _give_shapes(model, schema.input_shape)
    except Exception as error:  # a user's factory may raise anything; it is said in one line
        raise ParameterError(
            [
                f"model.arguments: {settings.factory!r} can't be built with input_shape={schema.input_shape}, "
                f"classes={len(schema.classes)} and {settings.arguments}: {in_one_line(error)}"
            ]
        ) from error
    if not isinstance(model, nn.Module):
        raise ParameterError(
            [f"model.factory: {settings.factory!r} must return an nn.Module, not {type(model).__name__}"]
        )
    return model


def _give_shapes(model: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Lazy layers take their shapes from what they see first, and all that uses the model needs the shapes."""
    if any(isinstance(parameter, UninitializedParameter) for parameter in model.parameters()):
        with torch.no_grad():
            model.eval()(torch.zeros(2, *input_shape))
        model.train()


def build_loss(settings: Model, device: torch.device = CPU) -> Loss:
    """The loss, a mean of (outputs, labels); a class is made one first. Raises `ParameterError`.

    What it holds itself (class weights) is on `device`, as outputs and labels are.

    A mean over anything but the samples says what it divides by, so that a batch in several passes or on several ranks
    is the mean over the whole batch: PyTorch's cross entropy is known (valid targets, or the sum of their class
    weights), another loss has a method `denominator(labels)` (or a function an attribute of that name) that gives this
    number for the labels of a pass, 0 where none of them counts.
    """
    found: Any = _find("model.loss", settings.loss, LOSSES, settings.allowed_packages)
    if inspect.isclass(found):
        try:
            found = found()
        except Exception as error:  # likewise
            raise ParameterError([f"model.loss: {settings.loss!r} can't be made: {in_one_line(error)}"]) from error
    loss: Loss = found.to(device) if isinstance(found, nn.Module) else found
    return loss


def check_metric(settings: Model) -> None:
    """Raises `ParameterError` for a metric that isn't known."""
    if settings.metric not in METRICS:
        raise ParameterError([f"model.metric: {settings.metric!r} is not known; allowed are {', '.join(METRICS)}"])


def build_optimizer(settings: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer over all parameters of a model. Raises `ParameterError`."""
    kind: Any = OPTIMIZERS.get(settings.name.lower())
    if kind is None:
        allowed = ", ".join(sorted(OPTIMIZERS))
        raise ParameterError([f"optimizer.name: {settings.name!r} is not known; allowed are {allowed}"])
    try:
        optimizer: torch.optim.Optimizer = kind(model.parameters(), lr=settings.learning_rate, **settings.arguments)
    except Exception as error:  # optimizers check their arguments, and what they are to update, in their own ways
        at_fault = f"arguments: {settings.arguments} for" if settings.arguments else "name:"
        raise ParameterError([f"optimizer.{at_fault} {settings.name!r}: {in_one_line(error)}"]) from error
    return optimizer


def _find(key: str, name: str, known: dict[str, Callable[..., Any]], allowed_packages: tuple[str, ...]) -> Any:
    """What a parameter names, without calling it."""
    if name in known:
        return known[name]
    module_name, colon, attribute = name.partition(":")
    rule = f"allowed are {', '.join(known)}, or module:callable"
    if not colon or not module_name or not attribute:
        raise ParameterError([f"{key}: {name!r} is not known; {rule}"])
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the user's module, which may raise anything
        raise ParameterError([f"{key}: {name!r} can't be found: {in_one_line(error)}; {rule}"]) from error
    if not _may_be_called(found, module_name, allowed_packages):
        raise ParameterError(
            [
                f"{key}: {name!r} is refused: it must be an nn.Module subclass, a function marked with model_factory, "
                f"or a callable of a package in model.allowed_packages ({', '.join(allowed_packages) or 'none'})"
            ]
        )
    return found


def _may_be_called(found: Any, module_name: str, allowed_packages: tuple[str, ...]) -> bool:
    """Whether what was found is a model, is marked, or comes from an allowed package.

    What a module of an allowed package has only imported (`examples.mine:os.system`) doesn't come from there.
    """
    if inspect.isclass(found) and issubclass(found, nn.Module):
        return True
    if inspect.isfunction(found) and vars(found).get(_MARK) is True:
        return True
    homes = {module_name.split(".")[0], str(getattr(found, "__module__", "")).split(".")[0]}
    return callable(found) and homes <= set(allowed_packages)


def in_one_line(error: BaseException) -> str:
    """The kind and text of an error, without line breaks, cut where it gets long."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]
