"""The JSON that one view of an experiment is drawn from.

The front end's `labextension/src/model/state.ts` is generated from the classes of this folder
(`__main__.py`). Everything is text, numbers, booleans, lists and None, so that any transport can
carry it. Times are UTC seconds since the epoch. States and reasons are put into words here, so
that the live view, the static card and the plain text say the same.
"""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.view.model.search_state import Search
from det_jupyter.view.model.slots_and_queue import Cluster
from det_jupyter.view.model.status_looks import Action, Status
from det_jupyter.view.model.trial_state import Change, Chart, Checkpoints, Trial


class Captured(TypedDict):
    """One name that was captured from the notebook for the ranks."""

    name: str
    cell: str
    type: str
    size_bytes: int


class ViewState(TypedDict):
    """Everything the view of one experiment shows.

    Args:
        as_of: When it was true.
        eta_s: None while it cannot be known.
        steps_per_epoch: None when the configuration does not say how long an epoch is.
        summary: What has been done, a few words each: `step 58`, `epoch 2.6`.
        more_metrics: Metrics for which `charts` had no room.
        no_metrics: Why there are no charts; empty if there are some.
        trials: Those of an experiment of one trial; a search has its own.
        search: None for an experiment of one trial.
        cluster: None for one that is over, and while nothing is known.
        held_s: Seconds in which any trial held slots, until `held_since`; since then one does.
        num_captured: All names, of which `captured` has some.
        alarms: What makes the training useless, such as a loss that is NaN.
        changes: Of all trials while they trained, to be drawn on their curves.
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
    trials: list[Trial]
    num_trials: int
    search: Search | None
    cluster: Cluster | None
    checkpoints: Checkpoints
    captured: list[Captured]
    num_captured: int
    notices: list[str]
    alarms: list[str]
    changes: list[Change]
