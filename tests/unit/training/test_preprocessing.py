"""Features are centred and scaled by what was fitted on training rows, whatever the blocks they came in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tasks.record_files import read_record, write_record
from tasks.training.preprocessing import Preprocessing, Vocabulary, apply, fit_preprocessing
from tests.support.schemas import images, mixed, table


def in_blocks(features: NDArray[Any], *sizes: int) -> Iterator[NDArray[Any]]:
    yield from np.split(features, np.cumsum(sizes))


def test_fitting_block_by_block_gives_the_figures_of_the_whole_set() -> None:
    features = np.random.default_rng(1).normal([5, -300, 0.01, 7], [1, 50, 0.001, 3], (101, 4)).astype(np.float32)
    fitted = fit_preprocessing(in_blocks(features, 1, 60, 0, 7), table(width=4))
    assert fitted.mean == pytest.approx(features.astype(np.float64).mean(axis=0).tolist(), rel=1e-12)
    assert fitted.scale == pytest.approx(features.astype(np.float64).std(axis=0).tolist(), rel=1e-9)


def test_a_small_spread_far_from_zero_is_not_lost_in_rounding() -> None:
    features = 1e6 + np.random.default_rng(1).normal(0, 1, (1000, 1))
    fitted = fit_preprocessing(in_blocks(features, *[100] * 9), table(width=1))
    assert fitted.scale == pytest.approx(features.std(axis=0).tolist(), rel=1e-6)


def test_an_image_has_one_mean_and_scale_for_all_its_pixels() -> None:
    pixels = np.random.default_rng(1).integers(0, 17, (40, 64)).astype(np.uint8)
    fitted = fit_preprocessing([pixels], images(side=8))
    assert fitted.mean == pytest.approx((pixels.mean(),))
    assert fitted.scale == pytest.approx((pixels.std(),))
    scaled = apply(fitted, pixels)
    assert scaled.shape == (40, 1, 8, 8)
    assert scaled.dtype == torch.float32
    assert abs(float(scaled.mean())) < 1e-5
    assert float(scaled.std(correction=0)) == pytest.approx(1, abs=1e-4)
    assert scaled[3, 0, 2, 5] == pytest.approx((float(pixels[3, 2 * 8 + 5]) - pixels.mean()) / pixels.std(), abs=1e-4)


@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_what_is_missing_is_left_out_of_the_fit_and_becomes_the_mean(hole: float) -> None:
    features = np.array([[1.0, 10.0], [hole, 20.0], [3.0, hole]], dtype=np.float32)
    fitted = fit_preprocessing(in_blocks(features, 1), table(width=2))
    assert fitted.mean == (2.0, 15.0)
    assert fitted.scale == (1.0, 5.0)
    assert apply(fitted, features).tolist() == [[-1, -1], [0, 1], [1, 0]]


def test_a_feature_that_is_always_missing_becomes_zero() -> None:
    features = np.array([[np.nan, 1.0], [np.nan, 3.0]], dtype=np.float32)
    fitted = fit_preprocessing([features], table(width=2))
    assert (fitted.mean[0], fitted.scale[0]) == (0.0, 1.0)
    assert apply(fitted, features)[:, 0].tolist() == [0, 0]


def test_a_constant_feature_keeps_a_scale_of_one_in_spite_of_rounding() -> None:
    features = np.full((1000, 1), 0.1)
    fitted = fit_preprocessing(in_blocks(features, *[7] * 100), table(width=1))
    assert fitted.scale == (1.0,)
    assert apply(fitted, features.astype(np.float32)).abs().max() < 1e-6


def test_no_row_at_all_leaves_features_as_they_are() -> None:
    fitted = fit_preprocessing([], table(width=2))
    assert apply(fitted, np.array([[1.0, -2.0]], dtype=np.float32)).tolist() == [[1, -2]]


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_the_samples_themselves_stay_as_they_are(dtype: str) -> None:
    features = np.arange(12).reshape(6, 2).astype(dtype)
    fitted = fit_preprocessing([features], table(width=2))
    first, second = apply(fitted, features), apply(fitted, features)
    assert np.array_equal(features, np.arange(12).reshape(6, 2))
    assert first.tolist() == second.tolist()
    assert first.mean(dim=0).tolist() == pytest.approx([0, 0], abs=1e-6)


def test_it_reads_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    features = np.random.default_rng(1).normal(size=(9, 3))
    fitted = fit_preprocessing([features], table(width=3))
    apply(fitted, features)
    write_record(tmp_path / "preprocessing.json", fitted)
    assert read_record(tmp_path / "preprocessing.json", Preprocessing) == fitted


MIXED = np.array([[1.0, 0, 10.0], [3.0, 1, 20.0], [np.nan, np.nan, 30.0]], dtype=np.float32)


def test_a_category_is_one_of_its_slots_and_what_is_none_the_last() -> None:
    fitted = fit_preprocessing(in_blocks(MIXED, 1), mixed())
    assert fitted.vocabularies == (Vocabulary("site", 1, ("left", "right")),)
    seen = apply(fitted, MIXED)
    assert seen.dtype == torch.float32
    assert seen[:, 1:4].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert seen[:, 0].tolist() == [-1, 1, 0]
    assert seen[:, 4].tolist() == pytest.approx([-(1.5**0.5), 0, 1.5**0.5])


def test_a_code_is_no_quantity_that_is_centred() -> None:
    fitted = fit_preprocessing([np.repeat(MIXED[1:2], 9, axis=0)], mixed())
    assert (fitted.mean[1], fitted.scale[1]) == (0.0, 1.0)
    assert apply(fitted, MIXED[1:2])[0, 1:4].tolist() == [0, 1, 0]


def test_categories_side_by_side_and_one_without_a_value_have_their_own_slots() -> None:
    fitted = Preprocessing((0.0,) * 2, (1.0,) * 2, (5,), (Vocabulary("a", 0, ()), Vocabulary("b", 1, ("x", "y", "z"))))
    codes = np.array([[np.nan, 2], [np.nan, 0]], dtype=np.float32)
    assert apply(fitted, codes).tolist() == [[1, 0, 0, 1, 0], [1, 1, 0, 0, 0]]


def test_vocabularies_read_back_from_their_file(tmp_path: Path) -> None:
    fitted = fit_preprocessing([MIXED], mixed())
    write_record(tmp_path / "preprocessing.json", fitted)
    assert read_record(tmp_path / "preprocessing.json", Preprocessing) == fitted
    assert '"left"' in (tmp_path / "preprocessing.json").read_text()
