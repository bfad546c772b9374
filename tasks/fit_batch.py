"""Step `fit`: predict the memory that one batch would occupy, and split it where that is more than the device has."""

from __future__ import annotations

from dataclasses import replace

from tasks.config import Params
from tasks.decisions.batch_plan import NothingFitsError, part_of, plan_batch
from tasks.decisions.batch_size import batch_size_from_quality
from tasks.errors import RetrainingError
from tasks.journal import Journal
from tasks.quantities import write_bytes
from tasks.records import BatchPlan, Branch, Measurement, Run, StoragePlan
from tasks.storage.description import describe_source
from tasks.training.device import check_workers, choose_device, device_memory_bytes
from tasks.training.fit import measure_quality, step_memory, write_preprocessing


def fit_batch(
    params: Params, run: Run, measurement: Measurement, plan: StoragePlan, branch: Branch, workers: int
) -> BatchPlan:
    """The batch plan of a branch. Raises `RetrainingError` where not even one sample fits the device."""
    spec = describe_source(params, run, measurement, plan)
    samples = write_preprocessing(run.outputs / "preprocessing.json", spec)
    device = choose_device(params.cluster.device)
    check_workers(device, workers)
    asked, why = params.batch.size, None
    if asked == "auto":
        why = batch_size_from_quality(measure_quality(spec), len(measurement.schema.classes), samples)
        asked = why.size
    batch_size = min(asked, samples)
    memory, inexact = step_memory(params, measurement.schema, part_of(batch_size, workers), workers, device)
    try:
        batch, decision = plan_batch(
            batch_size,
            workers,
            memory.peak_bytes,
            device_memory_bytes(device, params.batch.device_memory, workers),
            params.batch.headroom,
            lambda: memory.source,
            inexact,
            capped_from=asked if asked > samples else None,
        )
    except NothingFitsError as error:
        raise RetrainingError(
            f"batch.device_memory: one sample of {measurement.manifest.path} needs {write_bytes(error.needed_bytes)} "
            f"({error.needed_bytes:,} bytes) and the device has {write_bytes(error.available_bytes)} for it; use a "
            "smaller model, an optimizer with less state, or a device with more memory"
        ) from None
    if why is not None:
        decision = replace(decision, because=f"{why.because}; {decision.because}", inputs=decision.inputs | why.inputs)
    Journal(run.journal).decide(decision, branch)
    return batch
