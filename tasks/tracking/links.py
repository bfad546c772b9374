"""Where a run is seen in MLflow's UI."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote, urlsplit

from tasks.config import Params
from tasks.tracking.state import read_state
from tasks.tracking.view import VIEW_KEY

# Where MLflow's UI is served for a store that has no server of its own.
LOCAL_UI = "http://127.0.0.1:5000"
_TRAINING = "workflowType=machine_learning"


def links_of(folder: Path, params: Params) -> dict[str, str]:
    """Addresses by name: `runs`, the table of all runs; `branches`, this run's branches side by side; `run`, this run.

    Nothing where the run in `folder` hasn't reached MLflow; no `branches` where there is one alone.
    """
    state = read_state(folder)
    if state.parent_run_id is None or state.experiment_id is None:
        return {}
    ui, experiment = _ui(params.tracking.uri), state.experiment_id
    links = {"runs": f"{ui}/#/experiments/{experiment}/runs?{_TRAINING}&viewStateShareKey={VIEW_KEY}"}
    children = list(state.children.values())
    if len(children) > 1:
        links["branches"] = f"{ui}/#/compare-runs?runs={_list(children)}&experiments={_list([experiment])}&{_TRAINING}"
    return links | {"run": f"{ui}/#/experiments/{experiment}/runs/{state.parent_run_id}"}


def _ui(uri: str) -> str:
    """The address of the UI, without the user and password that `uri` may hold."""
    if not uri.startswith(("http://", "https://")):
        return LOCAL_UI
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _list(ids: list[str]) -> str:
    return quote(json.dumps(ids, separators=(",", ":")))
