"""Asking several sources for the same bytes: the next one when the last has failed or is late; the first that is right
wins."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Source(NamedTuple):
    """`get` returns verified bytes or raises. `late_after_seconds` is when the next source is asked too (None: never,
    as with the last one); `on_late` is told then."""

    name: str
    get: Callable[[], memoryview]
    late_after_seconds: float | None
    on_late: Callable[[], None] = lambda: None


class Winner(NamedTuple):
    """What came first from whom, and for how long each source was the last that was asked."""

    content: memoryview
    name: str
    waited_seconds: dict[str, float]


def first_right(sources: Sequence[Source]) -> Winner:
    """Raises what the last source raised, when all have failed. Losers run on in threads of their own, to no effect."""
    waited: dict[str, float] = {}
    answers: queue.SimpleQueue[tuple[Source, memoryview | Exception]] = queue.SimpleQueue()

    def ask(source: Source) -> None:
        try:
            answers.put((source, source.get()))
        except Exception as error:  # handed to the thread that waits
            answers.put((source, error))

    running = 0
    failures: dict[str, Exception] = {}
    for number, source in enumerate(sources):
        began = time.monotonic()
        last = number == len(sources) - 1
        if last and not running:  # nobody to race with: no thread is needed
            ask(source)
        else:
            threading.Thread(target=ask, args=(source,), name=f"ask-{source.name}", daemon=True).start()
        running += 1
        deadline = None if last or source.late_after_seconds is None else began + source.late_after_seconds
        try:
            while running:
                timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    answered, answer = answers.get(timeout=timeout)
                except queue.Empty:
                    source.on_late()
                    break
                running -= 1
                if not isinstance(answer, Exception):
                    return Winner(answer, answered.name, waited)
                failures[answered.name] = answer
                if answered is source and not last:
                    break
        finally:
            waited[source.name] = waited.get(source.name, 0.0) + time.monotonic() - began
    raise failures[sources[-1].name]
