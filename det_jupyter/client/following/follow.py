"""Follows an experiment by its document, which the reader makes (`documents.py`)."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import cast

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import state_word
from det_jupyter.contract.messages import ExperimentView, Pause, State
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.errors import (
    Conflict,
    DetError,
    MasterStopped,
    MasterUnreachable,
    RankFailed,
    WaitTimeout,
)
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


class MasterLook:
    """Requests the view of a followed experiment from the master, when that is due.

    A version of the document is a moment old: the first one may show the state before the
    experiment was activated or continued. So the master is queried, too, when a version says that
    the experiment has ended. It is also queried when no version has come for 30 s, as where no
    reader can be started.
    """

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._heard_at = time.monotonic()
        self._stopped_at = math.inf

    def heard(self) -> None:
        """Note that a version has come. Callable in any thread."""
        self._heard_at = time.monotonic()

    def view(self, *, is_due: bool = False) -> ExperimentView | None:
        """Return the master's view; None if it is not due, or the master does not answer.

        Raises:
            MasterStopped: No master has run for 30 s, so it is not just being restarted.
        """
        now = time.monotonic()
        if not is_due and now <= self._heard_at + _SILENT_S:
            return None
        self._heard_at = now
        try:
            view = self._client.experiment(self._experiment_id)
        except MasterUnreachable as error:
            is_stopped = isinstance(error, MasterStopped)
            self._stopped_at = min(self._stopped_at, now) if is_stopped else math.inf
            if now > self._stopped_at + _SILENT_S:
                raise
            return None
        self._stopped_at = math.inf
        return view


def follow_until(
    client: Client,
    experiment_id: int,
    timeout: float | None = None,
    *,
    on_tick: Callable[[ViewState], None] = lambda state: None,
    or_paused: bool = False,
) -> None:
    """Block until an experiment has ended, or `timeout` seconds have passed.

    Args:
        or_paused: Whether to return also when it is paused, so that its slots are free.

    Raises:
        MasterStopped: See `MasterLook.view`.
    """
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    look, before = MasterLook(client, experiment_id), None
    with closing(states(client, experiment_id)) as followed:
        for state in followed:
            if state is not before:
                look.heard()
                before = state
            is_over = False
            if state is not None:
                on_tick(state)
                is_paused = or_paused and state["status"] == "paused"
                is_over = is_paused or state["ended_at"] is not None
            view = look.view(is_due=is_over)
            if view is not None and (
                view.state.is_terminal or (or_paused and view.state is State.PAUSED)
            ):
                return
            if time.monotonic() > deadline:
                return


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
    pauses = growing_pauses(_FIRST_LOOK_S, _AGAIN_S)
    while state is State.PAUSING and (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(next(pauses), left_s))
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
        while True:
            try:
                follow_until(client, experiment_id)
                break
            except MasterStopped:
                continue  # it may be started again
            except DetError as error:
                logger.warning("experiment %s is not followed: %s", experiment_id, error)
                return
        try:
            call()
        except Exception:  # the boundary to the user's function
            logger.exception("the callback at the end of experiment %s", experiment_id)

    threading.Thread(target=await_end, name=f"det-end-{experiment_id}", daemon=True).start()
