"""Prefect's server, a worker and MLflow's UI on loopback, until a signal: python -m flows.serve, or `make serve`.

Imports Prefect only after it has set what Prefect reads from the environment.
"""

import argparse
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psutil

from flows.children import Child, Children
from flows.direct_run import ENVIRONMENT, HEARTBEAT
from tasks.config import Params
from tasks.errors import RetrainingError, complain
from tasks.parameter_file import load_params
from tasks.tracking.client import open_store, store_uri

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".prefect" / "logs"
HOST = "127.0.0.1"
START_SECONDS = 120.0
# A run that is told to end stops its workers, writes its report and tells MLflow.
RUN_END_SECONDS = 25.0
POLL_SECONDS = 0.3


def main(arguments: list[str]) -> int:
    """Serve until a signal comes or a process ends. Returns the exit code."""
    found = _read(arguments)
    api = f"http://{HOST}:{found.prefect_port}/api"
    os.environ.update(ENVIRONMENT | HEARTBEAT | {"PREFECT_API_URL": api, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        params = load_params(ROOT / "params.yaml")
        with Children(LOGS, dict(os.environ)) as children:
            _serve(children, params, found.prefect_port, found.mlflow_port)
    except Exception as error:
        return complain(error)


def _read(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m flows.serve", description="Start Prefect's server, a worker and MLflow's UI on loopback."
    )
    parser.add_argument("--prefect-port", metavar="PORT", type=_port, default=4200, help="default: 4200")
    parser.add_argument("--mlflow-port", metavar="PORT", type=_port, default=5000, help="default: 5000")
    found = parser.parse_args(arguments)
    if found.prefect_port == found.mlflow_port:
        parser.error(f"--prefect-port and --mlflow-port are both {found.prefect_port}: they must differ")
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: must be a number from 1 to 65535")
    return int(text)


def _serve(children: Children, params: Params, prefect_port: int, mlflow_port: int) -> NoReturn:
    """Start everything, say what to open, and watch. Raises `RetrainingError` for what has ended or can't start."""
    from httpx import HTTPError
    from prefect.client.orchestration import get_client
    from prefect.exceptions import PrefectException

    from flows import deployments
    from flows.closing import close_runs, end_leftovers

    deployments.schedule_of(params)
    tracked_by_server = params.tracking.uri.startswith(("http://", "https://"))
    _check_free(prefect_port, "PREFECT_PORT")
    if not tracked_by_server:
        _check_free(mlflow_port, "MLFLOW_PORT")
    print("starting Prefect's server ...", flush=True)
    address = f"http://{HOST}:{prefect_port}"
    server = _start(children, "server", ["prefect", "server", "start", "--host", HOST, "--port", str(prefect_port)])
    mlflow = params.tracking.uri if tracked_by_server else _start_mlflow(children, params, mlflow_port)
    _wait_for(children, f"{address}/api/health")
    deployments.register(params, ROOT)
    with get_client(sync_client=True) as client:
        # Nothing works on this pool before the worker has started.
        close_runs(ROOT)
        end_leftovers(client, deployments.POOL)
        worker = _start(
            children, "worker", ["prefect", "worker", "start", "--pool", deployments.POOL, "--type", "process"]
        )
        try:
            if not tracked_by_server:
                _wait_for(children, f"http://{HOST}:{mlflow_port}/health")
            _say(address, mlflow)
            while True:
                _check_alive(children)
                time.sleep(POLL_SECONDS)
        finally:
            _end_worker(worker)
            close_runs(ROOT)
            # Otherwise the next start does it: Prefect would try for minutes to reach a server that is gone.
            if server.process.poll() is None:
                with suppress(PrefectException, HTTPError):
                    end_leftovers(client, deployments.POOL)


def _start(children: Children, name: str, module_and_arguments: list[str]) -> Child:
    """With this interpreter, so that flow runs have it too: a worker starts them with its own."""
    return children.start(name, [sys.executable, "-m", *module_and_arguments])


def _start_mlflow(children: Children, params: Params, port: int) -> str:
    """Start MLflow's UI on the store of the runs. Returns the address of their experiment."""
    uri = store_uri(params.tracking.uri, ROOT)
    # The store is made here, so that the UI and a run can't both be about to make it.
    store = open_store(uri, params.tracking.experiment, ROOT)
    _start(
        children,
        "mlflow",
        ["mlflow", "ui", "--backend-store-uri", uri, "--host", HOST, "--port", str(port), "--workers", "1"],
    )
    return f"http://{HOST}:{port}/#/experiments/{store.experiment_id}/runs?workflowType=machine_learning"


def _end_worker(worker: Child) -> None:
    """End the worker and its flow runs, which close their own journals and MLflow runs.

    A worker that is asked to end kills its flow runs instead. One that is killed can't: the kernel tells its flow runs.
    """
    try:
        runs = psutil.Process(worker.process.pid).children()
    except psutil.NoSuchProcess:
        runs = []
    worker.process.kill()
    worker.process.wait()
    _, left = psutil.wait_procs(runs, timeout=RUN_END_SECONDS)
    for run in left:
        run.kill()


def _check_free(port: int, variable: str) -> None:
    try:
        socket.create_server((HOST, port)).close()
    except OSError as error:
        raise RetrainingError(
            f"port {port} on {HOST} can't be used ({error.strerror}); another one: `make serve {variable}={port + 1}`"
        ) from None


def _wait_for(children: Children, address: str) -> None:
    """Wait until `address` answers. Raises `RetrainingError` when a process ends, or after `START_SECONDS`."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        _check_alive(children)
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise RetrainingError(f"{address} does not answer after {START_SECONDS:.0f} s; logs: {LOGS}") from None
        time.sleep(POLL_SECONDS)


def _check_alive(children: Children) -> None:
    ended = children.ended()
    if ended is not None:
        raise RetrainingError(
            f"the {ended.name} has ended (exit code {ended.process.returncode}); its log: {ended.log}"
        )


def _say(address: str, mlflow: str) -> None:
    prefect = Path(sys.executable).with_name("prefect")
    print(
        f"\nPrefect:  {address}\n"
        f"MLflow:   {mlflow}\n"
        f"logs:     {LOGS}\n\n"
        "In another terminal, in any directory (the third with one parameter of its own):\n"
        f"  export PREFECT_API_URL={address}/api\n"
        f"  {prefect} deployment run retraining/scheduled\n"
        f'  {prefect} deployment run retraining/scheduled -p \'params={{"pretrain": {{"duration": 5}}}}\'\n\n'
        "Ctrl-C ends it all.",
        flush=True,
    )


def _leave(number: int, _frame: object) -> NoReturn:
    # Once: what follows has its own limits, and must not be cut short.
    for again in (signal.SIGINT, signal.SIGTERM):
        signal.signal(again, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
