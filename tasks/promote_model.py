"""Step `promote`: the test samples are read once, the model is registered, and the better one is the champion."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tasks.config import Params
from tasks.decisions.next_step import target_reached
from tasks.decisions.promotion import PROMOTED, decide_promotion
from tasks.errors import RetrainingError
from tasks.journal import Journal
from tasks.records import Measurement, ModelRecord, PhaseResult, Run
from tasks.storage.rows import test_rows
from tasks.tracking.client import open_store, store_uri
from tasks.tracking.failures import ModelCannotReadError, TrackingUnavailableError
from tasks.tracking.registry import LOADER_MODULE, champion, log_model, make_champion
from tasks.tracking.scoring import Scorer, take_scorer
from tasks.tracking.served_code import served_code
from tasks.tracking.state import wait_for_parent
from tasks.training.start import let_launchers_go, with_torch

EXAMPLE_ROWS = 4
# On a slow machine MLflow takes long to be imported and to make its store.
PARENT_SECONDS = 120.0
OUT_OF_REACH_SECONDS = 10.0


def promote_model(params: Params, run: Run, measurement: Measurement, result: PhaseResult) -> ModelRecord:
    """Register the model and decide whether it becomes the champion.

    Both models are judged by what the registry gives out, each with its own code, in a process of its own. Where the
    registry can't be reached the model stays in the run's folder, is judged from there, and is not promoted.
    """
    folder = run.outputs / "model"
    with_torch(
        "tasks.training.serving:export_model",
        folder,
        params.model,
        measurement.schema,
        run.outputs / "preprocessing.json",
        Path(result.checkpoint),
    )
    let_launchers_go()  # there is nothing left to train
    rows = test_rows(params, run, measurement)
    features, labels = rows.drop(columns=measurement.schema.label), rows[measurement.schema.label]
    rows_file = Path(run.folder) / "test_rows.parquet"
    features.to_parquet(rows_file, index=False)
    record = ModelRecord(str(folder), params.model_name, None, False, None, None, None)
    journal = Journal(run.journal)
    try:
        record = _register_and_judge(params, run, measurement, result, record, features, labels, rows_file)
    except TrackingUnavailableError as error:
        own = with_torch("tasks.training.serving:predict_file", folder, rows_file)
        record = replace(record, test_accuracy=share_right(own, labels))
        journal.write("warning", message=f"the model is not registered, it stays in {folder}: {error}")
        decision = decide_promotion(False, record.test_accuracy, None, None, False, False)
        journal.decide(replace(decision, because=f"not promoted, the registry can't be reached: {error}"))
    finally:
        rows_file.unlink(missing_ok=True)
    journal.write("promotion", model=record)
    return record


def _register_and_judge(
    params: Params,
    run: Run,
    measurement: Measurement,
    result: PhaseResult,
    record: ModelRecord,
    features: pd.DataFrame,
    labels: pd.Series,
    rows_file: Path,
) -> ModelRecord:
    root, folder = Path(run.root), Path(record.folder)
    parent = wait_for_parent(run, PARENT_SECONDS, OUT_OF_REACH_SECONDS)
    if parent is None:
        raise TrackingUnavailableError(f"{params.tracking.uri} has no run for {run.id} yet")
    store = open_store(store_uri(params.tracking.uri, root), params.tracking.experiment, root)
    present = champion(store, params.model_name)
    example = features.head(EXAMPLE_ROWS)
    # Whatever it predicts is one of these.
    classes = pd.DataFrame({"prediction": list(measurement.schema.classes)})
    # The champion is scored in a process of its own, while the candidate is logged and scored.
    with take_scorer() as scorer, take_scorer() if present else nullcontext() as of_champion:
        if present and of_champion:
            of_champion.begin(store, present.uri, rows_file)
        with served_code(root, params.model.factory, LOADER_MODULE) as code:
            own = log_model(store, parent, folder, params.model_name, example, classes, code)
        scorer.begin(store, own.uri, rows_file)
        candidate_accuracy = share_right(scorer.predictions(), labels)
        champion_accuracy, readable = _judge_champion(of_champion, labels, Journal(run.journal))
    decision = decide_promotion(
        target_reached(result.accuracy, params.pretrain.target_accuracy),
        candidate_accuracy,
        champion_accuracy,
        present.version if present else None,
        readable,
        params.registry.replace_incompatible,
    )
    promoted = decision.chosen == PROMOTED
    if promoted:
        make_champion(store, own)
    Journal(run.journal).decide(decision)
    return replace(
        record,
        version=own.version,
        promoted=promoted,
        test_accuracy=candidate_accuracy,
        champion_version=present.version if present else None,
        champion_accuracy=champion_accuracy,
    )


def _judge_champion(scorer: Scorer | None, labels: pd.Series, journal: Journal) -> tuple[float | None, bool]:
    """The champion's accuracy on the present test samples (None: not known), and whether it can read them."""
    if scorer is None:
        return None, True
    try:
        return share_right(scorer.predictions(), labels), True
    except ModelCannotReadError as error:
        journal.write("note", branch=None, message=f"the champion can't read the present rows: {error}")
        return None, False
    except RetrainingError as error:
        journal.write("warning", message=f"the champion could not be evaluated: {error}")
        return None, True


def share_right(predictions: list[int | str | float | bool], labels: pd.Series) -> float:
    """Right predictions over all; NaN without a sample."""
    expected = labels.tolist()
    if not expected:
        return float("nan")
    right = sum(bool(said == true) for said, true in zip(predictions, expected, strict=True))
    return right / len(expected)
