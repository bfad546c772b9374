"""A real MLflow server behind a relay: not there yet, gone in between, hanging for a while."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from tasks.config import Params
from tasks.journal import Journal
from tasks.records import Run
from tasks.tracking.client import open_store, prepare_environment
from tasks.tracking.forwarder import Forwarder
from tasks.tracking.registry import champion, log_model, make_champion
from tasks.tracking.scoring import score_model
from tasks.tracking.state import delivered, read_state
from tests.support.journals import end, end_branch, measure, new_run, params_at, start, start_branch
from tests.support.loopback import Relay


@pytest.fixture
def relay(server_port: int) -> Iterator[Relay]:
    relay = Relay(server_port)
    yield relay
    relay.close()


class Running:
    """A run that writes a point at a time, with its forwarder."""

    def __init__(self, root: Path, relay: Relay, experiment: str) -> None:
        self.params: Params = params_at(f"http://127.0.0.1:{relay.port}", experiment)
        self.run: Run
        self.run, self.lock, self.journal = new_run(root, self.params)
        self.forwarder = Forwarder(self.run, self.params)
        self.forwarder.start()
        start(self.journal, self.run, self.params)
        start_branch(self.journal)
        self.points = 0

    def measure(self) -> None:
        self.points += 1
        measure(self.journal, "pretrain", self.points, accuracy=self.points / 100)

    def wait_until_delivered(self) -> None:
        deadline = time.monotonic() + 60
        while not delivered(Path(self.run.folder)):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_for_outage(self) -> None:
        deadline = time.monotonic() + 60
        while not any("can't be reached" in str(event.get("message")) for event in self.events()):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def events(self) -> list[dict[str, object]]:
        return Journal(self.run.journal).events()

    def finish(self) -> None:
        """End the run, and see that all of it is on the server, once."""
        end_branch(self.journal)
        report = Path(self.run.folder) / "report.json"
        report.write_text("{}")
        self.journal.write("artifact", path=str(report))
        end(self.journal)
        assert self.forwarder.close(30)
        self.lock.release()
        state = read_state(Path(self.run.folder))
        client = MlflowClient(self.params.tracking.uri)
        found = client.search_runs([str(state.experiment_id)])
        assert sorted(run.info.status for run in found) == ["FINISHED", "FINISHED"]
        history = client.get_metric_history(state.children["pretrain"], "accuracy")
        assert [point.step for point in history] == list(range(1, self.points + 1))
        files = {file.path for file in client.list_artifacts(str(state.parent_run_id))}
        assert files == {"params.yaml", "report.json"}


def test_a_model_is_registered_crowned_and_scored_through_a_server_without_a_word(
    tmp_path: Path, relay: Relay, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    relay.open()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    store = open_store(f"http://127.0.0.1:{relay.port}", "models", tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "constant.py").write_text(
        "import pandas as pd\n"
        "class Model:\n"
        "    def predict(self, rows, params=None):\n"
        "        return pd.DataFrame({'prediction': rows['size'] * 2})\n"
        "def _load_pyfunc(data_path):\n"
        "    return Model()\n"
    )
    rows = pd.DataFrame({"size": [1.5, 2.0]})
    rows.to_parquet(tmp_path / "rows.parquet")
    run = store.client.create_run(store.experiment_id)
    (tmp_path / "model" / "weights").write_text("none")
    predictions = pd.DataFrame({"prediction": [3.0, 4.0]})
    code = [tmp_path / "constant.py"]
    model = log_model(store, run.info.run_id, tmp_path / "model", "served", rows, predictions, code, "constant")
    make_champion(store, model)
    assert champion(store, "served") == model
    assert score_model(store, model.uri, tmp_path / "rows.parquet") == [3.0, 4.0]
    assert not list((tmp_path / "temporary").iterdir())  # of what the scoring process has downloaded
    assert capfd.readouterr() == ("", "")  # what MLflow says in passing stays off the terminal


def test_a_server_that_comes_late_gets_everything_once(tmp_path: Path, relay: Relay) -> None:
    running = Running(tmp_path, relay, "late")
    running.measure()
    running.wait_for_outage()
    relay.open()
    running.measure()
    running.finish()


def test_a_server_that_goes_and_comes_back_gets_everything_once(tmp_path: Path, relay: Relay) -> None:
    relay.open()
    running = Running(tmp_path, relay, "back")
    running.measure()
    running.wait_until_delivered()
    relay.close()
    for _ in range(20):
        running.measure()
    running.wait_for_outage()
    relay.open()
    running.measure()
    running.finish()


def test_a_server_that_hangs_for_a_while_gets_everything_once(
    tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_environment()
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    relay.open()
    running = Running(tmp_path, relay, "hung")
    running.measure()
    running.wait_until_delivered()
    relay.stall()
    running.measure()
    running.wait_for_outage()
    relay.close()
    relay.open()
    running.measure()
    running.finish()
