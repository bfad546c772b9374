"""The memory that a training step will occupy with any number of samples, before it is run.

Small steps are traced under fake tensors, which have shapes and no bytes, and replayed with the number of samples that
is asked for. Where fake tensors can't tell (operations whose result's shape depends on the data, the workspaces of
recurrent layers) small real steps are run instead. `source` says which it was, `notes` what was noticed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from tasks.records import Peak
from tasks.training.allocated import with_peak
from tasks.training.cuda_allocator import reserved_bytes
from tasks.training.factories import in_one_line
from tasks.training.known_operations import KnownOperations
from tasks.training.later_update import is_steady, with_later_update
from tasks.training.precision import PrecisionName, casting
from tasks.training.recording import Recording, Segment, record_step
from tasks.training.replay import NotAlikeError, Replay, are_alike
from tasks.training.step import Loss, inexact_layers
from tasks.training.subject import (
    Build,
    as_on_cuda,
    copies_of,
    fake_loss,
    untouched_surroundings,
    without_collection,
)
from tasks.training.twins import has_twin_passes, laid_apart
from tasks.training.workspaces import Unseen

# Makes (features, labels) of so many samples.
MakeBatch = Callable[[int], tuple[Any, Any]]

# Unequal, and none of them the lone sample that some norms refuse. Where no larger number is traced anyway, the third
# shows whether storages are lines.
TRACED_SAMPLES = (4, 7, 12)
# Real steps are to see what a model does with a few more samples, too.
PROBED_SAMPLES = 32
# Some models (a loop over time written in Python) take longer to trace than to run.
TRACING_SECONDS = 20.0
# Added where a model does other things with few samples than with many.
UNLIKE_FACTOR = 1.1


class StepMemory:
    """Peak bytes of a step by the samples of a pass.

    Counted are the samples of the whole part, which lie on the device while its passes run, parameters, buffers,
    activations, gradients and the optimizer's state, and with several workers what they exchange gradients and weights
    in; on CUDA also what the allocator can't use for fragmentation. `part` is the number of samples that a worker
    takes of a batch; `make_batch(n)` makes features and labels of n samples on torch's default device. `precision` is
    that of forward passes and losses.
    """

    def __init__(
        self,
        build: Build,
        loss: Loss,
        make_batch: MakeBatch,
        part: int,
        workers: int = 1,
        device: str = "cpu",
        precision: PrecisionName = "float32",
    ) -> None:
        self.build = as_on_cuda(build) if device == "cuda" else build
        self.loss = loss
        self.make_batch = make_batch
        self.part = part
        self.workers = workers
        self.device = device
        self.precision = precision
        self.source: Literal["trace", "probe"] = "trace"
        self.notes: list[str] = []
        self._replay: Replay | None = None
        # Are storages known to be what the replay takes them for? With two numbers of samples everything is a line.
        self._is_proved = False
        self._take_three = False
        self._fakes_on_device = device != "cpu"
        # One replay a size, once what small sizes tell of large ones is known to be wrong.
        self._each: dict[int, Replay] | None = None
        self._known: dict[tuple[int, bool], Peak] = {}
        self._unseen = Unseen()
        self._operations = KnownOperations(FakeTensorMode())

    def peak_bytes(self, samples: int, accumulating: bool) -> int:
        """The peak with `samples` samples a pass; `accumulating`: gradients of an earlier pass are there already."""
        return self.peak(samples, accumulating).bytes

    def peak(self, samples: int, accumulating: bool) -> Peak:
        """The same, with what the bytes are for and what is at work then."""
        key = samples, accumulating
        if key not in self._known:
            replay = self._replay_of(samples)
            found = replay.peak(samples, accumulating)
            extra = {}
            if self.source == "probe":
                extra["workspaces"] = self._unseen.bytes(samples, found.bytes)
            if self.device == "cuda":
                program = replay.program(accumulating)
                extra["fragmentation"] = max(0, reserved_bytes(replay.sizes(samples), program) - found.bytes)
            whole = found.bytes + sum(extra.values())
            self._known[key] = replace(found, bytes=whole, breakdown=found.breakdown | extra)
        return self._known[key]

    def pass_bytes(self, samples: int) -> int:
        """The most bytes that a pass adds to what is there before it, where gradients of an earlier pass are."""
        found = self._replay_of(samples).pass_bytes(samples)
        return found + (self._unseen.bytes(samples, found) if self.source == "probe" else 0)

    @property
    def interacting(self) -> tuple[str, ...]:
        """The modules in which each sample meets all the others, so that splitting a batch is not exact."""
        if not self._is_proved:
            self.confirm(TRACED_SAMPLES[2])
        return self._replay_of(self.part).interacting

    def confirm(self, samples: int) -> bool:
        """Does a step with `samples` samples do what was replayed for it?

        If not, predictions are different from now on: storages are found to be no lines, or each size is traced.
        """
        replay = self._replay_of(samples)
        if self.source == "probe" and self._is_run_here and samples > self._unseen.measured[-1][0]:
            return self._run_as_well(samples)
        if self.source == "probe" or self._each is not None:
            return True
        if not self._is_proved and samples in TRACED_SAMPLES[:2]:  # which are on a line by themselves
            samples = TRACED_SAMPLES[2]
        try:
            traced = self._trace((samples,), last="single")[0]
        except Exception as error:  # a branch on the samples may lead to what fake tensors can't do
            self._probe_from_now_on(error)
            return False
        alike = are_alike(replay.first, traced)
        replayed = zip(traced.sizes, replay.sizes(traced.samples), traced.kinds, strict=False)
        if alike and all(size == line or kind == "inputs" for size, line, kind in replayed):
            self._is_proved = True
            return True
        if alike and not self._is_proved:
            self._take_three, self._replay = True, None
            self._known.clear()
        else:
            self._trace_each_from_now_on()
        return False

    def _replay_of(self, samples: int) -> Replay:
        """What tells of a step with `samples` samples; the first way that works."""
        while self.source == "trace":
            try:
                if self._each is not None:
                    if samples not in self._each:
                        self._each[samples] = Replay(self._trace((samples,)), self.part)
                    return self._each[samples]
                if self._replay is None:
                    self._replay = self._of_three() if self._take_three else self._of_two()
                return self._replay
            except NotAlikeError:
                self._trace_each_from_now_on()
            except Exception as error:  # whatever fake tensors can't do; real ones will say what is really wrong
                if self._fakes_on_device:
                    self._fakes_on_device = False  # on the CPU they may
                else:
                    self._probe_from_now_on(error)
        if self._replay is None:
            with untouched_surroundings():
                self._replay = self._probe()
        return self._replay

    def _of_two(self) -> Replay:
        """Replays two numbers of samples, one in each pass of a step, where the passes are twins."""
        few, many, _ = TRACED_SAMPLES
        recordings = laid_apart(self._trace((few,), then_samples=many)[0], many)
        return Replay(recordings, self.part) if recordings else self._of_three()

    def _of_three(self) -> Replay:
        """Replays three numbers of samples, which tells lines from all else."""
        (first,) = self._trace(TRACED_SAMPLES[:1])
        rest = self._trace(TRACED_SAMPLES[1:], "single" if has_twin_passes(first) else "accumulating")
        self._is_proved = True
        return Replay([first, *rest], self.part)

    def _trace_each_from_now_on(self) -> None:
        self.notes.append("the model does other things with other numbers of samples, so that each is traced by itself")
        self._each = {}
        self._known.clear()

    def _probe_from_now_on(self, error: Exception) -> None:
        self.notes.append(f"fake tensors can't tell, so that small steps were run: {in_one_line(error)}")
        self.source = "probe"
        self._replay = None
        self._known.clear()

    def _trace(
        self, sizes: Sequence[int], last: Segment = "update", then_samples: int | None = None
    ) -> list[Recording]:
        """Recordings of fake steps with these numbers of samples, as far as to the segment `last`.

        Their second passes have `then_samples`, if that is given.
        """
        until = time.process_time() + TRACING_SECONDS
        with untouched_surroundings(), without_collection(), self._operations.mode:
            model, optimizer, device = self._fake_subject()
            if any(isinstance(module, nn.RNNBase) for module in model.modules()):
                raise OpaqueWorkspaceError("recurrent layers have workspaces that are in no tensor")
            if self._is_run_here:
                raise OpaqueWorkspaceError(f"{self.precision} has workspaces on a CPU that are in no tensor")
            least = 2 if inexact_layers(model) else 1  # these layers refuse a lone sample
            derived = last == "update" and is_steady(optimizer)
            record = self._recorder(model, optimizer, device)
            recordings = [
                record(
                    samples=max(least, size),
                    last="first_update" if derived else last,
                    until=until,
                    known=self._operations,
                    then_samples=then_samples,
                )
                for size in sizes
            ]
        return [with_later_update(recording) for recording in recordings] if derived else recordings

    def _recorder(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
    ) -> Callable[..., Recording]:
        """`record_step` for what is to be planned, which takes the rest of its arguments by name."""

        def make_batch(samples: int) -> tuple[Any, Any]:
            with device:
                return self.make_batch(samples)

        # On a CPU float16 has fewer operations than elsewhere; what is as large stands in for it.
        stands_in = self.precision == "float16" and device.type != self.device
        cast = casting("bfloat16" if stands_in else self.precision, device.type)
        return partial(
            record_step, model, optimizer, fake_loss(self.loss, device), make_batch, workers=self.workers, casting=cast
        )

    def _fake_subject(self) -> tuple[nn.Module, torch.optim.Optimizer, torch.device]:
        """A fake model and its optimizer, on the device if fake tensors can be there, else on the CPU."""
        if self._fakes_on_device:
            try:
                # It is built where it is to be: fake tensors can't be moved.
                with torch.device(self.device):
                    return *self.build(), torch.device(self.device)
            except Exception:  # fake tensors on CUDA need a torch that was built for it
                self._fakes_on_device = False
        try:
            model, optimizer = self.build()
        except Exception:  # a factory that looks at its own values can't be run under fake tensors, but copied
            with unset_fake_temporarily():
                real = self.build()
            model, optimizer = copies_of(*real)()
        return model, optimizer, torch.device("cpu")

    @property
    def _is_run_here(self) -> bool:
        """Kernels for half precision on a CPU choose their workspaces by the samples: only a real step tells them."""
        return self.device == "cpu" and self.precision != "float32"

    def _run_as_well(self, samples: int) -> bool:
        """Run a real step of this size too. Does it take no more than was predicted?"""
        before = self.peak_bytes(samples, True)
        with untouched_surroundings():
            self._unseen.note(*with_peak(partial(self._recorder(*self.build(), torch.device("cpu")), samples=samples)))
        self._known.clear()
        return self.peak_bytes(samples, True) <= before

    def _probe(self) -> Replay:
        """Replays real steps; on the CPU, wherever training runs."""
        largest = max(TRACED_SAMPLES[-1], min(PROBED_SAMPLES, self.part))
        recordings: list[Recording] = []
        for samples in (*TRACED_SAMPLES[:2], largest):
            cpu = torch.device("cpu")
            recording, allocated = with_peak(partial(self._recorder(*self.build(), cpu), samples=samples))
            self._unseen.note(recording, allocated)
            recordings.append(recording)
        try:
            return Replay(recordings, self.part)
        except NotAlikeError:
            self.notes.append("the model does other things with other numbers of samples; a tenth was added")
            self._unseen.factor = UNLIKE_FACTOR
            return Replay.of_unlike(recordings[1], recordings[2], self.part)


class OpaqueWorkspaceError(Exception):
    """Operations have workspaces that fake tensors don't know."""
