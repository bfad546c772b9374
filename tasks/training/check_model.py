"""Does a sample go through what the user names, before anything is fetched or trained?"""

from __future__ import annotations

import torch

from tasks.config import Params
from tasks.errors import ParameterError
from tasks.records import Schema
from tasks.training.denominators import denominators
from tasks.training.factories import build_loss, build_model, build_optimizer, check_metric, in_one_line
from tasks.training.precision import PrecisionName, casting


def try_model(params: Params, schema: Schema) -> None:
    """Build model, loss and optimizer and put blank samples through, once. Raises `ParameterError` with one line."""
    check_metric(params.model)
    loss = build_loss(params.model)
    name, classes = params.model.factory, len(schema.classes)
    samples = 3 if classes == 2 else 2  # another number than the classes, or swapped dimensions would go unnoticed
    with torch.random.fork_rng(devices=[]):
        model = build_model(params.model, schema)
        build_optimizer(params.optimizer, model)
        _refuse_complex(params, model)
        _refuse_sparse(params, model)
        _refuse_expanded(params, model)
        features = torch.zeros(samples, *schema.input_shape)
        shapes = _shapes(model)
        # Some models return other things while they train.
        for mode in ("training", "evaluation"):
            try:
                outputs = model.train(mode == "training")(features)
            except (Exception, SystemExit) as error:  # a user's model may raise anything; it is said in one line
                raise ParameterError(
                    [
                        f"model.factory: a sample of shape {schema.input_shape} does not go through {name!r} in "
                        f"{mode}: {in_one_line(error)}"
                    ]
                ) from error
            if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != (samples, classes):
                found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
                raise ParameterError(
                    [
                        f"model.factory: {name!r} returns {found} for {samples} samples in {mode}; "
                        f"must be {(samples, classes)}"
                    ]
                )
    _refuse_late_state(params, shapes, _shapes(model))
    try:
        labels = torch.zeros(samples, dtype=torch.int64)
        value, twice = loss(outputs, labels), loss(torch.cat([outputs, outputs]), torch.cat([labels, labels]))
    except Exception as error:  # likewise
        raise ParameterError(
            [f"model.loss: {params.model.loss!r} does not take the outputs: {in_one_line(error)}"]
        ) from error
    try:
        denominators(loss, labels, [samples])
    except Exception as error:  # a user's own function
        raise ParameterError(
            [f"model.loss: the denominator of {params.model.loss!r} can't be used: {in_one_line(error)}"]
        ) from error
    if isinstance(loss, torch.nn.Module) and any(each.requires_grad for each in loss.parameters()):
        raise ParameterError(
            [f"model.loss: {params.model.loss!r} has parameters of its own, which nothing trains; a model may"]
        )
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        raise ParameterError([f"model.loss: {params.model.loss!r} must return one number, the mean over the samples"])
    if not torch.allclose(value, twice, rtol=1e-4, equal_nan=True):
        raise ParameterError(
            [
                f"model.loss: {params.model.loss!r} must be the mean over the samples, but gives {value.item():.6g} "
                f"for {samples} samples and {twice.item():.6g} for the same ones twice"
            ]
        )
    if not outputs.requires_grad:
        raise ParameterError([f"model.factory: {name!r} gives outputs that no gradient flows back from"])
    if not value.requires_grad:
        raise ParameterError([f"model.loss: {params.model.loss!r} returns a number that no gradient flows back from"])


def _refuse_complex(params: Params, model: torch.nn.Module) -> None:
    """Ranks exchange real numbers only."""
    found = [key for key, tensor in _state_of(model).items() if tensor.is_complex()]
    if found and params.cluster.workers > 1:
        raise ParameterError(
            [
                f"model.factory: {params.model.factory!r} has complex numbers in {found[0]}; several workers need real "
                "ones (torch.view_as_real), or cluster.workers must be 1"
            ]
        )


def _refuse_sparse(params: Params, model: torch.nn.Module) -> None:
    """Most optimizers can't take the gradients of an embedding that gives sparse ones, and say so in the first step.

    Others keep a sparse state, which ranks can't merge.
    """
    kinds = torch.nn.Embedding, torch.nn.EmbeddingBag
    names = [name or "it" for name, module in model.named_modules() if isinstance(module, kinds) and module.sparse]
    if not names:
        return
    embedding = torch.nn.Embedding(2, 2, sparse=True)
    optimizer = build_optimizer(params.optimizer, embedding)
    torch.autograd.backward(embedding(torch.zeros(1, dtype=torch.int64)).sum())
    try:
        optimizer.step()
        state = [value for each in optimizer.state.values() for value in each.values()]
        if params.cluster.workers > 1 and any(isinstance(each, torch.Tensor) and each.is_sparse for each in state):
            raise TypeError("its state becomes sparse too, which several workers can't merge")
    except Exception as error:  # optimizers say it in their own ways
        raise ParameterError(
            [
                f"optimizer.name: {params.optimizer.name!r} can't train {names[0]} of {params.model.factory!r}, whose "
                f"gradients are sparse: {in_one_line(error)}"
            ]
        ) from error


def _refuse_expanded(params: Params, model: torch.nn.Module) -> None:
    """Numbers that share one place in memory can't be loaded from a checkpoint."""
    for name, tensor in _state_of(model).items():
        if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
            raise ParameterError(
                [
                    f"model.factory: {params.model.factory!r} has an expanded tensor in {name}, which a checkpoint "
                    "can't give back; it needs memory of its own (clone it)"
                ]
            )


def _refuse_late_state(params: Params, before: dict[str, tuple[int, ...]], after: dict[str, tuple[int, ...]]) -> None:
    """A model that is built anew can't load what another one has made in its forward passes."""
    late = [name for name in before | after if before.get(name) != after.get(name)]
    if late:
        raise ParameterError(
            [
                f"model.factory: {params.model.factory!r} makes {late[0]} in its forward pass, and a checkpoint "
                "can't give it back to a new model; make it in __init__, or register it with persistent=False"
            ]
        )


def _shapes(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in _state_of(model).items()}


def _state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What a checkpoint has of a model, without what modules add that is no tensor."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def try_precision(params: Params, schema: Schema, device_type: str) -> None:
    """Run one small step in the precision that is asked for. Raises `ParameterError` with one line.

    It runs on the CPU, as all of this does. There float16 has fewer operations than on other devices, for which
    bfloat16 stands in: what fails for its mixture of formats fails with either.
    """
    precision = params.cluster.precision
    if precision == "float32":
        return
    loss, samples = build_loss(params.model), 2
    stand_in: PrecisionName = precision if device_type == "cpu" else "bfloat16"
    with torch.random.fork_rng(devices=[]):
        model = build_model(params.model, schema)
        try:
            with casting(stand_in, "cpu")():
                value = loss(model(torch.zeros(samples, *schema.input_shape)), torch.zeros(samples, dtype=torch.int64))
            torch.autograd.backward(value)
        except (Exception, SystemExit) as error:  # a user's model may raise anything; it is said in one line
            raise ParameterError(
                [
                    f"cluster.precision: a step of {params.model.factory!r} with {params.model.loss!r} fails in "
                    f"{precision}: {in_one_line(error)}"
                ]
            ) from error
