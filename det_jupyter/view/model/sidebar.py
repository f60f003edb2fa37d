"""The JSON of JupyterLab's sidebar, status bar and Running panel."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages import ListedExperiment
from det_jupyter.contract.messages.status import AlarmKind
from det_jupyter.view.model.search_state import Row
from det_jupyter.view.model.slots_and_queue import Cluster, Remedy, SlotState
from det_jupyter.view.model.status_looks import Action
from det_jupyter.view.model.trial_state import Rank, TrialStatus
from det_jupyter.view.model.view_state import ViewState


class ExperimentLine(ListedExperiment):
    """An experiment in the sidebar's lists; long texts are shortened.

    Args:
        key: The key of its places in a page (view/forms/notebook_output.py).
        queue_place: The number of trials before its first one in the queue; None if not fetched.
        wait: Why its first waiting trial waits, or what its ranks wait for that leave, a
            sentence; empty if none waits.
        remedies: Changes that would start it, or end its ranks.
        actions: Its buttons; none after its end.
    """

    key: str
    status_word: str
    queue_place: int | None
    wait: str
    remedies: list[Remedy]
    actions: list[Action]


class ExperimentNews(TypedDict):
    """All experiments (`is_whole`), or those that have changed since the last news."""

    is_whole: bool
    rows: list[ExperimentLine]
    gone: list[int]


class SlotLine(TypedDict):
    """A slot and its occupant; `experiment_id` and the others are None if no trial holds it."""

    id: int
    device: str
    state: SlotState
    who: str
    facts: list[str]
    experiment_id: int | None
    trial_id: int | None
    rank: int | None


class AgentLine(TypedDict):
    """An agent and its slots.

    Args:
        is_connected: Whether it is; one that has left has no slots.
        note: Its state if it is not connected, and unusual facts.
        facts: Its name, computer, address and versions.
    """

    id: str
    hostname: str
    pool: str
    is_connected: bool
    note: str
    facts: list[str]
    slots: list[SlotLine]


class DiskLine(TypedDict):
    """A disk that is full, or will be soon; `key` is the same as long as it is the same disk."""

    key: str
    is_full: bool
    sentence: str


class ClusterNews(TypedDict):
    """All slots, and the status bar's numbers of experiments and of slots in use.

    `disks` has the disks that are full, or will be soon. `more_lost` counts agents
    that have left and are not listed; empty if there are none.
    """

    agents: list[AgentLine]
    more_lost: str
    disks: list[DiskLine]
    summary: str
    num_running: int
    num_waiting: int
    num_slots: int
    num_slots_used: int


class Usage(TypedDict):
    """Samples of an agent's devices, newest last: one column per metric, None for missing values.

    Args:
        at: UTC seconds.
        utilization: For each slot, by its id: percent, from 0 to 100.
        memory_used: For each slot: bytes.
        memory_total: For each slot: bytes, one number.
        cpu: Percent of all cores.
        missing: For each slot: why values are missing; empty if none are.
        dropped: The number of samples before these that were dropped for a slow page.
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
    """The samples of each agent since the last news."""

    agents: list[Usage]


class ViewNews(TypedDict):
    """A ViewState in the parts that answers/state_parts.py describes.

    `rows` is None if they are those of the last news.
    """

    shown: ViewState
    cluster: Cluster | None
    rows: list[Row] | None
    changed_rows: list[Row]


class RankLine(Rank):
    """A running rank; `has_kernel` if a console can be opened on it."""

    agent_id: str
    has_kernel: bool


class TrialLine(TrialStatus):
    """A trial that holds slots, in the Running panel; `alarm` as in ExperimentLine."""

    experiment_id: int
    experiment: str
    alarm: str
    alarm_kind: AlarmKind
    progress: float
    ranks: list[RankLine]


class TrialNews(TypedDict):
    """All trials that hold slots."""

    trials: list[TrialLine]
