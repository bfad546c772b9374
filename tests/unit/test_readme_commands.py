"""Every command that the documentation shows is run by a test: here is which."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "examples/tabular/README.md", "benchmarks/README.md")
STARTS = ("make ", "dvc ", "prefect ", "export ", ". ", "python ", ".venv/bin/")

REPRO = "flows/test_dvc_repro.py"
DEPLOYMENTS = "flows/test_deployments.py"
TARGETS = "unit/test_readme_commands.py::test_a_make_target_runs_what_tests_run"
RUN_BY: dict[str, str] = {
    "make run": TARGETS,
    "make test": TARGETS,
    "make serve": TARGETS,
    "make bench": TARGETS,
    "make bench ONLY=operations": TARGETS,
    ".venv/bin/python -m flows.retraining --set pretrain.duration=5": (
        "flows/test_other_runs.py::test_a_capacity_limit_of_one_byte_makes_the_flow_distributed_from_its_start"
    ),
    ".venv/bin/python -m flows.retraining --set storage.capacity_limit=1": (
        "flows/test_other_runs.py::test_a_capacity_limit_of_one_byte_makes_the_flow_distributed_from_its_start"
    ),
    ".venv/bin/python -m flows.retraining --resume": (
        "flows/test_resume.py::test_an_interrupted_run_goes_on_from_its_checkpoint_as_the_same_run"
    ),
    ".venv/bin/dvc add data/mine && .venv/bin/dvc push": (
        "flows/test_own_data.py::test_a_folder_of_csv_files_is_added_pushed_and_trained_on_with_three_keys"
    ),
    ".venv/bin/python -m flows.retraining --set data.path=data/mine --set data.label=kind --set data.test_path=null": (
        "flows/test_own_data.py::test_a_folder_of_csv_files_is_added_pushed_and_trained_on_with_three_keys"
    ),
    ". .venv/bin/activate": f"{REPRO}::test_a_fresh_clone_without_data_runs_every_stage_once",
    "dvc repro": f"{REPRO}::test_a_fresh_clone_without_data_runs_every_stage_once",
    "dvc params diff": f"{REPRO}::test_params_and_metrics_are_compared_with_those_that_are_committed",
    "dvc metrics show": f"{REPRO}::test_params_and_metrics_are_compared_with_those_that_are_committed",
    "dvc metrics diff": f"{REPRO}::test_params_and_metrics_are_compared_with_those_that_are_committed",
    "dvc plots show": f"{REPRO}::test_plots_are_pictures_that_need_no_script",
    "dvc plots diff": f"{REPRO}::test_plots_are_pictures_that_need_no_script",
    "dvc exp run -S pretrain.duration=20": (
        f"{REPRO}::test_an_experiment_runs_with_one_parameter_changed_and_is_shown"
    ),
    "dvc exp show": f"{REPRO}::test_an_experiment_runs_with_one_parameter_changed_and_is_shown",
    "export PREFECT_API_URL=http://127.0.0.1:4200/api": (
        "flows/test_serve.py::test_it_says_what_to_open_and_what_to_type"
    ),
    "prefect deployment run retraining/scheduled": (
        f"{DEPLOYMENTS}::test_a_run_from_another_directory_takes_one_parameter_and_keeps_the_others_of_the_file"
    ),
    'prefect deployment run retraining/scheduled -p \'params={"pretrain": {"duration": 5}}\'': (
        f"{DEPLOYMENTS}::test_a_run_from_another_directory_takes_one_parameter_and_keeps_the_others_of_the_file"
    ),
    ".venv/bin/python -m flows.deployments": (
        f"{DEPLOYMENTS}::test_registering_again_changes_the_schedule_and_makes_nothing_twice"
    ),
    ".venv/bin/python -m tasks.training.launch runs/<run-id>/pretrain/job.json": (
        "flows/test_resume.py::test_a_phase_can_be_run_again_by_hand_from_its_job_file"
    ),
    ".venv/bin/python -m tasks.training.launch runs/<run-id>/pretrain/job.json --replay /tmp/again": (
        "flows/test_resume.py::test_a_phase_of_a_run_can_be_replayed_with_the_same_weights"
    ),
    ".venv/bin/python -m flows.retraining --set data.path=examples/tabular/breast_cancer --set data.label=diagnosis "
    "--set data.test_path=null": "flows/test_tabular_example.py::test_it_trains_and_promotes_with_three_keys_set",
}


def shown_commands(document: Path) -> list[str]:
    """The commands in the blocks of a document, comments and continued lines taken care of."""
    blocks = re.findall(r"^```(?:\w+)?\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith(STARTS)]


def test_every_command_that_is_shown_is_run_by_a_test() -> None:
    shown = {command for document in DOCUMENTS for command in shown_commands(ROOT / document)}
    assert len(shown) > 15
    assert shown == set(RUN_BY)


@pytest.mark.parametrize("test", sorted(set(RUN_BY.values())))
def test_the_test_that_runs_it_exists(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("run", ".venv/bin/python -m flows.retraining"),
        ("serve", ".venv/bin/python -m flows.serve --prefect-port 4200 --mlflow-port 5000"),
        ("test", ".venv/bin/python -m pytest"),
        ("bench ONLY=operations", ".venv/bin/python -m benchmarks.run operations"),
        ("hooks", ".venv/bin/pre-commit install"),
    ],
)
def test_a_make_target_runs_what_tests_run(target: str, command: str) -> None:
    # The environment counts as made: this test makes none.
    done = subprocess.run(
        ["make", "--dry-run", "--old-file=.venv/ready", *target.split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert command in done.stdout


def test_every_make_target_that_the_readme_names_exists() -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z][a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"run", "test", "serve"} <= named
    assert named <= there
