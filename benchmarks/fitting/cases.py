"""Models, optimizers and devices on which batches are fitted, each device far too small for the whole batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """A batch of `part` samples is to go through a device of `budget_bytes`."""

    model: str
    optimizer: str
    part: int
    budget_bytes: int

    @property
    def name(self) -> str:
        return f"{self.model}, {self.optimizer}, batch of {self.part}, {self.budget_bytes / MIB:g} MiB"

    def settings(self, **more: Any) -> dict[str, Any]:
        """For the programs of this package."""
        return asdict(self) | more


CASES = (
    Case("perceptron", "momentum", 8192, 16 * MIB),
    Case("convolutional", "momentum", 512, 40 * MIB),
    Case("convolutional", "adamw", 512, 120 * MIB),
    Case("resnet20", "sgd", 256, 60 * MIB),
    Case("resnet20", "adamw", 512, 220 * MIB),
    Case("transformer", "adamw", 128, 200 * MIB),
    Case("transformer", "sgd", 256, 600 * MIB),
    Case("checkpointed_transformer", "momentum", 256, 80 * MIB),
    Case("checkpointed_transformer", "adamw", 512, 160 * MIB),
    Case("lstm", "adamw", 256, 100 * MIB),
    Case("lstm", "sgd", 512, 250 * MIB),
)
