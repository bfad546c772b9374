"""What is merged may lie on two devices: optimizers keep their step counts on the CPU."""

from __future__ import annotations

import torch

from tasks.training.merge import _fill


def test_step_counts_on_the_cpu_travel_with_weights_on_another_device() -> None:
    """The device without memory refuses to mix as a GPU does."""
    weights, count = torch.empty(2, 3, device="meta"), torch.ones(1)
    flat = torch.empty(7, device="meta")
    with torch.no_grad():
        _fill(flat, [weights, count], 16.0)
    assert (weights.device.type, count.device.type, count.item()) == ("meta", "cpu", 1.0)
