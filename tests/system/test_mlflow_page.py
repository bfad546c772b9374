"""MLflow's compare page of a run's branches: what stands on it, against what the run's report says."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.system.conftest import Shown

pytestmark = pytest.mark.system

# The page shows three digits behind the point.
ROUNDING = 0.0005 + 1e-9


@dataclass(frozen=True)
class Branch:
    """What report.json says of a branch: its phase, the version of the data, the last decision of each name."""

    phase: dict[str, Any]
    version: str
    last: dict[str, dict[str, Any]]

    def coefficient(self, name: str) -> float:
        return float(self.last["gradient_coefficient"]["inputs"][name])


def branches(report: dict[str, Any]) -> list[Branch]:
    """Each branch ends with the question whether the target is reached; between the two the data is staged again."""
    found: list[Branch] = []
    last: dict[str, dict[str, Any]] = {}
    (restaged,) = [decision for decision in report["decisions"] if "version_after" in decision["inputs"]]
    versions = (restaged["inputs"]["version_before"], restaged["inputs"]["version_after"])
    for decision in report["decisions"]:
        last[decision["name"]] = decision
        if decision["name"] == "target":
            found.append(Branch(report["phases"][len(found)], versions[len(found)], dict(last)))
    return found


def applied_coefficient(branch: Branch) -> float:
    parts = [branch.coefficient(name) for name in ("coef_accuracy", "coef_duration", "coef_delta_b")]
    return max(prod(parts), float(branch.last["gradient_coefficient"]["limits"]["minimum"]))


# What must stand on the page: section, row, and what the report says of it.
ROWS: list[tuple[str, str, Callable[[Branch], Any]]] = [
    ("Run details", "Run Name:", lambda branch: branch.phase["name"]),
    ("Parameters", "micro_batch", lambda branch: branch.last["batch_plan"]["chosen"].split()[-2]),
    ("Parameters", "passes", lambda branch: branch.last["batch_plan"]["chosen"].split()[0]),
    ("Parameters", "predicted_peak_bytes", lambda branch: branch.last["batch_plan"]["inputs"]["predicted_peak_bytes"]),
    ("Parameters", "workers", lambda branch: branch.phase["workers"]),
    ("Metrics", "accuracy", lambda branch: branch.phase["accuracy"]),
    ("Metrics", "b_ratio", lambda branch: branch.coefficient("b_ratio")),
    ("Metrics", "delta_b", lambda branch: branch.coefficient("delta_b")),
    ("Metrics", "coef_accuracy", lambda branch: branch.coefficient("coef_accuracy")),
    ("Metrics", "coef_duration", lambda branch: branch.coefficient("coef_duration")),
    ("Metrics", "coef_delta_b", lambda branch: branch.coefficient("coef_delta_b")),
    ("Metrics", "gradient_coefficient", applied_coefficient),
    ("Metrics", "step_seconds_max", lambda branch: max(branch.last["gradient_coefficient"]["inputs"]["step_seconds"])),
    ("Tags", "branch", lambda branch: branch.phase["name"]),
    ("Tags", "storage_mode", lambda branch: branch.phase["mode"]),
    ("Tags", "update_mode", lambda branch: branch.last["update_mode"]["chosen"]),
]
ROWS_TO_COME: list[tuple[str, str, Callable[[Branch], Any]]] = [
    ("Tags", "data.version", lambda branch: branch.version),
]


@pytest.fixture(scope="module")
def compared(page: Page, shown: Shown) -> Page:
    """The page that *Compare* leads to."""
    runs = json.dumps([child.info.run_id for child in shown.children], separators=(",", ":"))
    experiments = json.dumps([shown.experiment_id])
    page.goto(f"{shown.mlflow}/#/compare-runs?runs={runs}&experiments={experiments}&workflowType=machine_learning")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="gradient_coefficient").wait_for()
    return page


def section(page: Page, name: str) -> Locator:
    return page.locator(
        f"xpath=//*[@aria-label='collapse {name}']/ancestor::div[.//table or .//*[@role='grid']][1]"
    ).first


def cells(page: Page, name: str, row: str) -> list[str]:
    """The texts of a row, a branch each. Metrics are in two grids: the names, and beside them the values."""
    part = section(page, name)
    if name == "Metrics":
        names = part.get_by_role("link").all_inner_texts()
        values = part.get_by_role("grid").nth(1).locator("span").all_inner_texts()
        columns = len(values) // len(names)
        first = columns * names.index(row)
        return values[first : first + columns]
    return part.locator("tr", has=page.get_by_role("rowheader", name=row, exact=True)).locator("td").all_inner_texts()


def is_shown(text: str, value: Any) -> bool:
    if isinstance(value, float):
        return abs(float(text) - value) <= ROUNDING
    return text.strip() == str(value)


@pytest.mark.parametrize(
    ("part", "row", "said"),
    [
        *(pytest.param(*row, id=row[1]) for row in ROWS),
        *(pytest.param(*row, id=row[1], marks=pytest.mark.xfail(strict=True)) for row in ROWS_TO_COME),
    ],
)
def test_a_row_shows_for_each_branch_what_the_report_says(
    part: str, row: str, said: Callable[[Branch], Any], compared: Page, shown: Shown
) -> None:
    """Claim E1: the branches side by side."""
    texts = cells(compared, part, row)
    values = [said(branch) for branch in branches(shown.run.report)]
    assert len(texts) == 2
    assert all(is_shown(text, value) for text, value in zip(texts, values, strict=True)), (texts, values)


def test_rows_in_which_the_branches_differ_are_what_show_diff_only_leaves(compared: Page) -> None:
    switch = compared.get_by_role("switch", name="Tags - Show diff only")
    switch.click()
    left = section(compared, "Tags").get_by_role("rowheader").all_inner_texts()
    switch.click()
    assert {"branch", "storage_mode", "update_mode"} <= set(left)


def test_a_picture_shows_the_branches_side_by_side(compared: Page, pictures: Path) -> None:
    compared.get_by_role("button", name="Visualizations").click()
    picture = pictures / "mlflow-compare.png"
    compared.set_viewport_size({"width": 1400, "height": 1650})
    compared.screenshot(path=picture)
    assert 10_000 < picture.stat().st_size <= 300_000


def test_the_page_asks_nothing_of_other_machines(compared: Page, refused: set[str]) -> None:
    assert compared.url
    assert refused == set()
