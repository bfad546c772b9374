"""Where a run is seen in MLflow, as artifacts of the flow run."""

from pathlib import Path

from prefect.artifacts import create_link_artifact

from tasks.config import Params
from tasks.records import Run
from tasks.tracking.links import links_of

WHAT = {
    "runs": "All runs and their branches in MLflow",
    "branches": "The branches of this run side by side in MLflow",
    "run": "This run in MLflow",
}


def show_links(run: Run, params: Params) -> None:
    """Artifacts `mlflow-runs`, `mlflow-branches` and `mlflow-run`; none while the run hasn't reached MLflow."""
    for name, url in links_of(Path(run.folder), params).items():
        create_link_artifact(link=url, link_text=WHAT[name], key=f"mlflow-{name}", description=f"{WHAT[name]}: {url}")
