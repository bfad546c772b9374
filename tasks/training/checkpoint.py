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
from tasks.records import Branch, Schema
from tasks.storage.store import hash_file


@dataclass(frozen=True)
class Checkpoint:
    """Model and optimizer state, the loop's `progress` as plain values, and the settings of the phase it is of."""

    model: dict[str, Any]
    optimizer: dict[str, Any]
    progress: dict[str, Any]
    phase_fingerprint: str


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
    return _hash(parts)


def phase_fingerprint(params: Params, branch: Branch, start_from: str | None) -> str:
    """What, besides, a phase that goes on must share with its own checkpoint: the phase's settings and its start."""
    timing = params.pretrain if branch == "pretrain" else params.continuation
    parts = {
        "timing": timing.model_dump(mode="json", exclude={"target_accuracy"}),
        "target": params.pretrain.target_accuracy if branch == "continue" else None,
        "batch": params.batch.model_dump(mode="json"),
        "cluster": params.cluster.model_dump(mode="json", exclude={"max_restarts"}),
        "gradient": params.gradient.model_dump(mode="json"),
        "split": [params.data.validation_share, params.data.test_path is None and params.data.test_share],
        "start": hash_file(Path(start_from)) if start_from else None,
    }
    return _hash(parts)


def _hash(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def save_checkpoint(
    path: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: dict[str, Any],
    fingerprint: str,
    phase_fingerprint: str,
) -> None:
    """Write the state under its final name once it is complete."""
    buffer = io.BytesIO()
    content = {
        "fingerprint": fingerprint,
        "phase_fingerprint": phase_fingerprint,
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
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint or "phase_fingerprint" not in content:
        return None
    return Checkpoint(content["model"], content["optimizer"], content["progress"], content["phase_fingerprint"])
