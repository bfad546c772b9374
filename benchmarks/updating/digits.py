"""Samples for the ranks: scikit-learn's digits, or as many random ones as are wanted, from memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from sklearn.datasets import load_digits

from tasks.records import Column, Schema
from tasks.storage.samples import Samples, StallCause
from tasks.training.preprocessing import Preprocessing, fit_preprocessing

WIDTH, CLASSES = 64, 10
LARGEST_PIXEL = 16.0
TEST_SHARE, VALIDATION_SHARE = 0.15, 0.2


@dataclass(frozen=True)
class Parts:
    """Training, validation and test samples."""

    train: Samples
    validation: Samples
    test: Samples

    def preprocessing(self) -> Preprocessing:
        """Pixels from 0 to 1, less their means over the training samples: as it was when the targets were set."""
        columns = tuple(Column(f"x{number}", "float") for number in range(WIDTH))
        schema = Schema("label", "integer", columns, (WIDTH,), tuple(range(CLASSES)), "float32")
        return replace(fit_preprocessing([self.train.features], schema), scale=(LARGEST_PIXEL,) * WIDTH)


def digits(seed: int, label_noise: float = 0.0) -> Parts:
    """The 1,797 digits, split as `seed` says. Of the training labels a share of `label_noise` is drawn anew."""
    bunch = load_digits()
    random = np.random.default_rng(seed)
    order = random.permutation(len(bunch.target))
    whole = Samples(bunch.data[order].astype(np.float32), bunch.target[order].astype(np.int64))
    test = round(len(whole) * TEST_SHARE)
    validation = test + round((len(whole) - test) * VALIDATION_SHARE)
    train = whole.part(validation, len(whole))
    noisy = random.random(len(train)) < label_noise
    labels = np.where(noisy, random.integers(CLASSES, size=len(train)), train.labels)
    return Parts(Samples(train.features, labels), whole.part(test, validation), whole.part(0, test))


def random_samples(count: int) -> Parts:
    """So many training samples that no epoch ends while something is timed; few to validate on."""
    random = np.random.default_rng(0)
    features = random.random((count, WIDTH), dtype=np.float32)
    whole = Samples(features, random.integers(CLASSES, size=count))
    return Parts(whole, whole.part(0, 32), whole.part(0, 32))


class Shuffled:
    """A rank's source: each epoch in an order of its own, the same on every rank; every n-th sample to validate on."""

    stalled_seconds = 0.0
    stalled_by: Mapping[StallCause, float] = {}
    bytes_from_store = 0
    bytes_from_nodes = 0

    def __init__(self, parts: Parts, rank: int, ranks: int, seed: int) -> None:
        self.train = parts.train
        self.own_validation = parts.validation.rows(np.arange(rank, len(parts.validation), ranks))
        self.samples_per_epoch = len(parts.train)
        self.seed = seed
        self.epoch = -1
        self.order = np.arange(0)

    def take(self, epoch: int, start: int, stop: int, into: Samples | None = None) -> Samples:
        if epoch != self.epoch:
            self.epoch = epoch
            self.order = np.random.default_rng((self.seed, epoch)).permutation(self.samples_per_epoch)
        return self.train.rows(self.order[start:stop]).copied_to(into)

    def release(self, epoch: int, position: int) -> None:
        pass

    def validation(self) -> list[Samples]:
        return [self.own_validation]

    def close(self) -> None:
        pass
