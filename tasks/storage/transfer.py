"""Objects from the source store: into memory, through a reader, or into DVC's cache, each verified by its hash.

Nothing is ever removed from the store. Errors are `RetrainingError`s of one line that names the object.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tasks.errors import RetrainingError
from tasks.records import Manifest, Shard
from tasks.storage.leftovers import partial_name, remove_leftovers
from tasks.storage.listing import object_name, parse_listing
from tasks.storage.pieces import pieces
from tasks.storage.place_errors import from_os_error, one_line
from tasks.storage.places import FullError, MissingError, Place, locate
from tasks.storage.store import WrongObjectError, check, hash_file

CONNECTIONS = 32
FETCHES = 2
"""How often an object is fetched that arrives with wrong bytes."""

T = TypeVar("T")


class StoredObject(NamedTuple):
    """What people know it by, where the store holds it, its md5 (with `.dir` for a listing), its size if known."""

    name: str
    url: str
    version: str
    bytes: int | None = None
