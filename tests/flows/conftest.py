from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.project import Finished, copy_project, edit_params, retrain
from tests.support.serving import Served


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def loaded_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `sitecustomize` has the process of a direct run write there, as the last thing that it does, which
    modules it has, and how many objects it looks for garbage among no more."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "sitecustomize.py").write_text(
        "import atexit, gc, pathlib, sys\n"
        "def write():\n"
        "    folder = pathlib.Path(__file__).parent\n"
        "    (folder / 'modules').write_text('\\n'.join(sys.modules))\n"
        "    (folder / 'frozen').write_text(str(gc.get_freeze_count()))\n"
        "if 'flows.retraining' in sys.orig_argv:\n"
        "    atexit.register(write)\n"
    )
    return folder


@pytest.fixture(scope="session")
def default_run(project: Path, loaded_modules: Path) -> Finished:
    """The main job, once, in a fresh clone."""
    return retrain(project, PYTHONPATH=str(loaded_modules))


@pytest.fixture(scope="session")
def second_run(project: Path, default_run: Finished) -> Finished:
    assert default_run.code == 0
    return retrain(project)


@pytest.fixture(scope="session")
def short_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose params.yaml was edited: a short run that misses its target, and a schedule of its own."""
    project = copy_project(tmp_path_factory.mktemp("short"))
    edit_params(
        project / "params.yaml",
        {
            "pretrain": {"target_accuracy": 1.0},
            "continuation": {"duration": 2.5},
            "schedule": {"cron": "30 4 * * 1-5", "timezone": "Europe/Berlin"},
        },
    )
    return project


@pytest.fixture(scope="session")
def served(short_project: Path) -> Iterator[Served]:
    """Server, worker and MLflow's UI, as `make serve` starts them."""
    served = Served(short_project)
    try:
        yield served.wait_until_ready()
    finally:
        if served.process.poll() is None:
            served.end(signal.SIGTERM)


@pytest.fixture(scope="session")
def silent_flow_run(served: Served) -> str:
    """A flow run that was killed with nobody to notice it. Made early, since the rule that notices waits for it."""
    script = (
        "import time\n"
        "from prefect import flow\n"
        "from prefect.runtime import flow_run\n"
        "@flow(name='retraining')\n"
        "def waiting():\n"
        "    print(flow_run.id, flush=True)\n"
        "    time.sleep(3)\n"
        "    print('beating', flush=True)\n"
        "    time.sleep(600)\n"
        "waiting()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=served.environment | {"PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    flow_run = process.stdout.readline().strip()
    assert process.stdout.readline() == "beating\n"
    process.kill()
    process.wait()
    process.stdout.close()
    return flow_run
