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

from tasks.config import Model, Optimizer
from tasks.errors import ParameterError
from tasks.records import Schema
from tasks.training.models import DefaultModel
from tasks.training.step import Loss

Factory = TypeVar("Factory", bound=Callable[..., Any])

MODELS: dict[str, Callable[..., nn.Module]] = {"default": DefaultModel}
LOSSES: dict[str, Loss] = {"cross_entropy": nn.functional.cross_entropy}
METRICS = ("accuracy",)
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
    except (TypeError, ValueError, RuntimeError) as error:
        shown = " ".join(str(error).split())
        raise ParameterError(
            [f"model.arguments: {settings.factory!r} can't be built with {settings.arguments}: {shown}"]
        ) from error
    if not isinstance(model, nn.Module):
        raise ParameterError(
            [f"model.factory: {settings.factory!r} must return an nn.Module, not {type(model).__name__}"]
        )
    return model


def build_loss(settings: Model) -> Loss:
    """The loss, a mean over the samples of (outputs, labels). Raises `ParameterError`."""
    loss: Loss = _find("model.loss", settings.loss, LOSSES, settings.allowed_packages)
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
    except (TypeError, ValueError) as error:
        shown = " ".join(str(error).split())
        raise ParameterError([f"optimizer.arguments: {settings.arguments} for {settings.name!r}: {shown}"]) from None
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
    except (ImportError, AttributeError) as error:
        raise ParameterError([f"{key}: {name!r} can't be found: {error}; {rule}"]) from None
    is_model = inspect.isclass(found) and issubclass(found, nn.Module)
    is_allowed = callable(found) and module_name.split(".")[0] in allowed_packages
    if not (is_model or getattr(found, _MARK, False) or is_allowed):
        raise ParameterError(
            [
                f"{key}: {name!r} is refused: it must be an nn.Module subclass, a function marked with model_factory, "
                f"or a callable of a package in model.allowed_packages ({', '.join(allowed_packages) or 'none'})"
            ]
        )
    return found
