"""The transition tables: allowed transitions, and the message of an error."""

from __future__ import annotations

from typing import get_args

import pytest

from det_jupyter.contract.messages import AllocationState, Capsule, State
from det_jupyter.errors import InvalidTransition
from det_jupyter.master.machine.machine import HANDLERS
from det_jupyter.master.machine.model.allocations import Allocation
from det_jupyter.master.machine.model.events import Event
from det_jupyter.master.machine.model.lifecycle import (
    ALLOCATION_TRANSITIONS,
    ENDS_AS,
    TRANSITIONS,
    is_stopping,
    move,
    move_allocation,
)
from det_jupyter.master.machine.model.state import Experiment, Trial


def make_trial(state: State) -> Trial:
    return Trial(
        id=3,
        experiment_id=1,
        hparams={},
        seed=0,
        state=state,
        created_at=1.0,
        story=["created", "its gang was lost"],
    )


def make_experiment(state: State) -> Experiment:
    return Experiment(
        id=7,
        config={"name": "digits", "resources": {"slots_per_trial": 2}},
        capsule=Capsule(entrypoint="Trial", payload="0" * 64, sources="0" * 64),
        python="/usr/bin/python3",
        cwd="/tmp",
        notebook=None,
        state=state,
        created_at=1.0,
    )


def make_trial_with(state: AllocationState) -> Trial:
    trial = make_trial(State.ACTIVE)
    trial.allocation = Allocation(id="1.3.2", run=2, state=state, queued_at=1.0)
    return trial


def state_of(trial: Trial) -> AllocationState:
    assert trial.allocation is not None
    return trial.allocation.state


@pytest.mark.parametrize("old", State)
@pytest.mark.parametrize("new", State)
def test_a_trial_moves_along_the_edges_of_the_table_and_no_others(old: State, new: State) -> None:
    trial = make_trial(old)
    if new in TRANSITIONS[old]:
        move(trial, new)
        assert trial.state == new
    else:
        with pytest.raises(InvalidTransition):
            move(trial, new)
        assert trial.state == old


@pytest.mark.parametrize("old", AllocationState)
@pytest.mark.parametrize("new", AllocationState)
def test_an_allocation_moves_along_the_edges_of_its_table_and_no_others(
    old: AllocationState, new: AllocationState
) -> None:
    trial = make_trial_with(old)
    if new in ALLOCATION_TRANSITIONS[old]:
        move_allocation(trial, new)
        assert state_of(trial) == new
    else:
        with pytest.raises(InvalidTransition):
            move_allocation(trial, new)
        assert state_of(trial) == old


def test_experiments_and_trials_start_pause_go_on_and_stop() -> None:
    stopping = {
        State.STOPPING_COMPLETED,
        State.STOPPING_CANCELED,
        State.STOPPING_KILLED,
        State.STOPPING_ERROR,
    }
    assert TRANSITIONS[State.ACTIVE] == {State.PAUSING} | stopping
    assert TRANSITIONS[State.PAUSING] == {State.ACTIVE, State.PAUSED} | stopping
    assert TRANSITIONS[State.PAUSED] == {State.ACTIVE} | stopping
    assert {state for state in State if is_stopping(state)} == stopping


def test_a_stop_may_be_sharpened_but_not_softened() -> None:
    assert TRANSITIONS[State.STOPPING_COMPLETED] == {
        State.COMPLETED,
        State.STOPPING_CANCELED,
        State.STOPPING_KILLED,
        State.STOPPING_ERROR,
    }
    assert TRANSITIONS[State.STOPPING_CANCELED] == {
        State.CANCELED,
        State.STOPPING_KILLED,
        State.STOPPING_ERROR,
    }
    assert TRANSITIONS[State.STOPPING_KILLED] == {State.CANCELED, State.STOPPING_ERROR}


def test_every_stopping_state_ends_in_its_terminal_state() -> None:
    assert ENDS_AS == {
        State.STOPPING_COMPLETED: State.COMPLETED,
        State.STOPPING_ERROR: State.ERROR,
        State.STOPPING_CANCELED: State.CANCELED,
        State.STOPPING_KILLED: State.CANCELED,
    }
    for stopping, terminal in ENDS_AS.items():
        assert terminal in TRANSITIONS[stopping]


def test_what_is_over_can_be_continued_or_deleted_and_nothing_else() -> None:
    for state in (State.COMPLETED, State.CANCELED, State.ERROR):
        assert TRANSITIONS[state] == {State.ACTIVE, State.DELETING}
    assert ALLOCATION_TRANSITIONS[AllocationState.ENDED] == set()


def test_a_deletion_that_failed_can_only_be_tried_again() -> None:
    assert TRANSITIONS[State.DELETING] == {State.DELETE_FAILED}
    assert TRANSITIONS[State.DELETE_FAILED] == {State.DELETING}


def test_an_allocation_may_end_from_everywhere() -> None:
    for state in set(AllocationState) - {AllocationState.ENDED}:
        assert AllocationState.ENDED in ALLOCATION_TRANSITIONS[state]


def test_a_forbidden_move_of_a_trial_tells_its_story() -> None:
    with pytest.raises(InvalidTransition) as caught:
        move(make_trial(State.COMPLETED), State.PAUSED)
    assert str(caught.value) == "trial 3: COMPLETED cannot become PAUSED"
    assert caught.value.story == ["created", "its gang was lost"]


def test_a_forbidden_move_of_an_experiment_names_it() -> None:
    with pytest.raises(InvalidTransition, match="experiment 7: ERROR cannot become PAUSED"):
        move(make_experiment(State.ERROR), State.PAUSED)


def test_a_forbidden_move_of_an_allocation_tells_its_story() -> None:
    with pytest.raises(InvalidTransition) as caught:
        move_allocation(make_trial_with(AllocationState.ENDED), AllocationState.RUNNING)
    assert str(caught.value) == "allocation 1.3.2: ENDED cannot become RUNNING"
    assert caught.value.story == ["created", "its gang was lost"]


def test_every_event_has_a_handler() -> None:
    union, _ = get_args(Event)
    assert set(get_args(union)) == set(HANDLERS)
