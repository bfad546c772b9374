"""Images made up for tests."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def picture(seed: int, width: int = 6, height: int = 4, colours: bool = True, kind: str = "PNG") -> bytes:
    """A PNG or JPEG of random pixels."""
    shape = (height, width, 3) if colours else (height, width)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def pixels(content: bytes) -> np.ndarray:
    """What Pillow makes of it: (channels, height, width)."""
    found = np.asarray(Image.open(io.BytesIO(content)))
    return found[np.newaxis] if found.ndim == 2 else found.transpose(2, 0, 1)
