"""What the step `fit` needs of torch: the fitted preprocessing, and the predicted memory of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn, optim

from tasks.config import Params
from tasks.decisions.batch_size import Quality
from tasks.record_files import write_record
from tasks.records import Schema
from tasks.storage.quality import quality_of
from tasks.storage.samples import SampleSource
from tasks.storage.source import SourceSpec, open_source
from tasks.training.factories import build_loss, build_model, build_optimizer
from tasks.training.memory import StepMemory
from tasks.training.preprocessing import fit_preprocessing
from tasks.training.step import inexact_layers

FITTED_SAMPLES = 20_000
BLOCK_SAMPLES = 1_000


def write_preprocessing(file: Path, spec: SourceSpec, warn: Callable[[str], None]) -> int:
    """Fit mean and scale on the first training samples and write them. Returns how many training samples there are.

    `warn` is told of trouble with storage nodes."""
    source = open_source(spec, 0, 1, warn)
    try:
        if not file.exists():
            known = min(source.samples_per_epoch, FITTED_SAMPLES)
            write_record(file, fit_preprocessing(_blocks(source, known), spec.schema))
        return source.samples_per_epoch
    finally:
        source.close()


def measure_quality(spec: SourceSpec, warn: Callable[[str], None]) -> Quality:
    """The quality of the first training samples of an epoch. `warn` is told of trouble with storage nodes."""
    source = open_source(spec, 0, 1, warn)
    try:
        return quality_of(source.take(0, 0, min(source.samples_per_epoch, FITTED_SAMPLES)))
    finally:
        source.close()


def _blocks(source: SampleSource, known: int) -> Iterator[NDArray[Any]]:
    """The features of the first `known` training samples of an epoch; each block may go before the next one comes."""
    for start in range(0, known, BLOCK_SAMPLES):
        stop = min(start + BLOCK_SAMPLES, known)
        yield source.take(0, start, stop).features
        source.release(0, stop)


def made_up_samples(schema: Schema, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Features (samples, *input_shape), spread like preprocessed ones, and labels (samples,), on the default device."""
    return torch.randn(samples, *schema.input_shape), torch.arange(samples) % len(schema.classes)


def step_memory(
    params: Params, schema: Schema, part: int, workers: int, device: str
) -> tuple[StepMemory, tuple[str, ...]]:
    """The predictor for this model and optimizer, and the layers for which splitting a batch is not exact."""

    def build() -> tuple[nn.Module, optim.Optimizer]:
        model = build_model(params.model, schema)
        return model, build_optimizer(params.optimizer, model)

    with torch.random.fork_rng(devices=[]):
        inexact = inexact_layers(build()[0])
    make_batch, precision = partial(made_up_samples, schema), params.cluster.precision
    return StepMemory(build, build_loss(params.model), make_batch, part, workers, device, precision), inexact
