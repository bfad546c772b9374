"""What an operation on fake tensors makes is found once for all arguments that look alike.

Torch remembers that too, under keys so thorough that a look-up takes several times as long as all the rest of a step
under fake tensors. Here only what is simple is remembered: operations of torch itself on dense tensors and plain
values, whose outputs are new tensors, views of an argument, or an argument. Everything else is asked of torch each
time, and so is whatever can't be made here just as torch has made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, disable_fake_tensor_cache

# All that an operation can know of such an argument is its value.
_PLAIN = frozenset((type(None), bool, int, float, str, torch.dtype, torch.device, torch.layout, torch.memory_format))
# Of operations whose outputs depend on values, or that change what an argument looks like.
_UNFIT = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)

Key = tuple[Any, ...]
# Makes an output from the tensors among the arguments.
Maker = Callable[[Sequence[FakeTensor]], Any]


class NotSimpleError(Exception):
    """An operation, argument or output is of a kind that is asked of torch each time."""


class KnownOperations:
    """Runs operations on the fake tensors of a mode; those that are known without torch's help."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        self._fit: dict[object, bool] = {}
        self._makers: dict[Key, Maker] = {}
        self._not_simple: set[Key] = set()

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What `func` makes of these arguments."""
        tensors: list[FakeTensor] = []
        try:
            key = self._key(func, args, kwargs, tensors)
        except NotSimpleError:
            return func(*args, **kwargs)
        make = self._makers.get(key)
        if make is not None:
            return make(tensors)
        if key in self._not_simple:
            return func(*args, **kwargs)
        with disable_fake_tensor_cache(self.mode):  # what it would remember is remembered here
            outputs = func(*args, **kwargs)
        try:
            # One that changes what its arguments look like is not simple, whatever it says of itself.
            if self._key(func, args, kwargs, []) != key:
                raise NotSimpleError
            self._makers[key] = self._maker(outputs, tensors)
        except NotSimpleError:
            self._not_simple.add(key)
        return outputs

    def _key(self, func: Any, args: Iterable[Any], kwargs: dict[str, Any], tensors: list[FakeTensor]) -> Key:
        """How the arguments look, whose tensors are added to `tensors`."""
        if func not in self._fit:
            unfit = not isinstance(func, OpOverload) or func.namespace != "aten" or any(t in func.tags for t in _UNFIT)
            self._fit[func] = not unfit
        if not self._fit[func]:
            raise NotSimpleError
        key: list[object] = [func, torch.get_default_dtype()]
        self._describe(args, key, tensors)
        for name, value in kwargs.items():
            key.append(name)
            self._describe((value,), key, tensors)
        if not tensors:  # where the output is to be depends on more than the arguments
            raise NotSimpleError
        return tuple(key)

    def _describe(self, values: Iterable[Any], key: list[object], tensors: list[FakeTensor]) -> None:
        for value in values:
            kind = type(value)
            key.append(kind)  # 1, 1.0 and True are equal
            if kind is FakeTensor:
                key += self._looks(value)
                tensors.append(value)
            elif kind in _PLAIN:
                key.append(value)
            elif kind is list or kind is tuple:
                key.append(len(value))
                self._describe(value, key, tensors)
            else:
                raise NotSimpleError

    def _looks(self, tensor: FakeTensor) -> Key:
        """All that there is to know of a tensor without values. One whose values are known is not simple."""
        dtype = tensor.dtype
        if (
            tensor.constant is not None
            or tensor.layout is not torch.strided
            or tensor.fake_mode is not self.mode
            or dtype.is_complex  # may be conjugated
            or tensor.is_neg()
        ):
            raise NotSimpleError
        offset = tensor.storage_offset()
        return tensor.shape, tensor.stride(), offset, dtype, tensor.fake_device, tensor.requires_grad

    def _maker(self, outputs: Any, tensors: Sequence[FakeTensor]) -> Maker:
        """What makes such outputs again."""
        if type(outputs) not in (tuple, list):
            return self._maker_of(outputs, tensors)
        kind, makers = type(outputs), [self._maker_of(output, tensors) for output in outputs]
        known = set(map(_storage, tensors))
        new = [_storage(output) for output in outputs if isinstance(output, torch.Tensor)]
        new = [storage for storage in new if storage not in known]
        if len(set(new)) < len(new):  # several views of something new
            raise NotSimpleError
        return lambda tensors: kind([make(tensors) for make in makers])

    def _maker_of(self, output: Any, tensors: Sequence[FakeTensor]) -> Maker:
        if type(output) in _PLAIN:
            return lambda _: output
        if type(output) is not FakeTensor:
            raise NotSimpleError
        looks = self._looks(output)
        sources = [number for number, tensor in enumerate(tensors) if _storage(tensor) == _storage(output)]
        if len(sources) > 1:  # it can't be told which of them it is made from
            raise NotSimpleError
        if sources and output is tensors[sources[0]]:
            return itemgetter(sources[0])
        make = self._new_or_view(looks, sources[0] if sources else None)
        made = make(tensors)
        if self._looks(made) != looks or _hidden(made) != _hidden(output):
            raise NotSimpleError
        return make

    def _new_or_view(self, looks: Key, source: int | None) -> Maker:
        shape, stride, offset, dtype, device, _ = looks

        def make(tensors: Sequence[FakeTensor]) -> FakeTensor:
            with torch._C._DisableTorchDispatch():
                if source is None:
                    made = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
                else:
                    made = torch.empty(0, dtype=dtype, device="meta")
                    made.set_(tensors[source].untyped_storage(), offset, shape, stride)
            return FakeTensor(self.mode, made, device)

        return make


def _storage(tensor: torch.Tensor) -> int:
    key: int = tensor.untyped_storage()._cdata
    return key


def _hidden(tensor: torch.Tensor) -> tuple[object, ...]:
    """What tensors that look alike may still differ in."""
    return tensor.untyped_storage().nbytes(), torch._C._dispatch_key_set(tensor), tensor.is_inference()
