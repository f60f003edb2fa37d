"""The status that is shown for a state, by what the ranks of its allocations do."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages.status import (
    AllocationState,
    State,
    Status,
    experiment_status,
    state_status,
)

QUEUED, STARTING, RUNNING = (
    AllocationState.QUEUED, AllocationState.STARTING, AllocationState.RUNNING,
)  # fmt: skip
STOPPING, ENDED = AllocationState.STOPPING, AllocationState.ENDED


@pytest.mark.parametrize(
    ("state", "gangs", "status"),
    [
        (State.ACTIVE, [], "queued"),
        (State.ACTIVE, [QUEUED, ENDED], "queued"),
        (State.ACTIVE, [QUEUED, STARTING], "starting"),
        (State.ACTIVE, [STOPPING, STARTING, RUNNING], "running"),
        (State.ACTIVE, [STOPPING, STARTING], "starting"),
        (State.ACTIVE, [STOPPING], "pausing"),
        (State.PAUSING, [STOPPING], "pausing"),
        (State.PAUSED, [], "paused"),
        (State.STOPPING_COMPLETED, [RUNNING], "stopping"),
        (State.DELETING, [], "stopping"),
        (State.COMPLETED, [STOPPING], "completed"),
        (State.CANCELED, [], "canceled"),
        (State.ERROR, [], "error"),
        (State.DELETE_FAILED, [], "error"),
    ],
)
def test_the_status_of_a_trial(state: State, gangs: list[AllocationState], status: Status) -> None:
    assert state_status(state, gangs) == status


@pytest.mark.parametrize(
    ("state", "num_trials", "status"),
    [(State.ACTIVE, 1, "pausing"), (State.ACTIVE, 2, "running"), (State.PAUSING, 2, "pausing")],
)
def test_a_search_runs_on_while_one_of_its_trials_gives_its_slots_to_another(
    state: State, num_trials: int, status: Status
) -> None:
    assert experiment_status(state, [STOPPING], num_trials) == status
