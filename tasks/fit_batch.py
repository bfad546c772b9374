"""Step `fit`: predict the memory that one batch would occupy, and split it where that is more than the device has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tasks.config import Params
from tasks.decisions.batch_plan import NothingFitsError, Remedy, in_order, part_of, plan_batch
from tasks.decisions.batch_size import LEAST_BATCH, batch_size_from_quality
from tasks.decisions.first_batch import first_batch_of
from tasks.errors import RetrainingError
from tasks.journal import Journal
from tasks.quantities import write_bytes
from tasks.records import BatchPlan, Branch, Decision, Measurement, Run, StoragePlan
from tasks.storage.description import describe_source
from tasks.training.device import check_workers, choose_device, device_memory_bytes
from tasks.training.fit import measure_quality, step_memory, write_preprocessing
from tasks.training.remedies import possible_remedies
from tasks.training.speed import Trial, samples_per_second


def fit_batch(
    params: Params,
    run: Run,
    measurement: Measurement,
    plan: StoragePlan,
    branch: Branch,
    workers: int,
    noise_scale: float | None = None,
) -> BatchPlan:
    """The batch plan of a branch. Raises `RetrainingError` where not even one sample fits the device.

    `noise_scale` is what an earlier branch has measured of its gradients; it counts for `batch.size: auto` only.
    """
    spec, schema = describe_source(params, run, measurement, plan), measurement.schema
    journal = Journal(run.journal)

    def warn(message: str) -> None:
        journal.write("warning", message=message)

    samples = write_preprocessing(run.outputs / "preprocessing.json", spec, warn)
    device = choose_device(params.cluster.device)
    check_workers(device, workers)

    def time_sizes(sizes: Sequence[int]) -> dict[int, float]:
        return samples_per_second(Trial(params, schema, device, tuple(sizes)), Path(run.root))

    asked, why = params.batch.size, None
    if asked == "auto":
        why = batch_size_from_quality(measure_quality(spec, warn), len(schema.classes), samples, noise_scale)
        asked = why.size
    batch_size = min(asked, samples)
    room = device_memory_bytes(device, params.batch.device_memory, workers)

    def plan_for(batch_size: int) -> tuple[BatchPlan, Decision]:
        memory, inexact = step_memory(params, schema, part_of(batch_size, workers), workers, device)
        batch, decision = plan_batch(
            batch_size,
            workers,
            memory,
            room,
            params.batch.headroom,
            inexact,
            capped_from=asked if asked > samples else None,
            samples_per_second=time_sizes if params.batch.strategy == "fastest" else None,
        )
        return replace(batch, first_batch=first_batch_of(batch, memory, params.batch.headroom)), decision

    planned = None
    while planned is None:
        try:
            planned = plan_for(batch_size)
        except NothingFitsError as error:
            if why is None or batch_size <= LEAST_BATCH:
                remedies = possible_remedies(params, schema, part_of(batch_size, workers), workers, device)
                raise RetrainingError(_nothing_fits(measurement.manifest.path, error, remedies)) from None
            # All samples of a part lie on the device while its passes run: fewer leave room for one.
            batch_size = max(LEAST_BATCH, batch_size // 2)
    batch, decision = planned
    if why is not None:
        said = f"; the device has memory for {batch_size}" if batch_size < why.size else ""
        because = f"{why.because}{said}; {decision.because}"
        decision = replace(decision, because=because, inputs=decision.inputs | why.inputs)
    journal.decide(decision, branch)
    return batch


def _nothing_fits(data: str, error: NothingFitsError, remedies: Sequence[Remedy]) -> str:
    """One line with what is needed, what there is, and what would help, best first."""
    line = (
        f"batch.device_memory: one sample of {data} needs {write_bytes(error.needed_bytes)} "
        f"({error.needed_bytes:,} bytes) and the device has {write_bytes(error.available_bytes)} "
        f"({error.available_bytes:,} bytes) for it"
    )
    said = []
    for remedy in in_order(remedies, error.available_bytes):
        enough = "" if remedy.peak_bytes <= error.available_bytes else ", still too much"
        said.append(f"{remedy.change} ({remedy.peak_bytes:,} bytes{enough})")
    return f"{line}; what would take less: {', '.join([*said, 'a smaller model'])}"
