"""What samplers and pruners are given of a trial."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import State
from det_jupyter.master.background.consult import to_history
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.sampling.optuna_study import TrialHistory
from det_jupyter.searcher import ExitReason


def trial(reason: ExitReason | None, *, was_stopped: bool = False) -> Trial:
    return Trial(
        id=7,
        experiment_id=1,
        index=3,
        hparams={"lr": 0.1},
        seed=5,
        state=State.ACTIVE,
        created_at=10.0,
        ended_at=None if reason is None else 20.0,
        exit_reason=reason,
        was_stopped=was_stopped,
        latest_metric=0.25,
        metrics_by_step={20: 0.25, 10: 0.5},
    )


def test_reports_are_sorted_by_step() -> None:
    assert to_history(trial(ExitReason.COMPLETED)) == TrialHistory(
        index=3,
        hparams={"lr": 0.1},
        state="complete",
        value=0.25,
        reports=[(10, 0.5), (20, 0.25)],
        created_at=10.0,
        ended_at=20.0,
    )


@pytest.mark.parametrize(
    ("reason", "was_stopped", "state"),
    [
        (None, False, "running"),
        (None, True, "running"),
        (ExitReason.COMPLETED, False, "complete"),
        (ExitReason.COMPLETED, True, "pruned"),
        (ExitReason.ERRORED, False, "failed"),
        (ExitReason.INVALID_HP, True, "failed"),
        (ExitReason.CANCELED, True, "failed"),
    ],
)
def test_only_a_trial_that_the_search_stopped_early_is_pruned(
    reason: ExitReason | None, was_stopped: bool, state: str
) -> None:
    assert to_history(trial(reason, was_stopped=was_stopped)).state == state
