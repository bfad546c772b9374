"""The number format that forward passes and losses are computed in; parameters and their gradients stay as they are."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from tasks.errors import ParameterError
from tasks.training.out_of_memory import in_one_line

PrecisionName = Literal["float32", "bfloat16", "float16"]
# Makes a context to run one forward pass and its loss in.
Casting = Callable[[], AbstractContextManager[object]]

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
QUERY_SECONDS = 60.0


def casting(precision: PrecisionName, device_type: str) -> Casting:
    """Contexts in which torch chooses the format, operation by operation; `float32` leaves everything as it is."""
    if precision == "float32":
        return nullcontext
    return partial(torch.autocast, device_type, dtype=DTYPES[precision])


def check_precision(precision: PrecisionName, device_type: str) -> None:
    """Raises `ParameterError` where the device can't train in this precision.

    CUDA is asked in a process of its own, so that the caller keeps no context on the device.
    """
    if precision == "float32":
        return
    ask = _asked_elsewhere if device_type == "cuda" else fault_of
    fault = ask(precision, device_type)
    if fault:
        raise ParameterError(
            [f"cluster.precision: {precision!r} can't be had on {device_type}: {fault}; float32 always can"]
        )


def fault_of(precision: PrecisionName, device_type: str) -> str | None:
    """What keeps a small step from being run in this precision, in one line; None where it is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch only warns of a format that it doesn't know on a device
            model = nn.Linear(2, 2, device=device_type)
            scaler = torch.amp.GradScaler(device_type, enabled=precision == "float16")
            with casting(precision, device_type)():
                outputs = model(torch.ones(2, 2, device=device_type))
            torch.autograd.backward(scaler.scale(outputs.float().sum()))
            scaler.unscale_(torch.optim.SGD(model.parameters(), lr=0.1))
    except Exception as error:  # whatever torch or a driver says
        return in_one_line(error)
    return None if outputs.dtype == DTYPES[precision] else f"torch computes in {outputs.dtype} instead"


def _asked_elsewhere(precision: PrecisionName, device_type: str) -> str | None:
    done = subprocess.run(
        [sys.executable, "-m", "tasks.training.precision", precision, device_type],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=QUERY_SECONDS,
        check=False,
    )
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[-1] if done.returncode else None


if __name__ == "__main__":
    named, kind = sys.argv[1:]
    sys.exit(fault_of(named, kind))  # type: ignore[arg-type]
