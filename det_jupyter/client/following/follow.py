"""Follows an experiment by its document, which the reader makes (`documents.py`)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import cast

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import state_word
from det_jupyter.contract.messages import ExperimentView, Pause, State
from det_jupyter.errors import Conflict, DetError, MasterUnreachable, RankFailed, WaitTimeout
from det_jupyter.view import ViewState

logger = logging.getLogger(__name__)

_TICK_S = 0.2
_FIRST_LOOK_S = 0.05
_AGAIN_S = 0.5
_SILENT_S = 30.0  # a running experiment has a new version every 10 s


def states(client: Client, experiment_id: int) -> Generator[ViewState | None, None, None]:
    """Yield the view of an experiment, a few times a second.

    A view that has not changed is yielded again; None before the first.

    Raises:
        NotFound: It does not exist, or was deleted.
    """
    document = client.document("experiment", experiment_id=experiment_id)
    with closing(document.versions(_TICK_S)) as versions:
        for _ in versions:
            yield cast(ViewState | None, document.latest)


def follow_until(
    client: Client,
    experiment_id: int,
    timeout: float | None = None,
    *,
    on_tick: Callable[[ViewState], None] = lambda state: None,
    or_paused: bool = False,
) -> None:
    """Block until an experiment has ended, or `timeout` seconds have passed.

    A view is a moment old: the first one may show the state before the experiment was activated or
    continued. So the master is queried, too, before this returns.

    Args:
        or_paused: Whether to return also when it is paused, so that its slots are free.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    before, heard_at = None, time.monotonic()
    with closing(states(client, experiment_id)) as followed:
        for state in followed:
            now = time.monotonic()
            if state is not before:
                before, heard_at = state, now
            is_due = now > heard_at + _SILENT_S
            if state is not None:
                on_tick(state)
                is_due |= state["ended_at"] is not None
                is_due |= or_paused and state["status"] == "paused"
            if is_due:
                heard_at = now
                if _is_over(client, experiment_id, or_paused=or_paused):
                    return
            if now > deadline:
                return


def _is_over(client: Client, experiment_id: int, *, or_paused: bool) -> bool:
    """Request from the master whether the experiment has ended (or, if asked for, is paused)."""
    try:
        state = client.experiment(experiment_id).state
    except MasterUnreachable:
        return False
    return state.is_terminal or (or_paused and state is State.PAUSED)


def wait_for_end(
    client: Client,
    experiment_id: int,
    timeout: float | None,
    on_tick: Callable[[ViewState], None],
) -> State:
    """Block until an experiment has ended, and return its state; see `Experiment.wait`."""
    follow_until(client, experiment_id, timeout, on_tick=on_tick, or_paused=True)
    view = client.experiment(experiment_id)
    if view.state is State.ERROR:
        raise _rank_failed(view)
    if view.state.is_terminal:
        return view.state
    if view.state is State.PAUSED:
        raise Conflict(f"experiment {experiment_id} is paused; activate() lets it go on")
    hangs = [
        f"trial {trial.id}: {trial.hang.sentence(time.time())}"
        for trial in view.trials
        if trial.hang is not None
    ]
    goes_on = f"hangs: {'; '.join(hangs)}" if hangs else "goes on"
    raise WaitTimeout(
        f"experiment {experiment_id} is {state_word(view)} after {timeout or 0:g} s and {goes_on}"
    )


def pause_and_wait(
    client: Client, experiment_id: int, timeout: float | None, *, at_once: bool
) -> State:
    """Pause an experiment, wait until its slots are free, and return its state.

    See `Experiment.pause`.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    state: State = client.change(Pause(experiment_id=experiment_id, at_once=at_once)).state
    pause_s = _FIRST_LOOK_S
    while state is State.PAUSING and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _AGAIN_S)
        state = client.experiment(experiment_id).state
    return state


def _rank_failed(view: ExperimentView) -> RankFailed:
    failures = [trial.failure for trial in view.trials if trial.failure is not None]
    first = failures[0] if failures else None
    # A traceback contains the place of the error.
    place = f" (at {first.where})" if first and first.where and not first.traceback else ""
    return RankFailed(
        f"{view.message}{place}",
        run=f"experiment {view.id}",
        rank=first.rank if first else None,
        exit_code=first.exit_code if first else None,
        remote_traceback=first.traceback if first else "",
    )


def call_at_end(client: Client, experiment_id: int, call: Callable[[], object]) -> None:
    """Call `call` once when an experiment has ended, from a background thread."""

    def await_end() -> None:
        try:
            follow_until(client, experiment_id)
        except DetError as error:
            logger.warning("experiment %s is not followed: %s", experiment_id, error)
            return
        try:
            call()
        except Exception:  # the boundary to the user's function
            logger.exception("the callback at the end of experiment %s", experiment_id)

    threading.Thread(target=await_end, name=f"det-end-{experiment_id}", daemon=True).start()
