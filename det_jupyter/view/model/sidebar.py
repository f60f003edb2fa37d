"""The documents of JupyterLab's sidebar, status bar and Running panel."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.contract.messages import ExperimentRow
from det_jupyter.contract.messages.status import AlarmKind
from det_jupyter.view.model.slots_and_queue import AgentBar
from det_jupyter.view.model.trial_state import RankStatus, TrialStatus

# Fields of rows that no page uses.
LEFT_OUT = frozenset(("state", "hparams", "pool", "parent_id", "leaving", "slots_per_trial"))


class ExperimentList(TypedDict):
    """The document `experiments`: all experiments of the master, by id, without `LEFT_OUT`."""

    rows: dict[str, ExperimentRow]


class DiskLine(TypedDict):
    """A disk that is full, or will soon be full; `key` identifies the disk."""

    key: str
    is_full: bool
    sentence: str


class ClusterState(TypedDict):
    """The document `cluster`: all slots, and the status bar's numbers.

    `disks` are the disks that are full, or will soon be full. `more_lost` is a text with the
    number of agents that have left and are not listed; "" if there are none.
    """

    agents: list[AgentBar]
    more_lost: str
    disks: list[DiskLine]
    summary: str
    num_running: int
    num_waiting: int
    num_slots: int
    num_slots_used: int


class SlotUsage(TypedDict):
    """The newest utilization of a slot's device; None where it is not known.

    Args:
        utilization: Percent, from 0 to 100.
        used: Bytes of memory.
        total: Bytes of memory.
        missing: Why `utilization` is not known; "" if it is known.
    """

    utilization: float | None
    used: float | None
    total: float | None
    missing: str


class AgentUsage(TypedDict):
    """The newest utilization of an agent's slots, by id; `cpu` is the percentage of all cores."""

    cpu: float | None
    slots: dict[str, SlotUsage]


class Usage(TypedDict):
    """The document `usage`: the newest utilization of all slots, by agent."""

    agents: dict[str, AgentUsage]


class RankLine(RankStatus):
    """A running rank; `has_kernel` if a console can be opened on it."""

    agent_id: str
    has_kernel: bool


class TrialLine(TrialStatus):
    """A trial that holds slots, in the Running panel; `alarm` as in ExperimentRow."""

    experiment_id: int
    experiment: str
    alarm: str
    alarm_kind: AlarmKind
    progress: float
    ranks: list[RankLine]


class TrialList(TypedDict):
    """The document `trials`: all trials that hold slots."""

    trials: list[TrialLine]
