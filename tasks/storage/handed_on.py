"""What the environment alone carries to the processes of a run: how the store is opened, and passwords of nodes.

A process that was started before these were known is told them with what it is asked to do.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tasks.storage.node_passwords import PASSWORDS
from tasks.storage.store_options import STORE_OPTIONS

_NAMES = (STORE_OPTIONS, PASSWORDS)


def handed_on() -> dict[str, str]:
    """What this process knows. Secrets: not for files, journals, reports or MLflow."""
    return {name: os.environ[name] for name in _NAMES if name in os.environ}


def take_over(known: Mapping[str, str]) -> None:
    """Know in this process, and in those that it starts from now on, what another one knew, and no more."""
    for name in _NAMES:
        os.environ.pop(name, None)
    os.environ.update(known)
