"""From parameters and plan to the description of the data that a worker opens."""

from __future__ import annotations

from tasks.config import Params
from tasks.records import Measurement, Run, StoragePlan
from tasks.storage.nodes import absolute_nodes
from tasks.storage.opening import open_store
from tasks.storage.repository import cache_folder
from tasks.storage.source import SourceSpec


def describe_source(params: Params, run: Run, measurement: Measurement, plan: StoragePlan) -> SourceSpec:
    """The description for a job: what to train on, where it lives, and how its rows are split."""
    absolute_nodes(params.storage.nodes, run.root)  # their passwords, which are handed on to those who train
    open_store(params, run.root)
    return SourceSpec(
        manifest=measurement.manifest,
        schema=measurement.schema,
        mode=plan.mode,
        nodes=plan.nodes,
        nodes_before=plan.nodes_before,
        cache_folder=cache_folder(run.root),
        look_ahead=params.storage.look_ahead,
        seed=params.seed,
        validation_share=params.data.validation_share,
        test_share=held_out_share(params),
        wait=params.storage.wait,
    )


def held_out_share(params: Params) -> float:
    """The share of the training set that is kept for the test: none where there is a test set of its own."""
    return params.data.test_share if params.data.test_path is None else 0.0
