"""Prefect's page of the flow run: its state, its branches and its decisions, against what the run's report says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.system.conftest import LARGEST_PICTURE, Shown

pytestmark = pytest.mark.system

# Prefect's page reports its use there, whatever its server is told. Here it gets no answer, and does without.
REPORTED_TO = {"sr-client-cfg.amplitude.com", "api2.amplitude.com"}
SHOWN_OF_A_DECISION = ("name", "chosen", "because", "at")


@pytest.fixture
def flow_run(page: Page, shown: Shown) -> Page:
    """The page of the flow run that MLflow's parent run names, with its subflow runs."""
    open_tab(page, f"{shown.prefect}/v2/runs/flow-run/{shown.parent.data.tags['prefect.flow_run_id']}", "SubflowRuns")
    return page


def open_tab(page: Page, address: str, tab: str) -> Locator:
    page.goto(f"{address}?tab={tab}")
    panel = page.get_by_role("tabpanel")
    expect(panel.get_by_role("link").first).to_be_visible()
    return panel


def addresses(shown: Shown, part: Locator, kind: str, name: str = "") -> list[str]:
    """Where the links to things of a kind lead; to those only whose name has `name` in it."""
    links = part.locator(f"a[href*='{kind}']").filter(has_text=name).all()
    found = [link.get_attribute("href") for link in links]
    return list(dict.fromkeys(f"{shown.prefect}{address}" for address in found))


def decisions(page: Page, artifact: str) -> list[dict[str, str]]:
    """All rows of an artifact: its table shows ten, and goes back to the first ten when more of the page arrives."""
    page.goto(artifact)
    expect(page.get_by_role("cell").first).to_be_visible()
    first = [cell.inner_text() for cell in page.get_by_role("row").nth(1).get_by_role("cell").all()]
    page.get_by_role("tab", name="Raw").click()
    rows: list[dict[str, str]] = json.loads(page.get_by_role("tabpanel").locator("pre").inner_text())
    assert first == list(rows[0].values())
    return rows


def test_the_run_is_shown_as_completed_under_a_name_that_says_what_it_is_for(flow_run: Page, shown: Shown) -> None:
    target = shown.run.report["target_accuracy"]
    expect(flow_run.get_by_text(f"retraining: data/digits to {target:g}", exact=True)).to_be_visible()
    expect(flow_run.get_by_text("Completed", exact=True).first).to_be_visible()


def test_its_subflow_runs_are_the_branches_with_the_reasons_why_they_were_taken(flow_run: Page, shown: Shown) -> None:
    storage, *_ = [decision for decision in shown.run.report["decisions"] if decision["name"] == "storage_mode"]
    accuracy = shown.run.report["phases"][0]["accuracy"]
    panel = flow_run.get_by_role("tabpanel")
    expect(panel.get_by_text(f"pretrain: local, {storage['because']}")).to_be_visible()
    expect(panel.get_by_text(f"continue: distributed, 2 workers, accuracy {accuracy:.4f} < 0.93")).to_be_visible()
    expect(panel.get_by_text("Completed", exact=True)).to_have_count(2)


def test_its_artifacts_and_its_branches_artifacts_are_the_decisions_of_the_report(flow_run: Page, shown: Shown) -> None:
    runs = [flow_run.url.partition("?")[0], *addresses(shown, flow_run.get_by_role("tabpanel"), "/runs/flow-run/")]
    assert len(runs) == 3
    artifacts = [
        address
        for run in runs
        for address in addresses(shown, open_tab(flow_run, run, "Artifacts"), "/artifacts/artifact/", "decisions-")
    ]
    rows = [tuple(row.values()) for artifact in artifacts for row in decisions(flow_run, artifact)]
    expected = [tuple(decision[key] for key in SHOWN_OF_A_DECISION) for decision in shown.run.report["decisions"]]
    assert sorted(rows) == sorted(expected)


def test_a_picture_shows_the_timeline_with_both_branches(flow_run: Page, pictures: Path) -> None:
    flow_run.set_viewport_size({"width": 1400, "height": 860})
    expect(flow_run.locator("canvas").first).to_be_visible()
    # The timeline moves to its place, and says nowhere when it is there.
    flow_run.wait_for_timeout(3_000)
    picture = pictures / "prefect-run.png"
    flow_run.screenshot(path=picture)
    assert 10_000 < picture.stat().st_size <= LARGEST_PICTURE


def test_the_page_does_without_other_machines(flow_run: Page, refused: set[str]) -> None:
    assert flow_run.url
    assert refused <= REPORTED_TO
