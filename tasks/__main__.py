"""`python -m tasks STEP` runs one step, for dvc.yaml: it reads what others left in `state/` and leaves its own."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import psutil

from tasks.errors import EXIT_INTERRUPTED, complain
from tasks.parameter_file import load_params
from tasks.parent_death import die_with

STEPS = ("measure", "choose", "fetch", "fit", "pretrain", "evaluate", "continue", "promote")
ENVIRONMENT = {"DO_NOT_TRACK": "true", "DVC_NO_ANALYTICS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}


def main(arguments: list[str]) -> int:
    """Run one step. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tasks", description="Run one step of the pipeline in dvc.yaml.")
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--params", metavar="FILE", type=Path, default=Path("params.yaml"), help="default: params.yaml")
    parser.add_argument("--debug", action="store_true", help="show stack traces")
    found = parser.parse_args(arguments)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    _end_with_dvc()
    try:
        params = load_params(found.params)
        # Importing the steps takes seconds: `measure` does without, and wrong parameters are said before.
        if found.step == "measure":
            from tasks.measure_stage import run_measure

            run_measure(params, Path.cwd())
        else:
            from tasks.stages import STAGES

            STAGES[found.step](params, Path.cwd())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # whatever it is, it is said in a line
        if found.debug:
            raise
        return complain(error)
    return 0


def _end_with_dvc() -> None:
    """End in good order when the `dvc` that has started this step is gone: it leaves its commands running."""
    if "DVC_STAGE" not in os.environ:
        return
    starter = psutil.Process().parent()
    # Between the two there may be a shell, whose argument is the whole command.
    while starter is not None and any("-m tasks" in argument for argument in starter.cmdline()):
        starter = starter.parent()
    if starter is not None:
        die_with(starter.pid, signal.SIGTERM)


if __name__ == "__main__":
    exit_code = main(sys.argv[1:])
    # While the interpreter shuts down nothing catches an exception.
    signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))
    sys.exit(exit_code)
