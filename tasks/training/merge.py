"""One flat all-reduce that makes the models of all ranks one: the sample-weighted mean of what each has learned.

Parameters, float buffers and the optimizer's float state travel in one persistent buffer, with the trailer of
`tasks.training.exchange` behind them. Integer buffers take the largest value.
"""

from __future__ import annotations

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
        self.flat: torch.Tensor | None = None

    @torch.no_grad()
    def merge(self, own: Own) -> Shared:
        """All ranks end with equal weights, buffers and optimizer state. Returns everybody's numbers.

        A rank's weight is its number of samples; 0 where it had none or its parameters are not finite. If no rank has
        a weight, every rank keeps what it has.
        """
        prime_optimizer(self.model, self.optimizer)
        tensors = merged_tensors(self.model, self.optimizer)
        flat = self._buffer(tensors)
        body = flat.numel() - trailer_length(self.ranks) - 1
        weight = float(own.samples) if own.finite else 0.0
        if weight:
            torch.cat([tensor.reshape(-1).to(flat.dtype) for tensor in tensors], out=flat[:body])
            flat[:body].mul_(weight)
        else:
            flat[:body].zero_()
        flat[body] = weight
        flat[body + 1 :] = torch.tensor(pack(own, self.rank, self.ranks), dtype=flat.dtype)
        dist.all_reduce(flat)
        total = float(flat[body])
        shared = unpack(flat[body + 1 :].tolist(), self.ranks)
        if total:
            flat[:body].div_(total)
            offset = 0
            for tensor in tensors:
                tensor.copy_(flat[offset : offset + tensor.numel()].view_as(tensor))
                offset += tensor.numel()
        merge_integer_buffers(self.model)
        return shared

    def _buffer(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        if self.flat is None:
            size = sum(tensor.numel() for tensor in tensors) + 1 + trailer_length(self.ranks)
            wide = any(tensor.dtype == torch.float64 for tensor in tensors)
            dtype = torch.float64 if wide else torch.float32
            self.flat = torch.empty(size, dtype=dtype, device=tensors[0].device)
        return self.flat


def merged_tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What is averaged, in an order that is alike on every rank."""
    tensors = [parameter.data for parameter in model.parameters()]
    tensors += [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            tensors += [
                state[name]
                for name in sorted(state)
                if isinstance(state[name], torch.Tensor) and state[name].is_floating_point()
            ]
    return tensors


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


@torch.no_grad()
def merge_buffers(model: torch.nn.Module) -> None:
    """Average the float buffers over the ranks (BatchNorm statistics drift apart between synchronous steps)."""
    floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    if floats:
        flat = torch.cat([buffer.reshape(-1) for buffer in floats])
        dist.all_reduce(flat)
        flat.div_(dist.get_world_size())
        offset = 0
        for buffer in floats:
            buffer.copy_(flat[offset : offset + buffer.numel()].view_as(buffer))
            offset += buffer.numel()
    merge_integer_buffers(model)


@torch.no_grad()
def merge_integer_buffers(model: torch.nn.Module) -> None:
    """Counters take the largest value of all ranks."""
    for buffer in model.buffers():
        if not buffer.is_floating_point() and buffer.dtype != torch.bool:
            dist.all_reduce(buffer, op=dist.ReduceOp.MAX)


def is_finite(model: torch.nn.Module) -> bool:
    """Are all parameters and float buffers finite?"""
    tensors = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
