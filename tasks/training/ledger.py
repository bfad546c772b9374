"""Bytes of tensor storage that are alive while torch runs, and the most that ever were."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the birth and death of every storage that an operation returns. Works on real and on fake tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.alive: dict[int, int] = {}
        self.live_bytes = 0
        self.peak_bytes = 0
        # Every birth (its bytes) and every death (minus its bytes) since the start.
        self.events: list[int] = []

    def note(self, *tensors: torch.Tensor) -> None:
        """Count tensors that were there before."""
        for tensor in tensors:
            self._born(tensor)

    def restart(self) -> None:
        """Begin anew with what is alive now: the peak, and the events."""
        self.peak_bytes = self.live_bytes
        self.events = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor):
                self._born(leaf)
        return outputs

    def _born(self, tensor: torch.Tensor) -> None:
        for part in _dense_parts(tensor):
            storage = part.untyped_storage()
            key = storage._cdata
            if key in self.alive:
                continue
            self.alive[key] = storage.nbytes()
            self._change(storage.nbytes())
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)
            weakref.finalize(storage, self._died, key)

    def _died(self, key: int) -> None:
        self._change(-self.alive.pop(key))

    def _change(self, difference: int) -> None:
        self.live_bytes += difference
        self.events.append(difference)


def _dense_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold the bytes: a sparse one (the gradient of a sparse embedding) has no storage of its own."""
    if tensor.layout == torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout == torch.strided:
        yield tensor
