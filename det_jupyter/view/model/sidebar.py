"""What JupyterLab's sidebar, status bar and Running panel are drawn from.

The front end's `labextension/src/model/state.ts` has these, too.
"""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages import ListedExperiment
from det_jupyter.view.model.search_state import Row
from det_jupyter.view.model.slots_and_queue import Cluster, Remedy, SlotState
from det_jupyter.view.model.status_looks import Action
from det_jupyter.view.model.trial_state import Rank, TrialStatus
from det_jupyter.view.model.view_state import ViewState


class ExperimentLine(ListedExperiment):
    """An experiment in the sidebar's lists; long texts are cut.

    Args:
        key: The name of its places in a page (view/forms/notebook_output.py).
        queue_place: How many trials are ahead of its first one in the queue; None: not known.
        wait: Why its first waiting trial waits, a sentence; empty if none waits.
        remedies: What would start it.
        actions: Its buttons; none if it is over.
    """

    key: str
    status_word: str
    queue_place: int | None
    wait: str
    remedies: list[Remedy]
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
    """A ViewState in parts, as answers/state_parts.py explains them.

    `rows` is None if they are those of the news before.
    """

    shown: ViewState
    cluster: Cluster | None
    rows: list[Row] | None
    changed_rows: list[Row]


class RankLine(Rank):
    """A rank that runs; `has_kernel` when a console can be opened on it."""

    agent_id: str
    has_kernel: bool


class TrialLine(TrialStatus):
    """A trial that holds slots, in the Running panel; `alarm` as in ExperimentLine."""

    experiment_id: int
    experiment: str
    alarm: str
    progress: float
    ranks: list[RankLine]


class TrialNews(TypedDict):
    """All trials that hold slots."""

    trials: list[TrialLine]
