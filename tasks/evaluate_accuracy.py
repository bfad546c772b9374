"""Step `evaluate`: is the target reached? A phase evaluates after its last step; this is where that is judged."""

from __future__ import annotations

from tasks.config import Params
from tasks.decisions.next_step import judge_accuracy
from tasks.journal import Journal
from tasks.records import Decision, PhaseResult, Run


def evaluate_accuracy(params: Params, run: Run, result: PhaseResult) -> Decision:
    """The decision `target`, by the unsmoothed accuracy of the phase's last evaluation."""
    decision = judge_accuracy(result.accuracy, params.pretrain.target_accuracy, result.branch)
    journal = Journal(run.journal)
    # What an earlier run has trained is no branch of this one.
    trained_here = any(
        event["event"] == "branch_started" and event["branch"] == result.branch for event in journal.events()
    )
    journal.decide(decision, result.branch if trained_here else None)
    return decision
