"""What a checkpoint is of, as short hashes: by them a phase tells whether it can go on with one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tasks.config import Params
from tasks.records import Branch, Schema
from tasks.storage.store import hash_file


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
        "cluster": params.cluster.model_dump(mode="json", exclude={"max_restarts", "workers"}),
        "gradient": params.gradient.model_dump(mode="json"),
        "split": [params.data.validation_share, params.data.test_path is None and params.data.test_share],
        "start": hash_file(Path(start_from)) if start_from else None,
    }
    return _hash(parts)


def _hash(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
