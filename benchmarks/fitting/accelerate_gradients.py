"""The gradient error of the peer accelerate's accumulation.

python -m benchmarks.fitting.accelerate_gradients '{"model", "samples", "micro_batch"}'
in an environment with accelerate; prints the error
"""

from __future__ import annotations

import json
import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.fitting.gradients import Batch, gradient_of, uneven


def main() -> None:
    settings = json.loads(sys.argv[1])
    batch = Batch(settings["model"], settings["samples"])
    passes = len(uneven(settings["samples"], settings["micro_batch"]))
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=passes)
    model, optimizer, loader = accelerator.prepare(
        batch.model,
        torch.optim.SGD(batch.model.parameters(), lr=0.01),
        DataLoader(TensorDataset(batch.features, batch.labels), batch_size=settings["micro_batch"]),
    )
    for features, labels in loader:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(features), labels))
            gradient = gradient_of(batch.model)
            optimizer.step()
            optimizer.zero_grad()
    print(json.dumps(batch.error(gradient)))


if __name__ == "__main__":
    main()
