"""One flat all-reduce that makes the models of all ranks one: the sample-weighted mean of what each has learned.

Parameters, float buffers and the optimizer's float state travel in one persistent buffer, with the trailer of
`tasks.training.exchange` behind them. Integer buffers that change take the largest value, in a message of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist

from tasks.training.exchange import Own, Shared, pack, trailer_length, unpack


class Merger:
    """Holds the flat buffer; the layout is fixed at the first merge and must be alike on every rank."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, rank: int, ranks: int) -> None:
        self.model = model
        self.optimizer = optimizer
        self.rank = rank
        self.ranks = ranks
        self.buffers = Buffers(model, lambda buffer: buffer.is_floating_point())
        self.counters = Buffers(model, lambda buffer: not buffer.is_floating_point())
        self.flat: torch.Tensor | None = None

    @torch.no_grad()
    def merge(self, own: Own) -> Shared:
        """All ranks end with equal weights, buffers and optimizer state. Returns everybody's numbers.

        A rank's weight is its number of samples; 0 where it had none or its parameters are not finite. If no rank has
        a weight, every rank keeps what it has. What nobody trains stays as it is, bit by bit.
        """
        prime_optimizer(self.model, self.optimizer)
        tensors = merged_tensors(self.model, self.optimizer)
        moved, counted = self.buffers.moved(), self.counters.moved()
        flat = self._buffer(tensors)
        body = flat.numel() - trailer_length(self.ranks) - len(moved) - len(counted) - 1
        weight = float(own.samples) if own.finite else 0.0
        if weight:
            _fill(flat[:body], tensors, weight)
        else:
            flat[:body].zero_()
        trailer = [weight, *map(float, moved + counted), *pack(own, self.rank, self.ranks)]
        flat[body:] = torch.tensor(trailer, dtype=flat.dtype)
        dist.all_reduce(flat)
        total, *rest = flat[body:].tolist()
        if total:
            _copy_back(flat, tensors, rest[: len(moved)], total)
        self._merge_counters(rest[len(moved) : len(moved + counted)])
        return unpack(rest[len(moved + counted) :], self.ranks)

    @torch.no_grad()
    def merge_buffers(self) -> None:
        """Average the float buffers over the ranks (BatchNorm statistics drift apart between synchronous steps)."""
        if self.ranks == 1:
            return
        moved, counted = self.buffers.moved(), self.counters.moved()
        if not moved and not counted:
            return
        tensors = list(self.buffers.present().values())
        device = next(self.model.buffers()).device
        told = torch.tensor([*map(float, moved + counted)], dtype=torch.float64, device=device)
        flat = torch.cat([*(tensor.reshape(-1).double() for tensor in tensors), told])
        dist.all_reduce(flat)
        rest = flat[flat.numel() - told.numel() :].tolist()
        _copy_back(flat, tensors, rest[: len(moved)], self.ranks)
        self._merge_counters(rest[len(moved) :])

    def is_finite(self) -> bool:
        """Are all parameters that are trained finite, and all buffers that were when training began?"""
        tensors: list[torch.Tensor] = [each for each in self.model.parameters() if each.requires_grad]
        moved = zip(self.buffers.present().items(), self.buffers.moved(), strict=True)
        tensors += [buffer for (name, buffer), has_moved in moved if has_moved and name not in self.buffers.unbounded]
        # Read at the end, all at once: each reading waits for the device.
        return bool(torch.stack([torch.isfinite(tensor).all() for tensor in tensors]).all())

    def _buffer(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        if self.flat is None:
            flags = len(self.buffers.present()) + len(self.counters.present())
            trailer = trailer_length(self.ranks) + flags + 1
            wide = any(tensor.dtype == torch.float64 for tensor in tensors)
            dtype = torch.float64 if wide else torch.float32
            size = sum(tensor.numel() for tensor in tensors) + trailer
            self.flat = torch.empty(size, dtype=dtype, device=tensors[0].device)
        return self.flat

    def _merge_counters(self, moved: Sequence[float]) -> None:
        """Counters take the largest value of all ranks, and flags are set where any rank has set them.

        Only those that were `moved` are sent, as a type that every group can send.
        """
        present = self.counters.present().values()
        tensors = [tensor for tensor, has_moved in zip(present, moved, strict=True) if has_moved]
        if tensors:
            flat = torch.cat([tensor.reshape(-1).long() for tensor in tensors])
            dist.all_reduce(flat, op=dist.ReduceOp.MAX)
            for tensor, largest in zip(tensors, torch.split(flat, [each.numel() for each in tensors]), strict=True):
                tensor.copy_(largest.view(tensor.shape))


class Buffers:
    """The buffers of a model of one kind, and which of them training has changed.

    Many never change (a mask, a table of positions): a mean over ranks would move them by rounding. Those that are
    `unbounded` hold infinities or NaN from the start, on purpose (a mask, a running maximum).
    """

    def __init__(self, model: torch.nn.Module, is_of_kind: Callable[[torch.Tensor], bool]) -> None:
        self.model = model
        self.is_of_kind = is_of_kind
        self.start = {name: buffer.detach().clone() for name, buffer in self.present().items()}
        self.changed: set[str] = set()
        self.unbounded = {name for name, buffer in self.start.items() if not bool(torch.isfinite(buffer).all())}

    def present(self) -> dict[str, torch.Tensor]:
        """In an order that is alike on every rank."""
        return {name: buffer for name, buffer in self.model.named_buffers() if self.is_of_kind(buffer)}

    def moved(self) -> list[bool]:
        """Which of them are not what they were at the start."""
        for name, buffer in self.present().items():
            if name not in self.changed and not _is_same(buffer, self.start.get(name)):
                self.changed.add(name)
                self.start.pop(name, None)
        return [name in self.changed for name in self.present()]


def merged_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What is averaged, in an order that is alike on every rank: float buffers first."""
    tensors = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    tensors += [parameter.data for parameter in model.parameters() if parameter.requires_grad]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            tensors += [
                state[name]
                for name in sorted(state)
                if isinstance(state[name], torch.Tensor) and state[name].is_floating_point()
            ]
    return tensors


def _fill(flat: torch.Tensor, tensors: list[torch.Tensor], weight: float) -> None:
    """The tensors times their weight, one behind the other."""
    offset = 0
    for tensor in tensors:
        place = flat[offset : offset + tensor.numel()].view(tensor.shape)
        # Optimizers keep their step counts on the CPU.
        if (tensor.dtype, tensor.device) == (flat.dtype, flat.device):  # in one pass over the memory
            torch.mul(tensor, weight, out=place)
        else:
            place.copy_(tensor).mul_(weight)
        offset += tensor.numel()


def _copy_back(flat: torch.Tensor, tensors: list[torch.Tensor], moved: Sequence[float], total: float) -> None:
    """The flat sum over its total weight into tensors, of which the first ones only where they were `moved`."""
    offset = 0
    for number, tensor in enumerate(tensors):
        if number >= len(moved) or moved[number]:
            mean = flat[offset : offset + tensor.numel()].view(tensor.shape)
            if (tensor.dtype, tensor.device) == (flat.dtype, flat.device):
                torch.div(mean, total, out=tensor)
            else:
                tensor.copy_(mean.div_(total))
        offset += tensor.numel()


def _is_same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    if other is None or one.shape != other.shape:
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


@torch.no_grad()
def prime_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Create the optimizer's state where it isn't there yet: of a rank without a step, of a parameter not used so far.

    Ranks must have the same layout. A step with gradients of zero makes the state; its weights, its step counts and
    its weight decay are undone.
    """
    lacking = [each for each in model.parameters() if each.requires_grad and not optimizer.state.get(each)]
    if not lacking or not _has_state(optimizer):
        return
    for parameter in model.parameters():
        parameter.grad = None
    for parameter in lacking:
        parameter.grad = torch.zeros_like(parameter)
    weights = [parameter.detach().clone() for parameter in lacking]
    decays = [group.get("weight_decay") for group in optimizer.param_groups]
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        if decay is not None:
            group["weight_decay"] = 0.0
    optimizer.step()
    for group, decay in zip(optimizer.param_groups, decays, strict=True):
        if decay is not None:
            group["weight_decay"] = decay
    for parameter, weight in zip(lacking, weights, strict=True):
        parameter.copy_(weight)
    for group in optimizer.param_groups:
        # What a step counts, and what it counts from (the second is NAdam's, the third ASGD's).
        start = {"step": 0.0, "mu_product": 1.0, "eta": group["lr"]}
        for parameter in set(group["params"]) & set(lacking):
            for name in start.keys() & optimizer.state[parameter].keys():
                optimizer.state[parameter][name].fill_(start[name])
    optimizer.zero_grad(set_to_none=True)


def _has_state(optimizer: torch.optim.Optimizer) -> bool:
    plain = isinstance(optimizer, torch.optim.SGD) and not any(group["momentum"] for group in optimizer.param_groups)
    return not plain
