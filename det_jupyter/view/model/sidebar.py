"""What JupyterLab's sidebar, status bar and Running panel are drawn from.

The front end's `labextension/src/model/state.ts` has these, too.
"""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.view.model.cluster import Cluster, Remedy, SlotState
from det_jupyter.view.model.experiment import ViewState
from det_jupyter.view.model.search import Row
from det_jupyter.view.model.states import Action, Status


class ExperimentLine(TypedDict):
    """An experiment in a list.

    Args:
        key: The name of its places in a page (view/forms/place.py).
        progress: From 0 to 1.
        best: The best value of `metric` among its trials; None while there is none.
        num_slots: That its trials hold now.
        wait: Why its first waiting trial waits, a sentence; empty if none waits.
        remedies: What would start it.
        failure: Why it failed, a sentence; empty if it did not.
        alarm: What makes its training useless, while it goes on.
        actions: Its buttons; none if it is over.
    """

    id: int
    key: str
    name: str
    status: Status
    status_word: str
    progress: float
    metric: str
    smaller_is_better: bool
    best: float | None
    num_trials: int
    num_slots: int
    slots_per_trial: int
    labels: list[str]
    description: str
    notebook: str
    entrypoint: str
    created_at: float
    ended_at: float | None
    held_s: float
    queue_place: int | None
    priority: int
    position: float
    is_archived: bool
    is_quiet: bool
    wait: str
    remedies: list[Remedy]
    failure: str
    alarm: str
    actions: list[Action]


class ExperimentNews(TypedDict):
    """All experiments (`is_whole`), or those that have changed since the news before."""

    is_whole: bool
    rows: list[ExperimentLine]
    gone: list[int]


class SlotLine(TypedDict):
    """A slot: who is on it. `experiment_id` and the others are None if none of ours is."""

    id: int
    device: str
    state: SlotState
    who: str
    facts: list[str]
    experiment_id: int | None
    trial_id: int | None
    rank: int | None


class AgentLine(TypedDict):
    """A computer and its slots. `note` is what is unusual about it."""

    id: str
    hostname: str
    pool: str
    is_connected: bool
    note: str
    slots: list[SlotLine]


class ClusterNews(TypedDict):
    """All slots, and the numbers of the status bar: of experiments, and of slots that train."""

    agents: list[AgentLine]
    summary: str
    num_running: int
    num_waiting: int
    num_slots: int
    num_slots_used: int


class Usage(TypedDict):
    """What an agent's devices did, newest last: one column per metric, None where it is missing.

    Args:
        at: UTC seconds.
        utilization: For each slot, by its id: percent, from 0 to 100.
        memory_used: For each slot: bytes.
        memory_total: For each slot: bytes, one number.
        cpu: Percent of all cores.
        missing: For each slot: why numbers are missing; empty if none are.
        dropped: How many samples before these were left out, as the page was slow.
    """

    agent_id: str
    at: list[float]
    slot_ids: list[int]
    utilization: list[list[float | None]]
    memory_used: list[list[float | None]]
    memory_total: list[float | None]
    cpu: list[float | None]
    missing: list[str]
    dropped: int


class UsageNews(TypedDict):
    """The samples since the news before, of each agent."""

    agents: list[Usage]


class ViewNews(TypedDict):
    """A ViewState in parts, as live/parts.py explains them.

    `rows` is None if they are those of the news before.
    """

    shown: ViewState
    cluster: Cluster | None
    rows: list[Row] | None
    changed_rows: list[Row]


class RankLine(TypedDict):
    """A rank that runs; `has_kernel` when a console can be opened on it."""

    rank: int
    pid: int
    agent_id: str
    slot: str
    device: str
    status: Status
    has_kernel: bool


class TrialLine(TypedDict):
    """A trial that holds slots, in the Running panel; `alarm` as in ExperimentLine."""

    id: int
    experiment_id: int
    experiment: str
    status: Status
    status_word: str
    alarm: str
    steps_completed: int
    progress: float
    ranks: list[RankLine]


class TrialNews(TypedDict):
    """All trials that hold slots."""

    trials: list[TrialLine]
