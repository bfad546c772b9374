"""The peer Lightning on the device: its tuner looks for a batch size.

python -m benchmarks.fitting.lightning_search '{"model", "optimizer", "part", "budget_bytes", "mode"}'
in an environment with Lightning; prints {"found", "wasted_seconds", "failures"}
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.tuner import Tuner
from torch import nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.fitting.device import Device
from benchmarks.fitting.steps import processor_seconds, warm_up
from benchmarks.fitting.zoo import OPTIMIZERS, ZOO, Subject

Batch = tuple[torch.Tensor, torch.Tensor]
# As many as the tuner tries at most by itself; a data set that is smaller would end its search.
SAMPLES = 8192


class InMemory(Dataset[Batch]):
    """All samples in two tensors, taken by the batch: one by one would cost more than some models."""

    def __init__(self, subject: Subject) -> None:
        self.features, self.labels = subject.batch(SAMPLES)

    def __len__(self) -> int:
        return SAMPLES

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        return self.features[indices], self.labels[indices]


class Trained(pl.LightningModule):  # type: ignore[misc]  # not installed beside the project
    def __init__(self, subject: Subject, optimizer: str) -> None:
        super().__init__()
        self.model, self.optimizer_name, self.batch_size = subject.model(), optimizer, 2
        self.samples = InMemory(subject)

    def train_dataloader(self) -> DataLoader[Batch]:
        return DataLoader(self.samples, batch_size=self.batch_size, collate_fn=lambda batch: batch)

    def training_step(self, batch: Batch) -> torch.Tensor:
        features, labels = batch
        return nn.functional.cross_entropy(self.model(features), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return OPTIMIZERS[self.optimizer_name](self.parameters())


def search(settings: dict[str, Any], folder: str) -> dict[str, Any]:
    subject = ZOO[settings["model"]]
    warm_up(subject, settings["optimizer"])
    trained = Trained(subject, settings["optimizer"])
    device = Device()
    device.open(settings["budget_bytes"])
    began = processor_seconds()
    trainer = pl.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        max_epochs=1,
        default_root_dir=folder,
    )
    found = Tuner(trainer).scale_batch_size(trained, mode=settings["mode"])
    return {"found": found, "wasted_seconds": processor_seconds() - began, "failures": device.refusals}


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(search(json.loads(sys.argv[1]), folder)))


if __name__ == "__main__":
    main()
