"""A trial in a process of its own that has torch imported already, and nothing else of earlier trials."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any


def in_fork(function: Callable[[], Any]) -> Any:
    """What `function` returns in a fork of this process, through JSON. Raises `ChildProcessError` where it fails."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, json.dumps(function()).encode())
            code = 0
        except Exception:  # said here, since the parent can't
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise ChildProcessError(f"a trial ended with {os.waitstatus_to_exitcode(status)}")
    return json.loads(found)
