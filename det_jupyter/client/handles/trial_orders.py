"""Orders profiles and changes of a trial while it trains, and waits for their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from det_jupyter.client.client import Client
from det_jupyter.client.requests import make_request
from det_jupyter.contract.messages import (
    AllocationState,
    ChangeResources,
    ChangeTrial,
    ProfileTrial,
    ProfileView,
    TraceView,
    TrialChangeView,
    TrialView,
)
from det_jupyter.contract.values.text import size
from det_jupyter.errors import ConfigError, Conflict

T = TypeVar("T")

_POLL_S = 0.1
_OPEN_WITH = "Open with https://ui.perfetto.dev or chrome://tracing."


class Trace:
    """A trace of one rank: a file for Perfetto, or why there is none."""

    def __init__(self, view: TraceView) -> None:
        self.view = view

    @property
    def path(self) -> Path | None:
        """The file, `.json.gz`; None if there is none, or it was deleted for newer ones."""
        path = Path(self.view.path)
        return path if self.view.path and path.is_file() else None

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self.view.size_bytes

    @property
    def rank(self) -> int:
        """The rank that was recorded."""
        return self.view.rank

    @property
    def batches(self) -> range:
        """The batches in it, counted from 0."""
        return range(self.view.first, self.view.first + self.view.steps)

    def __repr__(self) -> str:
        view = self.view
        if view.error:
            return f"Rank {view.rank}: no trace: {view.error}"
        note = f" ({view.note})" if view.note else ""
        removed = "" if self.path else ", removed since"
        last = view.first + view.steps - 1
        what = f"batches {view.first} to {last}{note}, {size(view.size_bytes)}"
        return f"Rank {view.rank}: {what}: {view.path}{removed}"


class Traces(list[Trace]):
    """The traces of one profile, by rank; prints as lines."""

    def __repr__(self) -> str:
        lines = [repr(trace) for trace in self]
        return "\n".join([*lines, _OPEN_WITH] if any(trace.path for trace in self) else lines)


class TrialChange:
    """A change of a trial while it trained."""

    def __init__(self, view: TrialChangeView) -> None:
        self.view = view

    @property
    def steps_completed(self) -> int | None:
        """Batches completed when the change took effect; None: not yet, or it was refused."""
        return self.view.steps_completed

    def __repr__(self) -> str:
        view = self.view
        if view.error:
            return f"{view.what}: refused: {view.error}"
        steps = view.steps_completed
        return f"{view.what}, {'when it trains' if steps is None else f'from batch {steps}'}"


def record_profile(client: Client, request: ProfileTrial, timeout: float) -> Traces:
    """Request a profile, and wait for its traces; see `Trial.profile`."""
    trial_id, profile_id = request.trial_id, client.change(request).profiles[-1].id

    def find(view: TrialView) -> ProfileView | None:
        return next((p for p in view.profiles if p.id == profile_id and p.is_over), None)

    done = _await(client, trial_id, find, timeout)
    if done is None:
        raise Conflict(
            _too_late(client, trial_id, "trace", timeout, "trial.profiles() lists it later")
        )
    return Traces(Trace(trace) for trace in done.traces)


def change_live(
    client: Client, trial_id: int, timeout: float, *, priority: int | None, **given: Any
) -> TrialChange | None:
    """Change a trial while it trains, and wait until it has taken effect; see `Trial.change`."""
    experiment_id = client.trial(trial_id).experiment_id
    # Both requests are checked before either is sent.
    change = resources = None
    if any(value is not None for value in given.values()):
        change = make_request(ChangeTrial, trial_id=trial_id, **given)
    if priority is not None:
        resources = make_request(ChangeResources, experiment_id=experiment_id, priority=priority)
    if change is None and resources is None:
        raise ConfigError(["change: got nothing to change"])
    change_id = None if change is None else client.change(change).changes[-1].id
    if resources is not None:
        client.change(resources)
    return None if change_id is None else _await_change(client, trial_id, change_id, timeout)


def _await_change(client: Client, trial_id: int, change_id: int, timeout: float) -> TrialChange:
    def find(view: TrialView) -> TrialChangeView | None:
        found = next(change for change in view.changes if change.id == change_id)
        is_open = found.steps_completed is None and not found.error
        state = view.allocation and view.allocation.state
        may_answer = state in (AllocationState.STARTING, AllocationState.RUNNING)
        return None if is_open and may_answer else found

    made = _await(client, trial_id, find, timeout)
    if made is None:
        later = "trial.changes() shows when it takes effect"
        raise Conflict(_too_late(client, trial_id, "effect", timeout, later))
    if made.error:
        raise Conflict(f"trial {trial_id} cannot be changed: {made.error}")
    return TrialChange(made)


def _await(
    client: Client, trial_id: int, find: Callable[[TrialView], T | None], timeout: float
) -> T | None:
    """Poll the trial until `find` returns something, and return that; None after `timeout` s."""
    deadline = time.monotonic() + timeout
    while (found := find(client.trial(trial_id))) is None:
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_S)
    return found


def _too_late(client: Client, trial_id: int, what: str, timeout: float, later: str) -> str:
    """Return the message that an order was not carried out in time, and a probable reason."""
    captured = client.experiment(client.trial(trial_id).experiment_id).capsule
    kinds = {name.type for name in captured.captured if name.name == captured.entrypoint}
    late = f"trial {trial_id}: no {what} within {timeout:g} s; {later}"
    if "function" in kinds:
        late += (
            f". Its entrypoint {captured.entrypoint} is a function; only the loop of "
            "pytorch.Trainer.fit takes orders, so a function that does not call it cannot be "
            "profiled or changed"
        )
    return late
