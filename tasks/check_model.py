"""Step `check`: what the user names as model, loss, metric and optimizer is tried before anything is fetched."""

from __future__ import annotations

from tasks.config import Params
from tasks.records import Measurement, Run
from tasks.training.check_model import try_model
from tasks.training.device import choose_device


def check_model(params: Params, run: Run, measurement: Measurement) -> None:
    """Raises `ParameterError` for a refused factory, a device that isn't there, or a model that takes no sample."""
    del run  # a step takes it like every other
    choose_device(params.cluster.device)
    try_model(params, measurement.schema)
