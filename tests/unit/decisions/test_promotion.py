from __future__ import annotations

import json
import math
from dataclasses import asdict

import pytest

from tasks.decisions.promotion import NOT_PROMOTED, PROMOTED, decide_promotion
from tasks.records import Decision


def decide(
    target_reached: bool = True,
    candidate: float | None = 0.95,
    champion: float | None = 0.94,
    version: str | None = "3",
    readable: bool = True,
    replace: bool = False,
) -> Decision:
    return decide_promotion(target_reached, candidate, champion, version, readable, replace)


def test_a_better_model_is_promoted_and_both_accuracies_are_said() -> None:
    decision = decide(candidate=0.9501, champion=0.95)
    assert decision.name == "promotion"
    assert decision.chosen == PROMOTED
    assert "0.9501" in decision.because
    assert "0.9500" in decision.because
    assert "version 3" in decision.because


@pytest.mark.parametrize("candidate", [0.95, 0.9499])
def test_a_model_as_good_as_the_champion_or_worse_is_not_promoted(candidate: float) -> None:
    decision = decide(candidate=candidate, champion=0.95)
    assert decision.chosen == NOT_PROMOTED
    assert decision.because.startswith("not promoted, not better than the champion")


def test_the_first_model_that_reaches_the_target_is_promoted() -> None:
    assert decide(champion=None, version=None).chosen == PROMOTED


def test_the_first_model_below_the_target_is_not_promoted() -> None:
    assert decide(target_reached=False, champion=None, version=None).chosen == NOT_PROMOTED


def test_a_better_model_below_the_target_is_not_promoted() -> None:
    decision = decide(target_reached=False, candidate=0.99)
    assert decision.chosen == NOT_PROMOTED
    assert "target" in decision.because


@pytest.mark.parametrize(("replace", "chosen"), [(True, PROMOTED), (False, NOT_PROMOTED)])
def test_a_champion_that_cannot_read_the_rows_is_beaten_only_where_that_is_wanted(replace: bool, chosen: str) -> None:
    decision = decide(champion=None, readable=False, replace=replace)
    assert decision.chosen == chosen
    assert "replace_incompatible" in decision.because


def test_below_the_target_even_an_unreadable_champion_stays() -> None:
    assert decide(target_reached=False, champion=None, readable=False, replace=True).chosen == NOT_PROMOTED


@pytest.mark.parametrize("candidate", [math.nan, None])
@pytest.mark.parametrize("version", ["3", None])
def test_an_accuracy_that_is_not_a_number_never_wins(candidate: float | None, version: str | None) -> None:
    assert decide(candidate=candidate, champion=0.1, version=version).chosen == NOT_PROMOTED
    assert decide(candidate=candidate, readable=False, version=version, replace=True).chosen == NOT_PROMOTED


@pytest.mark.parametrize("champion", [math.nan, None])
def test_a_champion_whose_accuracy_is_not_known_is_not_beaten(champion: float | None) -> None:
    assert decide(champion=champion).chosen == NOT_PROMOTED


def test_the_record_holds_what_was_compared() -> None:
    decision = decide(replace=True)
    assert decision.inputs["candidate_accuracy"] == 0.95
    assert decision.inputs["champion_accuracy"] == 0.94
    assert decision.limits == {"replace_incompatible": True}
    assert json.dumps(asdict(decision))
