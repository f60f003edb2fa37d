"""States of experiments and trials, and the status that is shown for them.

    status        in scripts  on pages          State
    queued        QUEUED      Queued          ┐
    starting      STARTING    Starting        │ ACTIVE, by what its ranks do; a trial that rests
    running       RUNNING     Running         │ waits for a promotion by its search
    resting       RESTING     Resting         ┘
    pausing       PAUSING     Pausing           PAUSING, or ACTIVE and preempted: ranks hold slots
    paused        PAUSED      Paused            PAUSED: no rank holds slots
    stopping      STOPPING    Stopping          STOPPING_*
    completed     COMPLETED   Completed         COMPLETED
    stopped       COMPLETED   Stopped early     COMPLETED: a trial that its search stopped
    canceled      CANCELED    Canceled          CANCELED: by cancel, or by kill
    error         ERROR       Error             ERROR, or DELETE_FAILED: files could not be deleted

TypeScript's words are generated from this table (view/model/__main__.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, get_args

from typing_extensions import TypedDict  # pydantic accepts no other before Python 3.12


class State(StrEnum):
    """States of experiments and trials."""

    ACTIVE = "ACTIVE"
    PAUSING = "PAUSING"  # was paused; ranks still hold slots
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"  # its files are being deleted, then its rows
    DELETE_FAILED = "DELETE_FAILED"

    def __repr__(self) -> str:
        return self.value  # what `experiment.wait()` shows as a cell's result

    @property
    def is_open(self) -> bool:
        """Whether the state is neither ended nor stopping: active, paused or pausing."""
        return self in (State.ACTIVE, State.PAUSING, State.PAUSED)

    @property
    def is_terminal(self) -> bool:
        """Whether the state is an end: only a user's request can change it."""
        return self in (
            State.COMPLETED, State.CANCELED, State.ERROR, State.DELETING, State.DELETE_FAILED,
        )  # fmt: skip


PAUSES = (State.PAUSING, State.PAUSED)  # a user has paused it, or a full disk


class AllocationState(StrEnum):
    """States of an allocation: one period in which a trial waits for, or holds, slots."""

    QUEUED = "QUEUED"  # waits for slots
    STARTING = "STARTING"  # holds slots; its ranks are not up yet
    RUNNING = "RUNNING"  # its ranks are up
    STOPPING = "STOPPING"  # was asked to leave and still holds its slots
    ENDED = "ENDED"


Status = Literal[
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "resting",
    "stopping",
    "completed",
    "stopped",
    "canceled",
    "error",
]
STATUS_WORDS: dict[Status, str] = {status: status.capitalize() for status in get_args(Status)}
STATUS_WORDS["stopped"] = "Stopped early"
# Words that are more precise than the status.
UNUSUAL: dict[State, str] = {
    State.STOPPING_KILLED: "being killed",
    State.DELETING: "being deleted",
    State.DELETE_FAILED: "not deleted",
}
ENDED: tuple[Status, ...] = ("completed", "stopped", "canceled", "error")

_ENDED: dict[State, Status] = {
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.ERROR: "error",
    State.DELETE_FAILED: "error",
}
_HOLDING: dict[AllocationState, Status] = {
    AllocationState.RUNNING: "running",
    AllocationState.STARTING: "starting",
    AllocationState.STOPPING: "pausing",
}


def state_status(state: State, gangs: Sequence[AllocationState]) -> Status:
    """Return the status of a trial in `state` with allocations in the states `gangs`."""
    if state in _ENDED:
        return _ENDED[state]
    if not state.is_open:
        return "stopping"
    if state is not State.ACTIVE:
        return "pausing" if state is State.PAUSING else "paused"
    holding = {_HOLDING[gang] for gang in gangs if gang in _HOLDING}
    return next((status for status in _HOLDING.values() if status in holding), "queued")


def experiment_status(state: State, gangs: Sequence[AllocationState], num_trials: int) -> Status:
    """Return the status of an experiment whose trials' allocations are in the states `gangs`."""
    status = state_status(state, gangs)
    if status == "pausing" and state is State.ACTIVE and num_trials > 1:
        return "running"  # a trial saves its state and gives its slots to another trial
    return status


Verb = Literal["pause", "activate", "kill"]
VERBS: tuple[Verb, ...] = get_args(Verb)


class Action(TypedDict):
    """A button. `why` is its effect, or the reason if it is disabled."""

    verb: Verb
    label: str
    enabled: bool
    why: str


# "": there is no alarm.
AlarmKind = Literal["", "diverged", "hangs", "waits for room", "uploads wait", "silent"]


def with_alarm(word: str, alarm: AlarmKind) -> str:
    """Return the word for a status, with the kind of alarm: `Running, diverged`."""
    return f"{word}, {alarm}" if alarm else word


def in_words(state: State) -> str:
    """Return the word for a state within a sentence.

    >>> states = (State.ACTIVE, State.STOPPING_CANCELED, State.STOPPING_KILLED, State.ERROR)
    >>> [in_words(state) for state in states]
    ['active', 'stopping', 'being killed', 'over (error)']
    """
    if state in UNUSUAL:
        return UNUSUAL[state]
    if state in _ENDED:
        return f"over ({_ENDED[state]})"
    return state.lower() if state.is_open else "stopping"


def api_name(status: Status) -> str:
    """Return the name of a status in the API.

    >>> [api_name(status) for status in ("running", "stopped", "error")]
    ['RUNNING', 'COMPLETED', 'ERROR']
    """
    return "COMPLETED" if status == "stopped" else status.upper()
