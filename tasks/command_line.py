"""The command line of a run: parameters, single keys on top of them, and which run to go on with."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from tasks.config import Params
from tasks.errors import ParameterError, complain
from tasks.parameter_file import load_params
from tasks.run_folder import run_folders
from tasks.session import why_not_resumed
from tasks.tracking.client import store_uri

NEWEST = ""


@dataclass(frozen=True)
class Arguments:
    """`resume` names a run to go on with: "" is the newest, None a new run. `debug` shows stack traces."""

    params: Params
    resume: str | None
    debug: bool


def read_arguments(arguments: list[str]) -> Arguments:
    """Read and check the command line. Raises `ParameterError` with a line a fault; `--help` exits."""
    parser = argparse.ArgumentParser(
        prog="python -m flows.retraining", description="Retrain a model on a DVC-tracked data set and promote it."
    )
    parser.add_argument("--params", metavar="FILE", type=Path, default=Path("params.yaml"), help="default: params.yaml")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="override one key, for example pretrain.duration=5",
    )
    parser.add_argument(
        "--resume",
        metavar="RUN",
        nargs="?",
        const=NEWEST,
        help="go on with a run and its parameters (default: the newest)",
    )
    parser.add_argument("--debug", action="store_true", help="show stack traces")
    found = parser.parse_args(arguments)
    overrides = []
    for setting in found.set:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ParameterError([f"--set {setting!r}: must be KEY=VALUE, for example pretrain.duration=5"])
        overrides.append((key.strip(), value))
    file = found.params if found.resume is None else _params_of(found.resume)
    params = load_params(file, overrides)
    if found.resume is not None:
        params = _with_passwords_of(found.params, params)
    store_uri(params.tracking.uri, Path.cwd())
    return Arguments(params, found.resume, found.debug)


def _with_passwords_of(file: Path, params: Params) -> Params:
    """The parameters of a run, which are kept without passwords, with those that the file has for the same nodes."""
    try:
        storage = params.storage.with_passwords_of(load_params(file).storage)
    except ParameterError:  # what goes on is the run, whatever the file says by now
        return params
    return params.model_copy(update={"storage": storage})


def _params_of(run: str) -> Path:
    """The parameters that a run was started with: what goes on is that run, whatever params.yaml says by now."""
    started = [folder for folder in run_folders(Path.cwd()) if (folder / "journal.jsonl").exists()]
    chosen = started[-1:] if run == NEWEST else [folder for folder in started if folder.name == run]
    if not chosen:
        names = ", ".join(folder.name for folder in started[-3:]) or "none"
        raise ParameterError([f"--resume {run!r}: there is no such run to go on with; the newest are {names}"])
    why_not = why_not_resumed(chosen[0])
    if why_not is not None:
        raise ParameterError([f"--resume {run!r}: {chosen[0].name} {why_not}"])
    return chosen[0] / "params.yaml"


def read_arguments_or_exit(arguments: list[str]) -> Arguments:
    """Like `read_arguments`, but wrong parameters end the process, one line a fault, with exit code 2."""
    try:
        return read_arguments(arguments)
    except ParameterError as error:
        sys.exit(complain(error))
