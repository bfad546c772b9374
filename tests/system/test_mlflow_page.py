"""MLflow's compare page of a run's branches: what stands on it, against what the run's report says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.system.conftest import LARGEST_PICTURE, Shown

pytestmark = pytest.mark.system

# The page shows three digits behind the point.
ROUNDING = 0.0005 + 1e-9


@dataclass(frozen=True)
class Branch:
    """What report.json says of a branch: its phase, the version of the data, the last decision of each name."""

    phase: dict[str, Any]
    version: str
    last: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        workers = "1 worker" if self.phase["workers"] == 1 else f"{self.phase['workers']} workers"
        return f"{self.phase['name']}: {self.phase['mode']}, {workers}, {self.phase['accuracy']:.4f}"

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


# A section's table: the name of each row, and its texts.
TABLE = """part => Object.fromEntries([...part.querySelectorAll("tr")].map(row => [
    row.querySelector("th").innerText, [...row.querySelectorAll("td")].map(cell => cell.innerText),
]))"""
# The metrics are in two grids, names and values, which draw the rows near to those in view, each when it comes to it.
GRIDS = """async part => {
    const [names, values] = part.querySelectorAll("[role=grid]")
    const cells = grid => [...grid.firstElementChild.children]
    const found = {}
    for (let look = 0; look < 100; look++) {
        for (const name of cells(names)) {
            const row = cells(values).filter(cell => cell.style.top === name.style.top)
            if (row.length) found[name.innerText] = row.map(cell => cell.innerText)
        }
        if (Object.keys(found).length * cells(names)[0].offsetHeight >= values.scrollHeight) break
        values.scrollTop = look % 10 / 10 * values.scrollHeight
        await new Promise(done => setTimeout(done, 50))
    }
    values.scrollTop = 0
    return found
}"""

# What must stand on the page: section, row, and what the report says of it.
ROWS: list[tuple[str, str, Callable[[Branch], Any]]] = [
    ("Run details", "Run Name:", lambda branch: branch.name),
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


@pytest.fixture(scope="module")
def rows(compared: Page) -> dict[str, dict[str, list[str]]]:
    """What stands on the page: a section's rows, a text a branch in each."""
    tables = {name: section(compared, name).evaluate(TABLE) for name in ("Run details", "Parameters", "Tags")}
    return tables | {"Metrics": section(compared, "Metrics").evaluate(GRIDS)}


def is_shown(text: str, value: Any) -> bool:
    if isinstance(value, float):
        return abs(float(text) - value) <= ROUNDING
    return text.strip() == str(value)


@pytest.mark.parametrize(
    ("part", "row", "said"),
    [pytest.param(*row, id=row[1]) for row in ROWS],
)
def test_a_row_shows_for_each_branch_what_the_report_says(
    part: str, row: str, said: Callable[[Branch], Any], rows: dict[str, dict[str, list[str]]], shown: Shown
) -> None:
    """Claim E1: the branches side by side."""
    texts = rows[part].get(row, [])
    values = [said(branch) for branch in branches(shown.run.report)]
    assert len(texts) == 2
    assert all(is_shown(text, value) for text, value in zip(texts, values, strict=True)), (texts, values)


def test_show_diff_only_leaves_the_rows_in_which_the_branches_differ(
    compared: Page, rows: dict[str, dict[str, list[str]]]
) -> None:
    different = {name for name, texts in rows["Tags"].items() if len(set(texts)) > 1}
    assert {"branch", "storage_mode"} <= different
    switch = compared.get_by_role("switch", name="Tags - Show diff only")
    switch.click()
    left = section(compared, "Tags").get_by_role("rowheader")
    expect(left).to_have_count(len(different))
    assert set(left.all_inner_texts()) == different
    switch.click()
    expect(left).to_have_count(len(rows["Tags"]))


def test_a_picture_shows_the_branches_side_by_side(compared: Page, pictures: Path) -> None:
    for button in ("Toggle sidebar", "Visualizations", "Artifacts"):
        compared.get_by_role("button", name=button).click()
    compared.set_viewport_size({"width": 1200, "height": 2400})
    compared.mouse.move(0, 0)
    end = section(compared, "Tags").bounding_box()
    assert end is not None
    picture = pictures / "mlflow-compare.png"
    compared.screenshot(path=picture, clip={"x": 0, "y": 0, "width": 1200, "height": end["y"] + end["height"]})
    assert 10_000 < picture.stat().st_size <= LARGEST_PICTURE


def test_the_link_to_the_runs_that_is_printed_leads_to_a_table_with_their_values(page: Page, shown: Shown) -> None:
    (printed,) = re.findall(r"http://127\.0\.0\.1:5000(/#/experiments/\S+viewStateShareKey=\S+)", shown.run.output)
    page.set_viewport_size({"width": 3000, "height": 900})
    page.goto(f"{shown.mlflow}{printed}")
    for column in ("accuracy", "b_ratio", "gradient_coefficient"):
        expect(page.get_by_role("columnheader", name=column, exact=True).first).to_be_visible()
    expect(page.get_by_role("gridcell", name=str(shown.run.report["accuracy"]), exact=True).first).to_be_visible()


def test_the_page_asks_nothing_of_other_machines(compared: Page, refused: set[str]) -> None:
    assert compared.url
    assert refused == set()
