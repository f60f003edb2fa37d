"""Transition tables of states. A transition that is not listed raises an error.

    ACTIVE ◄─────────────────► PAUSED           (all but the terminal states)
      │  ◄──► PAUSING ──────────► │
      └──────────┴────────────────┴──► STOPPING_COMPLETED ──► COMPLETED
                            │ if all trials failed
                       STOPPING_ERROR     ──► ERROR
                       STOPPING_CANCELED  ──► CANCELED
                            │ if killed meanwhile
                       STOPPING_KILLED    ──► CANCELED
                            │ if given up meanwhile (giving_up.py)
                       STOPPING_ERROR

    terminal states:   ──► ACTIVE                      by "continue"
                       ──► DELETING ◄─► DELETE_FAILED  of experiments; afterwards it is removed

    allocations:  QUEUED ─► STARTING ─► RUNNING ─► STOPPING ─► ENDED     (ENDED from everywhere)

An experiment or trial is PAUSING or STOPPING while ranks still hold slots; without ranks it passes
through that state within one event. So PAUSED and the terminal states are true only when its slots
are free. Experiments and trials share one table. A terminal state is left only when a user
requests it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from det_jupyter.contract.messages import AllocationState, State
from det_jupyter.errors import InvalidTransition
from det_jupyter.master.machine.model.state import Experiment, Trial

_STOPPING = {
    State.STOPPING_COMPLETED,
    State.STOPPING_CANCELED,
    State.STOPPING_KILLED,
    State.STOPPING_ERROR,
}
OVER = (State.COMPLETED, State.CANCELED, State.ERROR)  # terminal, and not being deleted
TRANSITIONS: Mapping[State, set[State]] = {
    State.ACTIVE: {State.PAUSING, *_STOPPING},
    State.PAUSING: {State.ACTIVE, State.PAUSED, *_STOPPING},
    State.PAUSED: {State.ACTIVE, *_STOPPING},
    State.STOPPING_COMPLETED: {State.COMPLETED, *_STOPPING - {State.STOPPING_COMPLETED}},
    State.STOPPING_ERROR: {State.ERROR},
    State.STOPPING_CANCELED: {State.CANCELED, State.STOPPING_KILLED, State.STOPPING_ERROR},
    State.STOPPING_KILLED: {State.CANCELED, State.STOPPING_ERROR},
    **{state: {State.ACTIVE, State.DELETING} for state in OVER},
    State.DELETING: {State.DELETE_FAILED},
    State.DELETE_FAILED: {State.DELETING},
}
ALLOCATION_TRANSITIONS: Mapping[AllocationState, set[AllocationState]] = {
    AllocationState.QUEUED: {AllocationState.STARTING, AllocationState.ENDED},
    AllocationState.STARTING: {
        AllocationState.RUNNING, AllocationState.STOPPING, AllocationState.ENDED,
    },
    AllocationState.RUNNING: {AllocationState.STOPPING, AllocationState.ENDED},
    AllocationState.STOPPING: {AllocationState.ENDED},
    AllocationState.ENDED: set(),
}  # fmt: skip
ENDS_AS: Mapping[State, State] = {
    State.STOPPING_COMPLETED: State.COMPLETED,
    State.STOPPING_ERROR: State.ERROR,
    State.STOPPING_CANCELED: State.CANCELED,
    State.STOPPING_KILLED: State.CANCELED,
}


def is_stopping(state: State) -> bool:
    """Return whether a state leads to a terminal state once no rank holds slots."""
    return state in _STOPPING


def move(subject: Experiment | Trial, to: State) -> None:
    """Change the state of an experiment or a trial.

    Raises:
        InvalidTransition: The table has no such transition; the error has the trial's last events.
    """
    name = f"{type(subject).__name__.lower()} {subject.id}"
    story = subject.story if isinstance(subject, Trial) else []
    _check(TRANSITIONS, subject.state, to, name, story)
    subject.state = to


def move_allocation(trial: Trial, to: AllocationState) -> None:
    """Change the state of a trial's current allocation.

    Raises:
        InvalidTransition: The table has no such transition; the error has the trial's last events.
    """
    allocation = trial.allocation
    assert allocation is not None
    what = f"allocation {allocation.id}"
    _check(ALLOCATION_TRANSITIONS, allocation.state, to, what, trial.story)
    allocation.state = to


def _check(table: Mapping[Any, Set[Any]], old: str, new: str, what: str, story: list[str]) -> None:
    if new not in table[old]:
        raise InvalidTransition(f"{what}: {old} cannot become {new}", story)
