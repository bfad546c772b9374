"""A device "far" whose memory the CPU can't reach, as that of a GPU: torch computes there what it computes on a CPU.

Operations on tensors of two devices are refused as on CUDA, so that code that mixes them fails. What is held there
comes to the CPU by copies only. A plain one is as that of a Mac: it knows no float64, and ranks can't meet on it. Made
with torch's hooks for devices written in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

# torch knows it by this name in processes that have not made it yet, too.
ANY_PROCESS_NAME = "privateuseone"
NAME = "far"
# Operations from one device to another.
COPIES = ("aten::copy_", "aten::_to_copy", "aten::_copy_from")
# Numbers on the CPU go with tensors of a device, but not into one tensor with them.
JOINS = ("aten::cat", "aten::stack")
_registered: list[torch.library.Library] = []
_plain = False


class FarTensor(torch.Tensor):
    """What it holds is a tensor of the CPU, which nothing but this module looks at."""

    held: torch.Tensor
    __torch_function__: Any = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> FarTensor:
        if _plain and held.dtype == torch.float64:
            raise TypeError(f"{NAME} has no float64")
        looks: Any = {"dtype": held.dtype, "device": torch.device(NAME, 0)}
        looks |= {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made: FarTensor = torch.Tensor._make_wrapper_subclass(cls, held.shape, **looks)
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _run(func, args, kwargs or {})

    def tolist(self) -> Any:
        """torch has none for subclasses."""
        return self.held.detach().tolist()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """In a file it is one of the CPU."""
        return self.held.detach().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


def make_far_device(plain: bool = False) -> None:
    """Let this process have the device."""
    global _plain
    _plain = plain
    if _registered:
        return
    module = ModuleType(f"torch.{NAME}")
    functions: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "_is_in_bad_fork": lambda: False,
        "manual_seed_all": lambda _seed: None,
        "get_rng_state": lambda: torch.zeros(1),
        "set_rng_state": lambda _state: None,
        "empty_cache": lambda: None,
    }
    vars(module).update(functions)
    _setup_privateuseone_for_python_backend(NAME, backend_module=module)
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name, operation in _makers():
        library.impl(name, _made(operation), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    _registered.append(library)  # whose kernels are there as long as it is


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    return _run(torch.ops.aten.copy_.default, (target, source, non_blocking), {})


def _run(operation: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    given = [each for each in tree_leaves((arguments, named)) if isinstance(each, torch.Tensor)]
    _refuse(operation, given)
    # What comes out may be what went in, or a part of it.
    wrappers = {id(each.held): each for each in given if isinstance(each, FarTensor)} | {
        id(each): each for each in given if not isinstance(each, FarTensor)
    }
    bare, bare_named = tree_map_only(FarTensor, lambda each: each.held, (arguments, named))
    is_far = True
    if "device" in named or operation._schema.name == "aten::_to_copy":
        target = named.get("device") or given[0].device
        is_far = torch.device(target).type != "cpu"
        bare_named = bare_named | {"device": torch.device("cpu")}
    with torch.no_grad():
        found = operation(*bare, **bare_named)
    return tree_map_only(torch.Tensor, lambda each: wrappers.get(id(each), FarTensor(each) if is_far else each), found)


def _refuse(operation: Any, given: list[torch.Tensor]) -> None:
    name = operation._schema.name
    if _plain and name.startswith("c10d::"):
        raise RuntimeError(f"No backend type associated with device type {NAME}")
    here = [each for each in given if not isinstance(each, FarTensor)]
    if name not in COPIES and any(each.dim() > 0 or name in JOINS for each in here):
        raise RuntimeError(f"Expected all tensors to be on the same device, but {operation} got cpu and {NAME}")


def _makers() -> Iterator[tuple[str, Any]]:
    """All operations that make a tensor on a device from none: they have nothing to be dispatched by."""
    for whole in torch._C._dispatch_get_all_op_names():
        space, _, name = whole.partition("::")
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None) if space == "aten" else None
        if packet is None or (overload or "default") not in packet.overloads():
            continue
        operation = getattr(packet, overload or "default")
        taken = operation._schema.arguments
        returned = [str(each.type) for each in operation._schema.returns]
        if (
            returned == ["Tensor"]
            and any(each.name == "device" for each in taken)
            and not any("Tensor" in str(each.type) for each in taken)
        ):
            yield name, operation


def _made(operation: Any) -> Callable[..., FarTensor]:
    def make(*arguments: Any, **named: Any) -> FarTensor:
        named.pop("pin_memory", None)
        return FarTensor(operation(*arguments, **named | {"device": torch.device("cpu")}))

    return make
