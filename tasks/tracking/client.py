"""How MLflow's store is reached: its address, the client, and the experiment.

mlflow is imported here alone, and late: importing it takes seconds. Telemetry is off, and a server that is down is
noticed within seconds, where the environment doesn't say otherwise.
"""

from __future__ import annotations

import fcntl
import logging
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.errors import ParameterError, RetrainingError
from tasks.tracking.database import make_database
from tasks.tracking.failures import TrackingUnavailableError, is_refused, one_line
from tasks.tracking.view import VIEW_TAG, view_state

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
PROBE_SECONDS = 3.0

ENVIRONMENT = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
}

_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql", "http", "https")


@dataclass(frozen=True)
class Store:
    """An open store: everything that is sent goes through `client` into `experiment_id`."""

    uri: str
    client: MlflowClient
    experiment_id: str


def store_uri(uri: str, root: Path) -> str:
    """`tracking.uri` with the path of an sqlite file made absolute against the project's root.

    Raises `ParameterError` for an address that MLflow has no store for.
    """
    scheme, separator, rest = uri.partition("://")
    dialect = scheme.partition("+")[0]
    if not separator or dialect not in _SCHEMES or (dialect == "sqlite" and not uri.startswith(SQLITE)):
        raise ParameterError(
            [
                f"tracking.uri: {uri!r} is not allowed: must be sqlite:///FILE, http(s)://HOST, or the address of a "
                "PostgreSQL, MySQL or MS SQL database"
            ]
        )
    path = rest[1:]
    if dialect == "sqlite" and not path.startswith("/"):
        if not path:
            raise ParameterError([f"tracking.uri: {uri!r} is not allowed: sqlite:/// needs the path of a file"])
        return f"{SQLITE}{root.resolve() / path}"
    return uri


def prepare_environment() -> None:
    """Set what MLflow reads from the environment, where it is not set yet."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def open_client(uri: str) -> MlflowClient:
    """A client for an address from `store_uri`. Raises `TrackingUnavailableError` when nothing answers there."""
    prepare_environment()
    _probe(uri)
    from mlflow import MlflowClient

    # A refused connection is reported once, by us.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    for noisy in ("mlflow", "mlflow.store.db.utils", "alembic", "alembic.runtime.migration"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    with _schema_lock(uri) as file:
        if file is not None and not file.exists():
            make_database(file)
        return MlflowClient(tracking_uri=uri, registry_uri=uri)


def open_store(uri: str, experiment: str, root: Path) -> Store:
    """The client and the experiment, made if missing (and restored if deleted), with the view of its runs table.

    `uri` as `store_uri` gives it. Artifacts of an experiment in an sqlite store lie in `<root>/mlartifacts`; a server
    keeps its own. Raises `TrackingUnavailableError` when nothing answers.
    """
    client = open_client(uri)
    location = (root.resolve() / "mlartifacts").as_uri() if uri.startswith(SQLITE) else None
    with reaching(uri), _schema_lock(uri):
        found = client.get_experiment_by_name(experiment)
        if found is None:
            try:
                client.create_experiment(experiment, artifact_location=location)
            except Exception as error:
                # Another process made it in between.
                if not is_refused(error):
                    raise
            found = client.get_experiment_by_name(experiment)
        if found is None:
            raise TrackingUnavailableError(f"MLflow at {uri}: the experiment {experiment!r} can't be made")
        if found.lifecycle_stage == "deleted":
            client.restore_experiment(found.experiment_id)
        view = view_state()
        if found.tags.get(VIEW_TAG) != view:
            client.set_experiment_tag(found.experiment_id, VIEW_TAG, view)
    return Store(uri, client, found.experiment_id)


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """Turn what MLflow raises into one line: `TrackingUnavailableError` for a store out of reach, `RetrainingError` for
    what it refuses as invalid."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        if is_refused(error):
            raise RetrainingError(f"MLflow at {uri} refused: {one_line(error)}") from error
        raise TrackingUnavailableError(f"MLflow at {uri}: {one_line(error)}") from error


def _probe(uri: str) -> None:
    """Ask a server for a sign of life first: it takes seconds, where MLflow's client would take many."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        urllib.request.urlopen(uri.rstrip("/") + "/health", timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError:
        return  # Whatever it said, it answered.
    except (OSError, ValueError) as error:
        raise TrackingUnavailableError(f"MLflow at {uri}: {one_line(error)}") from error


@contextmanager
def _schema_lock(uri: str) -> Iterator[Path | None]:
    """Hold off other processes while the tables of an sqlite store are made: two that make them at once both fail.

    Gives the file of such a store.
    """
    if not uri.startswith(SQLITE):
        yield None
        return
    file = Path(uri.removeprefix(SQLITE).partition("?")[0])
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(file.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file
