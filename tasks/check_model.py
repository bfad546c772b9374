"""Step `check`: what the user names as model, loss, metric and optimizer is tried before anything is fetched."""

from __future__ import annotations

from tasks.config import Params
from tasks.records import Measurement, Run
from tasks.training.check_model import try_model, try_precision
from tasks.training.device import choose_device
from tasks.training.precision import check_precision


def check_model(params: Params, run: Run, measurement: Measurement) -> None:
    """Raises `ParameterError` for a refused factory, a device or precision that isn't there, or a model that takes no
    sample."""
    del run  # a step takes it like every other
    device = choose_device(params.cluster.device)
    check_precision(params.cluster.precision, device)
    try_model(params, measurement.schema)
    try_precision(params, measurement.schema, device)
