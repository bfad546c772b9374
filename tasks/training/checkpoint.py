"""The state of a phase as a file: written whole or not at all, read without running any code of it."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.config import Params
from tasks.record_files import write_atomically
from tasks.records import Schema


@dataclass(frozen=True)
class Checkpoint:
    """Model and optimizer state, and the loop's `progress` as plain values."""

    model: dict[str, Any]
    optimizer: dict[str, Any]
    progress: dict[str, Any]


def fingerprint(params: Params, schema: Schema) -> str:
    """What a checkpoint and a run that goes on with it must share: model, loss, optimizer, batch, seed and schema."""
    parts = {
        "model": params.model.model_dump(mode="json", exclude={"allowed_packages", "metric"}),
        "optimizer": params.optimizer.model_dump(mode="json"),
        "batch_size": params.batch.size,
        "seed": params.seed,
        "label": schema.label,
        "features": [[column.name, column.length, column.categories] for column in schema.features],
        "input_shape": schema.input_shape,
        "classes": schema.classes,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def save_checkpoint(
    path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any], fingerprint: str
) -> None:
    """Write the state under its final name once it is complete."""
    buffer = io.BytesIO()
    content = {
        "fingerprint": fingerprint,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": progress,
    }
    torch.save(content, buffer)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path, fingerprint: str, device: torch.device) -> Checkpoint | None:
    """Read a checkpoint; None if it is another model's, or can't be read as one."""
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        return None
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint:
        return None
    return Checkpoint(content["model"], content["optimizer"], content["progress"])
