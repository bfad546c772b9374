"""On a CPU, where nothing is page-locked and nothing is copied while the host goes on: the rest is the same."""

from __future__ import annotations

import numpy as np
import torch

from tasks.storage.samples import Samples
from tasks.training.pinned import PinnedBatches
from tasks.training.preprocessing import Preprocessing, apply, apply_to


class Source:
    """Gives batches of a number that counts up, and remembers the memory that it was given."""

    def __init__(self) -> None:
        self.given: list[int | None] = []
        self.batches = 0

    def fill(self, samples: int, room: Samples | None) -> Samples:
        self.batches += 1
        made = Samples(np.full((samples, 3), self.batches, np.uint8), np.full(samples, self.batches, np.int64))
        self.given.append(None if room is None else room.features.ctypes.data)
        return made.copied_to(room)


def send(batches: PinnedBatches, source: Source, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    return batches.send(samples, lambda room: source.fill(samples, room))


def test_two_buffers_take_turns_and_are_made_once() -> None:
    batches, source = PinnedBatches(torch.device("cpu")), Source()
    for _ in range(6):
        send(batches, source, 4)
    assert source.given[:2] == [None, None]
    assert source.given[2] != source.given[3]
    assert source.given[2:4] == source.given[4:6]


def test_a_batch_on_the_device_stays_what_it_is_when_its_buffer_is_filled_again() -> None:
    batches, source = PinnedBatches(torch.device("cpu")), Source()
    sent = [send(batches, source, samples) for samples in (4, 4, 3, 4, 9, 9, 2)]
    for number, ((features, labels), samples) in enumerate(zip(sent, (4, 4, 3, 4, 9, 9, 2), strict=True), start=1):
        assert features.tolist() == [[number] * 3] * samples
        assert labels.tolist() == [number] * samples


def test_what_is_prepared_on_the_device_is_what_is_prepared_before() -> None:
    preprocessing = Preprocessing((2.0, 3.0, 4.0), (0.5, 1.0, 3.0), (3,))
    features = np.array([[1.0, np.nan, 5.0], [np.inf, 2.0, 9.0]], np.float32)
    for kind in (np.float32, np.uint8):
        values = np.nan_to_num(features, nan=7, posinf=9).astype(kind) if kind is np.uint8 else features
        kept = values.copy()
        expected = apply(preprocessing, values)
        np.testing.assert_array_equal(values, kept)
        assert torch.equal(apply_to(preprocessing, torch.from_numpy(values.copy()), is_ours=True), expected)
