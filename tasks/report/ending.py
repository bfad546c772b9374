"""What stands on the screen when a run is over: every decision, the outcome, and how to look closer."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tasks.config import Params
from tasks.records import Run
from tasks.report.build import Report
from tasks.report.page import OUTCOMES
from tasks.report.wording import share

# Telemetry off, and two processes instead of ten.
MLFLOW_SETTINGS = "DO_NOT_TRACK=true MLFLOW_DISABLE_TELEMETRY=true MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false"


def print_ending(
    console: Console, report: Report, run: Run, params: Params, warned: list[str], links: dict[str, str]
) -> None:
    """Print the end of a run. Nothing is cut off; without a terminal nothing is wrapped either.

    `links` are addresses in MLflow's UI by name, empty where the run didn't reach MLflow.
    """
    if console.is_terminal:
        console.print(_decision_table(report))
    else:
        for decision in report["decisions"]:
            _line(console, f"{decision['name']} = {decision['chosen']}: {decision['because']}")
    for message in warned:
        _line(console, f"warning: {message}")
    words, _ = OUTCOMES.get(report["outcome"], (str(report["outcome"]), ""))
    seconds = report["seconds"]
    _line(
        console,
        f"outcome: {words} (accuracy {share(report['accuracy'])}, target {share(report['target_accuracy'])}, "
        f"test accuracy {share(report['test_accuracy'])}, {'?' if seconds is None else f'{seconds:.1f}'} s)",
    )
    _line(console, f"MLflow:  {mlflow_command(params)}")
    for name, url in links.items():
        _line(console, f"         {name:8} {url}")
    _line(console, f"report:  {report_command(run)}")


def mlflow_command(params: Params) -> str:
    """What to type at the project's root to see the runs; for a server, where it is."""
    uri = params.tracking.uri
    if uri.startswith(("http://", "https://")):
        return uri
    return f"{MLFLOW_SETTINGS} .venv/bin/mlflow ui --backend-store-uri {shlex.quote(uri)} --host 127.0.0.1 --workers 1"


def report_command(run: Run) -> str:
    """What to type to see the report in a browser."""
    return f".venv/bin/python -m webbrowser {shlex.quote((Path(run.folder).resolve() / 'report.html').as_uri())}"


def _decision_table(report: Report) -> Table:
    table = Table(title="Decisions", title_justify="left", show_lines=True)
    # Folded, never cut: the sentence is the point of the table.
    for column in ("decision", "chosen", "because"):
        table.add_column(column, overflow="fold", ratio=3 if column == "because" else None)
    for decision in report["decisions"]:
        table.add_row(*(Text(str(decision[key])) for key in ("name", "chosen", "because")))
    return table


def _line(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
