"""The peer "bare Python": the training of the first branch as a plain script with torch alone.

python -m benchmarks.bare SETTINGS.json; prints its result as one JSON object

It reads the same Parquet shards, takes the same rows to train and to validate on, builds the same model and goes
through each batch in the same passes. There is no flow, no tracking, no data versioning, no worker process, no journal
and no exchange. It evaluates as often as the flow does, since that is part of the training, and saves the weights at
its end.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import nn

from tasks.decisions.batch_plan import part_sizes
from tasks.storage.split import TRAIN, VALIDATE, parts_of_rows
from tasks.training.models import DefaultModel

NOT_HERE = ("prefect", "mlflow", "dvc")
Block = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Settings:
    """What the flow takes from params.yaml and finds out about the set. Durations in seconds."""

    shards: str
    weights: str
    label: str
    validation_share: float
    seed: int
    channels: tuple[int, ...]
    hidden: int
    learning_rate: float
    batch: int
    micro_batch: int
    duration: float
    evaluate_every: float


@dataclass(frozen=True)
class Result:
    """`seconds` are those of the training; before it came `ready_seconds` without the imports, then `after_seconds`."""

    steps: int
    samples: int
    seconds: float
    ready_seconds: float
    after_seconds: float
    evaluations: int
    training_rows: int
    validation_rows: int
    accuracy: float


def load(settings: Settings) -> tuple[Block, Block]:
    """Training and validation samples, standardised by the training rows: features (n, 1, side, side), labels (n,)."""
    features, labels, parts = [], [], []
    for shard in sorted(Path(settings.shards).glob("*.parquet")):
        table = pq.read_table(shard)
        labels.append(table.column(settings.label).to_numpy())
        (column,) = [name for name in table.column_names if name != settings.label]
        features.append(np.stack(table.column(column).to_numpy()).astype(np.float32))
        md5 = hashlib.md5(shard.read_bytes()).hexdigest()
        parts.append(parts_of_rows(md5, len(labels[-1]), settings.seed, settings.validation_share, 0.0))
    pixels, targets, part = np.concatenate(features), np.concatenate(labels), np.concatenate(parts)
    known = pixels[part == TRAIN]
    side = round(pixels.shape[1] ** 0.5)
    images = ((pixels - known.mean()) / known.std()).reshape(-1, 1, side, side)

    def block(rows: NDArray[np.bool_]) -> Block:
        return torch.from_numpy(images[rows]), torch.from_numpy(targets[rows].astype(np.int64))

    return block(part == TRAIN), block(part == VALIDATE)


def train(
    settings: Settings, model: nn.Module, optimizer: torch.optim.Optimizer, training: Block, validation: Block
) -> tuple[int, int, int]:
    """Train until the duration is over. Returns the steps, the samples, and how often it evaluated on the way."""
    features, labels = training
    steps = samples = evaluations = 0
    begun = evaluated = time.monotonic()
    while True:
        order = torch.randperm(len(labels))
        for rows in torch.split(order, settings.batch):
            batch, targets = features[rows], labels[rows]
            optimizer.zero_grad()
            start = 0
            for size in part_sizes(len(rows), settings.micro_batch):
                part = slice(start, start + size)
                loss = nn.functional.cross_entropy(model(batch[part]), targets[part]) * (size / len(rows))
                loss.backward()  # type: ignore[no-untyped-call]
                start += size
            optimizer.step()
            steps, samples = steps + 1, samples + len(rows)
            now = time.monotonic()
            if now - begun >= settings.duration:
                return steps, samples, evaluations
            if now - evaluated >= settings.evaluate_every:
                accuracy_of(model, validation, settings.micro_batch)
                evaluations += 1
                evaluated = time.monotonic()


@torch.no_grad()
def accuracy_of(model: nn.Module, validation: Block, at_once: int) -> float:
    """The share of the validation samples that the model gets right."""
    model.eval()
    features, labels = validation
    found = [model(part).argmax(dim=1) for part in torch.split(features, at_once)]
    model.train()
    return float((torch.cat(found) == labels).float().mean())


def main(file: str) -> None:
    started = time.monotonic()
    settings = Settings(**json.loads(Path(file).read_text()))
    torch.manual_seed(settings.seed)
    training, validation = load(settings)
    classes = int(training[1].max()) + 1
    model = DefaultModel(training[0].shape[1:], classes, settings.channels, settings.hidden)
    optimizer = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
    begun = time.monotonic()
    steps, samples, evaluations = train(settings, model, optimizer, training, validation)
    ended = time.monotonic()
    accuracy = accuracy_of(model, validation, settings.micro_batch)
    torch.save(model.state_dict(), settings.weights)
    loaded = [name for name in NOT_HERE if name in sys.modules]
    assert not loaded, f"bare Python has loaded {', '.join(loaded)}"
    result = Result(
        steps,
        samples,
        seconds=ended - begun,
        ready_seconds=begun - started,
        after_seconds=time.monotonic() - ended,
        evaluations=evaluations,
        training_rows=len(training[1]),
        validation_rows=len(validation[1]),
        accuracy=accuracy,
    )
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main(sys.argv[1])
