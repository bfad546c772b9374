"""Every storage that torch makes while it runs: how large it is, when it is born and dies, and in which module."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.hooks import RemovableHandle

from tasks.training.known_operations import KnownOperations

_DEVICE_OF = torch.ops.prim.device.default
_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


OPERATIONS_A_LOOK = 32


class TooSlowError(Exception):
    """Tracing took longer than it may."""


class Modules:
    """Names the module whose forward is running, and the one whose forward has made a node of the backward graph.

    Autograd numbers its nodes as they are made, so that the numbers seen at a module's beginning and end tell which
    nodes are its own.
    """

    def __init__(self, model: nn.Module) -> None:
        # A compiled module holds the original one under a name of its own.
        self._names = {
            module: name.removeprefix("_orig_mod").removeprefix(".") or "model"
            for name, module in model.named_modules()
        }
        self._handles: list[RemovableHandle] = []
        self._running: list[tuple[str, int]] = []
        self._makers: dict[int, str] = {}

    def __enter__(self) -> Modules:
        for module in self._names:
            self._handles.append(module.register_forward_pre_hook(self._begins))
            self._handles.append(module.register_forward_hook(self._ends, always_call=True))
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def here(self) -> tuple[str, bool]:
        """The name of the module at work ("" outside of all, as in the loss), and whether it is in its forward."""
        if self._running:
            return self._running[-1][0], True
        node = torch._C._current_autograd_node()
        return (self._makers.get(node._sequence_nr(), "") if node is not None else ""), False

    def _begins(self, module: nn.Module, _: Any) -> None:
        self._running.append((self._names[module], _sequence_number()))

    def _ends(self, _: nn.Module, __: Any, ___: Any) -> None:
        name, first = self._running.pop()
        for number in range(first, _sequence_number()):
            self._makers.setdefault(number, name)  # the innermost module ends first


class Ledger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Numbers every storage that an operation returns, in the order of their births. For real and for fake tensors.

    `events` holds `i` for the birth of storage number i and `~i` for its death. `until` is the moment of
    `time.process_time` after which an operation raises `TooSlowError`.
    """

    def __init__(self, modules: Modules, until: float | None = None, known: KnownOperations | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.modules = modules
        self.known = known
        self.until = math.inf if until is None else until
        self._operations = 0
        self.sizes: list[int] = []
        self.places: list[tuple[str, bool]] = []
        self.events: list[int] = []
        self._numbers: dict[int, int] = {}
        self._watched: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._watched.clear()  # what dies from now on is none of its business

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that were there before."""
        for tensor in tensors:
            self._born(tensor)

    def numbers_of(self, tensors: Iterable[torch.Tensor]) -> set[int]:
        """The numbers of the storages that these tensors lie in."""
        keys = (part.untyped_storage()._cdata for tensor in tensors for part in _dense_parts(tensor))
        return {self._numbers[key] for key in keys if key in self._numbers}

    @property
    def alive(self) -> set[int]:
        """The numbers of the storages that live now."""
        return set(self._numbers.values())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled while a ledger is open, and what torch would wrap around each operation takes longer."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Most of what is asked of fake tensors is where they are. It is answered here, as they would answer it.
        if func is _DEVICE_OF and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        self._operations += 1
        # The clock takes as long as all of the rest here.
        if self._operations % OPERATIONS_A_LOOK == 0 and time.process_time() > self.until:
            raise TooSlowError
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs) if self.known is None else self.known.run(func, args, kwargs)
        for leaf in (outputs,) if isinstance(outputs, torch.Tensor) else tree_leaves(outputs):
            if isinstance(leaf, torch.Tensor):
                self._born(leaf)
        return outputs

    def _born(self, tensor: torch.Tensor) -> None:
        for part in _dense_parts(tensor):
            storage = part.untyped_storage()
            key = storage._cdata
            if key not in self._numbers:
                number = self._numbers[key] = len(self.sizes)
                self.sizes.append(storage.nbytes())
                self.places.append(self.modules.here())
                self.events.append(number)
                self._watched[number] = weakref.ref(storage, partial(self._died, key, number))

    def _died(self, key: int, number: int, _: object) -> None:
        del self._numbers[key], self._watched[number]
        self.events.append(~number)


def _dense_parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that hold the bytes: a sparse one (the gradient of a sparse embedding) has no storage of its own."""
    if tensor.layout == torch.sparse_coo:
        yield tensor._indices()
        yield tensor._values()
    elif tensor.layout == torch.strided:
        yield tensor
