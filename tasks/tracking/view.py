"""PURE: the view that the runs table of MLflow's UI opens on: which columns, in which order.

MLflow keeps a shared view as a tag of the experiment, in a format of its UI that isn't documented (read from 3.17).
"""

from __future__ import annotations

import json

VIEW_KEY = "retraining"
VIEW_TAG = f"mlflow.sharedViewState.{VIEW_KEY}"

_METRICS = (
    "accuracy",
    "test_accuracy",
    "b_ratio",
    "delta_b",
    "coef_accuracy",
    "coef_duration",
    "coef_delta_b",
    "gradient_coefficient",
)
# The batch plan is in the tags of parents and of children; as parameters the children alone have it.
_TAGS = (
    "storage_mode",
    "update_mode",
    "workers",
    "nodes",
    "batch_size",
    "micro_batch",
    "passes",
    "predicted_peak_bytes",
    "data.version",
)
# The UI folds the children away where it sorts by exactly `attributes.start_time`. This is the same column in another
# spelling, with which parents and children stand below each other.
_START_TIME = "attributes.`start_time`"
_NAME = "attributes.`Run Name`"
_NAME_PIXELS = 360


def view_state() -> str:
    """The value of the tag `VIEW_TAG`."""
    columns = [
        "attributes.`Duration`",
        "tags.`branch`",
        *(f"metrics.`{key}`" for key in _METRICS),
        *(f"tags.`{key}`" for key in _TAGS),
        "attributes.`Dataset`",
    ]
    return json.dumps(
        {
            "selectedColumns": columns,
            # A column has its width only if it is in the order too; those that aren't follow in the UI's own order.
            "columnOrder": [_NAME],
            "columnWidths": {_NAME: _NAME_PIXELS},
            "orderByKey": _START_TIME,
            "orderByAsc": False,
        }
    )
