from __future__ import annotations

import json

from tasks.tracking.view import view_state

# What an experiment's tag may hold in MLflow's stores.
LONGEST = 5000


def test_the_runs_table_shows_what_branches_and_runs_are_compared_by() -> None:
    columns = json.loads(view_state())["selectedColumns"]
    metrics = ["accuracy", "test_accuracy", "b_ratio", "delta_b", "gradient_coefficient"]
    metrics += ["coef_accuracy", "coef_duration", "coef_delta_b"]
    assert {f"metrics.`{key}`" for key in metrics} <= set(columns)
    tags = ["branch", "storage_mode", "update_mode", "micro_batch", "passes", "predicted_peak_bytes", "workers"]
    assert {f"tags.`{key}`" for key in (*tags, "nodes", "batch_size", "data.version")} <= set(columns)


def test_it_is_sorted_by_start_the_newest_first_in_a_spelling_that_folds_no_children_away() -> None:
    state = json.loads(view_state())
    assert state["orderByKey"].replace("`", "") == "attributes.start_time"
    assert state["orderByKey"] != "attributes.start_time"
    assert state["orderByAsc"] is False


def test_it_fits_a_tag() -> None:
    assert len(view_state()) < LONGEST
