"""How a direct run's process ends: with its exit code, after all that is to be done at exit, and with nothing more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import atexit, sys
from flows.signals import QuickEnd
end = QuickEnd()
atexit.register(sys.stdout.write, "done at exit ")
class Module:
    def __del__(self, write=sys.stdout.write):
        write("taken down ")
module = Module()
module.itself = module
{last}
"""


@pytest.mark.parametrize(
    ("last", "exit_code", "output"),
    [
        ("end.exit_code = 3\nsys.exit(3)", 3, "done at exit "),
        ("end.exit_code = 0", 0, "done at exit "),
        ("sys.exit(3)", 3, "done at exit taken down "),
    ],
)
def test_a_process_with_an_exit_code_ends_after_what_is_done_at_exit_and_takes_nothing_down(
    last: str, exit_code: int, output: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(last=last)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, output, "")
