"""Running out of memory is recognised in every dress, and what it held is let go."""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tasks.training.out_of_memory import free_what_it_holds, is_out_of_memory

CPU = torch.device("cpu")

MEMORY_TEXTS = [
    "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.15 GiB of which 2 MiB is free.",
    "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call.",
    "CUDA driver error: out of memory",
    "cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/THCCachingHostAllocator.cpp:278",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
    "Unable to find a valid cuDNN algorithm to run convolution",
    "GET was unable to find an engine to execute this computation",
    "FIND was unable to find an engine to execute this computation",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4000000000000 bytes. Error code 12 (Cannot allocate memory)",
    "[enforce fail at alloc_cpu.cpp:83] data. DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.",
    "MPS backend out of memory (MPS allocated: 8.97 GB, other allocations: 41.02 MB, max allowed: 9.07 GB).",
    "Invalid buffer size: 24.00 GiB",
    "HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.98 GiB",
    "HIP error: out of memory",
    "hipErrorOutOfMemory",
    "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.56 GiB.",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES) -5 (PI_ERROR_OUT_OF_RESOURCES)",
    "could not create a primitive",
    "could not create a memory object",
    "std::bad_alloc",
    "unable to mmap 1024 bytes from file <x>: Cannot allocate memory (12)",
]

OTHER_TEXTS = [
    "mat1 and mat2 shapes cannot be multiplied (4x5 and 6x3)",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
    "CUDA error: device-side assert triggered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "could not create a primitive descriptor for a convolution forward propagation primitive",
    "out of resource: shared memory, Required: 147456, Hardware limit: 101376",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "index out of range in self",
    "[enforce fail at inline_container.cc:158] . PytorchStreamReader failed reading zip archive",
]


@pytest.mark.parametrize("text", MEMORY_TEXTS)
def test_every_wording_of_having_no_memory_is_recognised(text: str) -> None:
    assert is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize("text", OTHER_TEXTS)
def test_an_error_about_something_else_is_not_one_about_memory(text: str) -> None:
    assert not is_out_of_memory(RuntimeError(text))


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no"), MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory")]
)
def test_errors_that_are_of_their_kind_need_no_text(error: Exception) -> None:
    assert is_out_of_memory(error)


def test_what_a_user_s_code_merely_talks_about_is_none() -> None:
    assert not is_out_of_memory(ValueError("raise the limit, or you run out of memory"))
    assert not is_out_of_memory(OSError(errno.ENOSPC, "No space left on device"))


def test_a_real_shape_mismatch_is_none_and_a_real_refusal_of_the_allocator_is_one() -> None:
    with pytest.raises(RuntimeError) as mismatch:
        torch.ones(2, 3) @ torch.ones(4, 5)
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**60, dtype=torch.uint8)
    assert not is_out_of_memory(mismatch.value)
    assert is_out_of_memory(refused.value)


def fail_from(error: Exception) -> None:
    try:
        raise torch.OutOfMemoryError("CUDA out of memory")
    except torch.OutOfMemoryError as cause:
        raise error from cause


def fail_while_handling(error: Exception) -> None:
    try:
        raise RuntimeError("CUDA out of memory")
    except RuntimeError:
        raise error from None


@pytest.mark.parametrize("fail", [fail_from, fail_while_handling])
def test_it_is_recognised_behind_the_error_that_wraps_it(fail: Callable[[Exception], None]) -> None:
    with pytest.raises(ValueError, match="layer 3 has failed") as caught:
        fail(ValueError("layer 3 has failed"))
    assert is_out_of_memory(caught.value)


def test_errors_that_name_each_other_come_to_an_end() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert not is_out_of_memory(first)


def test_the_graph_of_the_failed_pass_is_free_once_its_error_is_let_go() -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def fail(features: torch.Tensor) -> None:
        hidden = nn.Linear(3, 4)(features)
        held.append(weakref.ref(hidden))
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        except torch.OutOfMemoryError as error:
            raise RuntimeError("wrapped") from error

    gc.disable()
    try:
        with pytest.raises(RuntimeError) as caught:
            fail(torch.ones(2, 3))
        assert held[0]() is not None
        free_what_it_holds(caught.value, CPU)
        assert held[0]() is None
    finally:
        gc.enable()
