"""The gradient error of the peer Lightning's accumulation.

python -m benchmarks.fitting.lightning_gradients '{"model", "samples", "micro_batch"}'
in an environment with Lightning; prints the error
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import warnings

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.fitting.gradients import Batch, gradient_of, uneven


class Trained(pl.LightningModule):  # type: ignore[misc]  # not installed beside the project
    """Keeps the gradient with which the optimizer is called."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        features, labels = batch
        return nn.functional.cross_entropy(self.model(features), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_before_optimizer_step(self, _: torch.optim.Optimizer) -> None:
        self.gradient = gradient_of(self.model)


def main() -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    settings = json.loads(sys.argv[1])
    batch = Batch(settings["model"], settings["samples"])
    trained = Trained(batch.model)
    loader = DataLoader(TensorDataset(batch.features, batch.labels), batch_size=settings["micro_batch"])
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            precision="64-true",
            accumulate_grad_batches=len(uneven(settings["samples"], settings["micro_batch"])),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            max_epochs=1,
            default_root_dir=folder,
        )
        trainer.fit(trained, loader)
    print(json.dumps(batch.error(trained.gradient)))


if __name__ == "__main__":
    main()
