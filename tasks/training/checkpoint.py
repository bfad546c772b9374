"""The state of a phase as a file: written whole or not at all, read without running any code of it."""

from __future__ import annotations

import hashlib
import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.record_files import write_atomically


@dataclass(frozen=True)
class Checkpoint:
    """Model and optimizer state, the loop's `progress` as plain values, and the settings of the phase it is of."""

    model: dict[str, Any]
    optimizer: dict[str, Any]
    progress: dict[str, Any]
    phase_fingerprint: str


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


def load_checkpoint(path: Path, fingerprint: str) -> Checkpoint | None:
    """Read a checkpoint; None if it is another model's, or can't be read as one.

    Its tensors come to the CPU: on a device they would take the room of the model and the optimizer a second time, and
    step counts, which optimizers read at every step, would stay there.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError):
        return None
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint or "phase_fingerprint" not in content:
        return None
    return Checkpoint(content["model"], content["optimizer"], content["progress"], content["phase_fingerprint"])


def digest_of(model: torch.nn.Module) -> str:
    """The SHA-256 of all parameters and buffers, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
