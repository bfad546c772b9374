"""Step 7: after a missed target the data is staged again from its source, on more storage nodes (claim A1.b)."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.choose_storage import check_movable
from tasks.config import Params
from tasks.decisions.storage_mode import decide_restaging
from tasks.errors import ParameterError, RetrainingError
from tasks.journal import Journal
from tasks.measure_dataset import write_measured
from tasks.records import Measurement, NodeSpec, Run, Schema, StoragePlan
from tasks.storage.manifests import capacity_of
from tasks.storage.measure import measure
from tasks.storage.nodes import absolute_nodes, usable_nodes
from tasks.storage.opening import open_store
from tasks.storage.repository import is_moving


def restage_data(
    params: Params, run: Run, measurement: Measurement, plan: StoragePlan
) -> tuple[Measurement, StoragePlan]:
    """The data set to go on with and where it lives: distributed, on all storage nodes.

    An empty `data.rev` or a branch is resolved again, and a newer version is used from here on, unless the pretrained
    model can't read it, or it doesn't fit nodes or memory. A node that can't be used is left out, and said so; raises
    `RetrainingError` where none is left.
    """
    open_store(params, run.root)
    nodes, left_out = usable_nodes(absolute_nodes(params.storage.nodes, run.root), measurement.manifest)
    newer, kept_because = _newer_version(params, run, measurement, nodes)
    present = newer or measurement
    decision = decide_restaging(
        nodes_before=len(plan.nodes) or 1,  # in local mode this machine is the only node
        nodes_after=len(nodes),
        version_before=measurement.manifest.version,
        version_after=present.manifest.version,
        kept_because=kept_because,
        left_out=left_out,
    )
    journal = Journal(run.journal)
    if newer is not None:
        write_measured(params, run, newer)
    journal.decide(decision, branch="continue")
    return present, StoragePlan("distributed", nodes, decision, nodes_before=plan.nodes)


def _newer_version(
    params: Params, run: Run, measurement: Measurement, nodes: Sequence[NodeSpec]
) -> tuple[Measurement | None, str | None]:
    """A newer version to go on with (None: there is none), or why one that there is can't be used."""
    data = params.data
    if not is_moving(run.root, data.rev):
        return None, None
    try:
        training = capacity_of(run.root, data.path, data.rev, data.remote)
        test = None if data.test_path is None else capacity_of(run.root, data.test_path, data.rev, data.remote)
        known_test = None if measurement.test is None else measurement.test.version
        if training.version == measurement.manifest.version and (test is None or test.version == known_test):
            return None, None
        newer = measure(params, run.root)
        check_movable(params, newer.manifest, nodes)
    except (ParameterError, RetrainingError) as error:
        return None, " ".join(str(error).split())
    changed = _what_changed(measurement.schema, newer.schema)
    return (None, f"its {changed} differ, and the pretrained model can't read them") if changed else (newer, None)


def _what_changed(old: Schema, new: Schema) -> str:
    differences = {
        "classes": (old.label_type, old.classes) != (new.label_type, new.classes),
        "columns": [(column.name, column.length) for column in old.features]
        != [(column.name, column.length) for column in new.features],
        "categories": [column.categories for column in old.features] != [column.categories for column in new.features],
        "numbers a sample": (old.input_shape, old.dtype) != (new.input_shape, new.dtype),
    }
    return " and ".join(name for name, differs in differences.items() if differs)
