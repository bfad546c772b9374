"""PNG and JPEG images: their shapes, their pixels, and packs of them, which are what a folder of images is staged as.

A pack is an uncompressed tar file of the images as they are, whose bytes depend on nothing but them and their names:
one of the same images has the same hash everywhere. Its images' classes are the first folders of their names.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

IMAGE_COLUMN = "image"
_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_GREY = ("1", "L", "I;16", "LA")


def starts_as_image(content: bytes) -> bool:
    """Whether bytes begin as those of a PNG or JPEG file do."""
    return content.startswith(_STARTS)


def shape_of(content: bytes) -> tuple[int, int, int]:
    """Channels (1 for grey images, else 3), height and width, from an image's header. Raises `ValueError`."""
    from PIL import Image  # here: sets of numbers do without

    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            return (1 if image.mode in _GREY else 3, image.height, image.width)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"it is no readable PNG or JPEG image: {' '.join(str(error).split())}") from error


def pixels_of(content: bytes, channels: int) -> NDArray[np.uint8]:
    """(channels, height, width): grey ones, or red, green and blue. Raises `ValueError`."""
    from PIL import Image  # as above

    try:
        with Image.open(io.BytesIO(content), formats=("PNG", "JPEG")) as image:
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"it can't be decoded: {' '.join(str(error).split())}") from error
    return pixels[np.newaxis] if channels == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def decode_images(images: Iterable[bytes | None], rows: int, shape: Sequence[int]) -> NDArray[np.uint8]:
    """The pixels of images, one a row: (rows, channels * height * width). Raises `ValueError` naming the row."""
    pixels = np.empty((rows, *shape), dtype=np.uint8)
    for row, image in enumerate(images):
        if image is None:
            raise ValueError(f"row {row + 1} has no image")
        try:
            found = pixels_of(image, shape[0])
        except ValueError as error:
            raise ValueError(f"the image in row {row + 1}: {error}") from error
        if found.shape[1:] != tuple(shape[1:]):
            raise ValueError(f"the image in row {row + 1} is {as_size(found.shape)}, and not {as_size(shape)}")
        pixels[row] = found
    return pixels.reshape(rows, -1)


def as_size(shape: Sequence[int]) -> str:
    """Width and height as people write them."""
    return f"{shape[2]} x {shape[1]}"


def pack(images: Iterable[tuple[str, bytes]]) -> bytes:
    """Images with their names (`class/.../file`) as one tar file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in images:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def read_pack(content: bytes, label: str) -> Any:
    """A pack as an Arrow table: `image` (binary) and the label (text). Raises `ValueError` for what is no pack."""
    images, classes = [], []
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    images.append(file.read())
                    classes.append(class_of(member.name))
    except tarfile.TarError as error:
        raise ValueError(f"it is no pack of images: {error}") from error
    return pa.table({IMAGE_COLUMN: pa.array(images, pa.binary()), label: pa.array(classes, pa.string())})


def class_of(name: str) -> str:
    """The class of an image in a set: the first folder of its path."""
    return name.partition("/")[0]
