"""Calls of single functions in the fork server of a launcher: torch is loaded there, and they begin at once.

Each call has a process of its own, which leaves nothing on the device and nothing in the caller. Both sides are this
project's own processes, so that they may pickle.
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import pickle
import traceback
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from tasks.errors import RetrainingError, how_ended
from tasks.parent_death import die_with, die_with_parent
from tasks.storage.handed_on import handed_on, take_over

CALL = "call "
RUN = "run "


def run_function(target: str, arguments: tuple[Any, ...]) -> Any:
    """Call `module:function` here."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)(*arguments)


def request_line(target: str, arguments: tuple[Any, ...]) -> str:
    """The call as one line of text, with what the caller knows of stores and nodes."""
    return CALL + _as_text((target, arguments, handed_on()))


def job_line(job_file: str) -> str:
    """A phase to run as one line of text, with what the caller knows of stores and nodes."""
    return RUN + _as_text((job_file, handed_on()))


def job_of(line: str) -> tuple[str, dict[str, str]]:
    """The job file of a phase to run, and what is handed on to its processes."""
    job_file, known = _from_text(line.removeprefix(RUN))
    return job_file, known


def outcome_of(answer: str) -> Any:
    """What the call returned, or raises what it raised; `RetrainingError` where its process has ended early."""
    succeeded, value = _from_text(answer)
    if succeeded:
        return value
    raise value


def answer_to(request: str, launcher_pid: int) -> str:
    """Run a requested call in a process forked by the fork server, and return its outcome as one line of text."""
    context = multiprocessing.get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, request, launcher_pid))
    process.start()
    sender.close()
    try:
        answer: str = receiver.recv()
    except EOFError:
        process.join()
        target, *_ = _from_text(request.removeprefix(CALL))
        said = RetrainingError(f"{target}: its process has ended early ({how_ended(process.exitcode or 0)})")
        return _as_text((False, said))
    process.join()
    return answer


def _answer(sender: Connection, request: str, launcher_pid: int) -> None:
    die_with_parent()
    die_with(launcher_pid)
    # The launcher's output is for its answers: what a user's code prints may not get between them.
    os.dup2(2, 1)
    target, arguments, known = _from_text(request.removeprefix(CALL))
    take_over(known)
    try:
        outcome = (True, run_function(target, arguments))
    except Exception as error:
        error.add_note("".join(traceback.format_exception(error)))
        outcome = (False, error)
    try:
        answer = _as_text(outcome)
        _from_text(answer)
    except Exception:  # a user's exception that can't be pickled, or can't be made again from its arguments
        answer = _as_text((False, RetrainingError(f"{type(outcome[1]).__name__}: {outcome[1]}")))
    sender.send(answer)


def _as_text(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _from_text(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
