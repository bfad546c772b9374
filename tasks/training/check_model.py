"""Does a sample go through what the user names, before anything is fetched or trained?"""

from __future__ import annotations

import torch

from tasks.config import Params
from tasks.errors import ParameterError
from tasks.records import Schema
from tasks.training.factories import build_loss, build_model, build_optimizer, check_metric

TRIED_SAMPLES = 2


def try_model(params: Params, schema: Schema) -> None:
    """Build model, loss and optimizer and put two blank samples through. Raises `ParameterError` with one line."""
    check_metric(params.model)
    loss = build_loss(params.model)
    name, classes = params.model.factory, len(schema.classes)
    with torch.random.fork_rng(devices=[]):
        model = build_model(params.model, schema)
        build_optimizer(params.optimizer, model)
        features = torch.zeros(TRIED_SAMPLES, *schema.input_shape)
        try:
            outputs = model.eval()(features)
        except Exception as error:  # a user's model may raise anything; it is said in one line
            raise ParameterError(
                [f"model.factory: a sample of shape {schema.input_shape} does not go through {name!r}: {_shown(error)}"]
            ) from error
    if not isinstance(outputs, torch.Tensor) or tuple(outputs.shape) != (TRIED_SAMPLES, classes):
        found = tuple(outputs.shape) if isinstance(outputs, torch.Tensor) else type(outputs).__name__
        raise ParameterError(
            [f"model.factory: {name!r} returns {found} for {TRIED_SAMPLES} samples; must be {(TRIED_SAMPLES, classes)}"]
        )
    try:
        value = loss(outputs, torch.zeros(TRIED_SAMPLES, dtype=torch.int64))
    except Exception as error:  # likewise
        raise ParameterError(
            [f"model.loss: {params.model.loss!r} does not take the outputs: {_shown(error)}"]
        ) from error
    if not isinstance(value, torch.Tensor) or value.dim() != 0:
        raise ParameterError([f"model.loss: {params.model.loss!r} must return one number, the mean over the samples"])


def _shown(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
