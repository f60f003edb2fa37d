"""The JSON of the view of one experiment.

`labextension/src/model/state.ts` is generated from the classes of this folder (`__main__.py`). All
values are text, numbers, booleans, lists and None, so that any transport can carry them. Times are
UTC seconds since the epoch. The state contains the sentences to show, so that the live view, the
static card and the plain text agree.
"""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages.status import Action
from det_jupyter.view.model.search_state import SearchState
from det_jupyter.view.model.slots_and_queue import SlotsAndQueue
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import (
    ChangeLine,
    Chart,
    Checkpoints,
    HungTrial,
    TrialDetails,
)


class CaptureRow(TypedDict):
    """One name that was captured from the notebook for the ranks."""

    name: str
    cell: str
    type: str
    size_bytes: int


class ViewState(TypedDict):
    """The state of the view of one experiment.

    Args:
        as_of: When the state was made.
        eta_s: Estimated remaining seconds; None without an estimate.
        steps_per_epoch: None if the configuration does not define an epoch.
        summary: The progress, a few words each: `step 58`, `epoch 2.6`.
        more_metrics: Metrics that have no chart, because there are too many.
        no_metrics: Why there are no charts; "" if there are some.
        trials: The trial of an experiment with one trial; the trials of a search are in `search`.
        search: None for an experiment with one trial.
        cluster: None after the end of the experiment, and before it is fetched.
        held_s: Seconds in which any trial held slots, before `held_since`.
        num_captured: The number of all captured names; `captured` has some of them.
        hangs: Trials that make no progress.
        alarms: Problems that make the training useless, such as a loss that is NaN, and disks that
            are full or will be soon.
        lacks_callback: Whether the first notice reports a function of the notebook without
            DetCallback, which a button adds.
        changes: Changes of running trials, to be drawn on their curves.
    """

    id: int
    name: str
    labels: list[str]
    description: str
    status: Status
    status_word: str
    as_of: float
    created_at: float
    ended_at: float | None
    held_s: float
    held_since: float | None
    progress: float
    eta_s: float | None
    steps_per_epoch: float | None
    summary: list[str]
    message: str
    actions: list[Action]
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str
    trials: list[TrialDetails]
    num_trials: int
    search: SearchState | None
    cluster: SlotsAndQueue | None
    checkpoints: Checkpoints
    captured: list[CaptureRow]
    num_captured: int
    notices: list[str]
    lacks_callback: bool
    hangs: list[HungTrial]
    alarms: list[str]
    changes: list[ChangeLine]
