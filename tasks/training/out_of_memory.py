"""Is an error about memory, in whatever words? And what has to go before the memory it held is free again."""

from __future__ import annotations

import errno
import gc
import re
import traceback
from collections.abc import Iterator

import torch

# Texts of errors of no kind of their own, as PyTorch, its libraries and their drivers word them.
_TEXTS = re.compile(
    "|".join(
        [
            # CUDA, HIP, XPU and MPS; hipErrorOutOfMemory, UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
            r"out[ _]?of[ _]?(device[ _]?|host[ _]?)?memory",
            r"ALLOC(ATION)?_FAILED",  # CUBLAS_STATUS_, CUDNN_STATUS_, CUSOLVER_STATUS_, ..._DEVICE_ALLOCATION_FAILED
            r"CUBLAS_STATUS_NOT_INITIALIZED when calling `?cublasCreate",  # no room for its handle
            r"unable to find a valid cuDNN algorithm",
            r"unable to find an engine to execute this computation",  # the same of cuDNN 8 and later
            # A workspace that is not to be had; the advice on contiguous inputs is what the text adds.
            r"CUDNN_STATUS_NOT_SUPPORTED",
            r"DefaultCPUAllocator: (can't allocate|not enough) memory",
            r"can(not|'t) allocate memory",
            r"Invalid buffer size",  # MPS, of a buffer beyond what Metal gives
            r"could not create a primitive(?! descriptor)",  # oneDNN; a descriptor fails for what isn't supported
            r"could not create a memory",
            r"std::bad_alloc",
            r"(PI|UR_RESULT)_ERROR_OUT_OF_RESOURCES",  # XPU
        ]
    ),
    re.IGNORECASE,
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that it was raised from or while handling, says that memory has run out."""
    return any(_says_so(each) for each in _chain(error))


def in_one_line(error: BaseException) -> str:
    """What the error says, which is how many bytes were asked for where the allocator knows."""
    return " ".join(str(error).split())[:400] or type(error).__name__


def free_what_it_holds(error: BaseException, device: torch.device) -> None:
    """Drop what the error's frames hold (the graph of the pass that failed) and give back what is cached.

    The allocator of CUDA keeps freed blocks in the sizes of the larger pass; smaller parts may need others.
    """
    for each in list(_chain(error)):
        traceback.clear_frames(each.__traceback__)
        each.__traceback__ = None
    gc.collect()
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


def _says_so(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, RuntimeError) and _TEXTS.search(str(error)) is not None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes and what was being handled when it was raised, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]
