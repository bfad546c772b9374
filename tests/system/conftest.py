"""A run of the main job that real servers know of, and a browser that looks at their pages."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from tests.support.loopback import free_port
from tests.support.project import ROOT, Finished, copy_project, environment, retrain
from tests.support.servers import serving

CHROMIUM = "/usr/bin/chromium"
# Nothing but loopback is reached, by pages or by the browser itself.
CLOSED = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", CLOSED]
PATIENCE_MS = 30_000
# What a README's reader should have to wait for.
LARGEST_PICTURE = 300_000
ELSEWHERE = re.compile(r"^(?!http://127\.0\.0\.1:|data:|blob:)")


@dataclass(frozen=True)
class Shown:
    """A finished run of both branches, and the servers that show it."""

    run: Finished
    prefect: str
    mlflow: str
    experiment_id: str
    parent: Run
    children: tuple[Run, ...]


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The main job in a fresh clone with a Prefect server; then MLflow's UI, by the command that the run prints."""
    project = copy_project(tmp_path_factory.mktemp("project"))
    (project / ".venv").symlink_to(sys.prefix)
    prefect, mlflow = free_port(), free_port()
    api = f"http://127.0.0.1:{prefect}/api"
    known = environment(project, PREFECT_API_URL=api, PREFECT_SERVER_ANALYTICS_ENABLED="false", DO_NOT_TRACK="true")
    start_prefect = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(prefect)]
    with serving(start_prefect, project, known, f"{api}/health"):
        run = retrain(project, PREFECT_API_URL=api)
        assert run.code == 0, run.output
        (printed,) = re.findall(r"^MLflow: +(.* ui .*)$", run.output, re.MULTILINE)
        start_mlflow = ["env", *shlex.split(printed), "--port", str(mlflow)]
        with serving(start_mlflow, project, environment(project), f"http://127.0.0.1:{mlflow}/health"):
            yield look_up(run, f"http://127.0.0.1:{prefect}", f"http://127.0.0.1:{mlflow}")


def look_up(run: Finished, prefect: str, mlflow: str) -> Shown:
    client = MlflowClient(mlflow)
    experiment = client.get_experiment_by_name("adaptive-retraining")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    parent, *children = found
    assert [child.data.tags["branch"] for child in children] == ["pretrain", "continue"], run.output
    return Shown(run, prefect, mlflow, experiment.experiment_id, parent, tuple(children))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def refused() -> set[str]:
    """Hosts that pages have asked for and were not let to."""
    return set()


@pytest.fixture(scope="module")
def page(browser: Browser, refused: set[str]) -> Iterator[Page]:
    """A tab that reaches this machine only."""

    def refuse(route: Route) -> None:
        refused.add(urlsplit(route.request.url).hostname or "")
        route.abort()

    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    context.route(ELSEWHERE, refuse)
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: `make screenshots` says docs/, else nowhere that lasts."""
    wanted = os.environ.get("SCREENSHOTS")
    return ROOT / wanted if wanted else tmp_path_factory.mktemp("pictures")
