"""Claim B2: the batch parameters are determined from the quality of the training samples."""

from __future__ import annotations

import pytest

from tasks.decisions.batch_size import BASE_BATCH, Quality, batch_size_from_quality, label_noise

CLEAN = Quality(rows=10_000, missing_share=0.0, distinct=10_000, label_disagreement=0.0)


def size(missing: float = 0.0, disagreement: float | None = 0.0, distinct: int = 10_000, samples: int = 10_000) -> int:
    return batch_size_from_quality(Quality(10_000, missing, distinct, disagreement), 10, samples).size


def test_clean_samples_get_the_base() -> None:
    assert size() == BASE_BATCH


def test_missing_values_raise_the_batch_by_the_inverse_square() -> None:
    assert size(missing=0.2) == round(BASE_BATCH / 0.64)


def test_noisy_labels_raise_the_batch() -> None:
    noise = 0.2
    disagreement = 2 * noise - noise**2 * 10 / 9
    assert size(disagreement=disagreement) == round(BASE_BATCH / (1 - noise * 10 / 9) ** 2)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.4, 0.8])
def test_the_noise_is_found_from_how_often_duplicates_disagree(noise: float) -> None:
    assert label_noise(2 * noise - noise**2 * 10 / 9, 10) == pytest.approx(noise)


@pytest.mark.parametrize(("disagreement", "classes"), [(None, 10), (0.5, 1), (0.5, 0)])
def test_noise_that_cannot_be_known_is_none(disagreement: float | None, classes: int) -> None:
    assert label_noise(disagreement, classes) == 0.0


def test_labels_that_tell_nothing_raise_the_batch_four_times_and_no_more() -> None:
    assert size(disagreement=1.0) == 4 * BASE_BATCH
    assert size(missing=1.0) == 4 * BASE_BATCH


def test_duplicates_cap_the_batch_and_never_raise_it() -> None:
    assert size(distinct=500) == 50
    assert size(distinct=10) == 16


def test_a_set_smaller_than_the_least_batch_is_one_batch() -> None:
    assert batch_size_from_quality(CLEAN, 10, 7).size == 7


def test_one_class_does_not_divide_by_zero() -> None:
    assert batch_size_from_quality(CLEAN, 1, 10_000).size == BASE_BATCH


def test_the_record_holds_the_formula_s_inputs() -> None:
    found = batch_size_from_quality(CLEAN, 10, 10_000)
    assert {"missing_share", "label_noise", "growth", "base", "distinct"} <= set(found.inputs)
    assert f"gives {BASE_BATCH}" in found.because


@pytest.mark.parametrize(("noise_scale", "missing", "expected"), [(100.4, 0.0, 100), (100.0, 0.5, 400), (3.0, 0.0, 16)])
def test_the_base_is_the_measured_noise_scale_where_there_is_one(
    noise_scale: float, missing: float, expected: int
) -> None:
    found = batch_size_from_quality(Quality(10_000, missing, 10_000, 0.0), 10, 10_000, noise_scale)
    assert found.size == expected
    assert found.inputs["base"] == found.inputs["noise_scale"] == noise_scale
    assert f"the measured gradient noise scale of {noise_scale:.3g}" in found.because


@pytest.mark.parametrize("noise_scale", [1e9, 1e300])
def test_a_noise_scale_beyond_all_samples_is_capped_to_a_tenth_of_the_distinct_ones(noise_scale: float) -> None:
    assert batch_size_from_quality(CLEAN, 10, 10_000, noise_scale).size == 1000
