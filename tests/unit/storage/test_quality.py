from __future__ import annotations

import numpy as np
import pytest

from tasks.storage.quality import quality_of
from tasks.storage.samples import Samples


def samples(features: list[list[float]], labels: list[int]) -> Samples:
    return Samples(np.array(features, dtype=np.float32), np.array(labels, dtype=np.int64))


def test_missing_values_are_counted_over_all_features() -> None:
    assert quality_of(samples([[1, np.nan], [np.nan, 2], [3, 4]], [0, 1, 2])).missing_share == pytest.approx(1 / 3)


def test_duplicates_are_counted_once_and_their_disagreement_is_a_share_of_pairs() -> None:
    found = quality_of(samples([[1, 2], [1, 2], [1, 2], [3, 4]], [0, 0, 1, 0]))
    assert found.distinct == 2
    assert found.label_disagreement == pytest.approx(2 / 3)


def test_without_duplicates_disagreement_is_not_known() -> None:
    assert quality_of(samples([[1, 2], [3, 4]], [0, 1])).label_disagreement is None


def test_rows_that_miss_the_same_values_are_duplicates() -> None:
    assert quality_of(samples([[np.nan, 2], [np.nan, 2]], [0, 0])).distinct == 1


def test_pixels_have_no_missing_values() -> None:
    pixels = Samples(np.array([[1, 2], [1, 2]], dtype=np.uint8), np.array([0, 1]))
    found = quality_of(pixels)
    assert (found.missing_share, found.distinct, found.label_disagreement) == (0.0, 1, 1.0)


def test_missing_categories_count_as_missing_and_equal_ones_make_duplicates() -> None:
    """Beside a number stands the code of a category, NaN where it is missing."""
    found = quality_of(samples([[1, 0], [1, 0], [1, 1], [1, np.nan]], [0, 1, 0, 0]))
    assert (found.missing_share, found.distinct, found.label_disagreement) == (1 / 8, 3, 1.0)
