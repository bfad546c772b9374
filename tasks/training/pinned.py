"""Batches on their way to a CUDA device, in page-locked memory: from there they are copied while the host goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tasks.storage.samples import Samples


@dataclass
class _Buffer:
    features: torch.Tensor
    labels: torch.Tensor
    copied: torch.cuda.Event | None = None

    def part(self, samples: int) -> Samples:
        return Samples(self.features[:samples].numpy(), self.labels[:samples].numpy())


class PinnedBatches:
    """Two buffers that take turns: one is filled while the other is still being copied.

    They are made for the first batch, and again for a larger one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pins = device.type == "cuda"
        self._buffers: list[_Buffer | None] = [None, None]
        self._turn = 0

    def send(self, samples: int, fill: Callable[[Samples | None], Samples]) -> tuple[torch.Tensor, torch.Tensor]:
        """A batch on the device: features and labels, of which the device has the only copy.

        `fill` puts the samples into the memory that it is given and returns them, or finds memory itself for None.
        """
        self._turn = 1 - self._turn
        buffer = self._buffers[self._turn]
        if buffer is None or len(buffer.labels) < samples:
            found = fill(None)
            features, labels = torch.from_numpy(found.features), torch.from_numpy(found.labels)
            if self._pins:
                features, labels = features.pin_memory(), labels.pin_memory()
            buffer = self._buffers[self._turn] = _Buffer(features, labels)
        else:
            if buffer.copied is not None:
                buffer.copied.synchronize()
            fill(buffer.part(samples))
        sent = [
            whole[:samples].to(self._device, non_blocking=True, copy=True) for whole in (buffer.features, buffer.labels)
        ]
        if self._pins:
            buffer.copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            buffer.copied.record(torch.cuda.current_stream(self._device))
        return sent[0], sent[1]
