"""The machine's events: what happened, and what users request (messages/changes.py).

Events are stored as JSON and replayed after a restart, so each contains everything that the
machine needs to reach the same state again. `kind` names the class in the stored JSON.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from det_jupyter.contract.messages import (
    AnyChange,
    CreateExperiment,
    DeviceFault,
    DeviceProcess,
    GangExited,
    GangStarted,
    Loss,
    RanksSeen,
    RoomReported,
    RunReport,
    SlotView,
    Wire,
)
from det_jupyter.contract.run.journal import (
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    FirstStep,
    LastStepSaved,
    Notice,
    RankFailure,
    RanksStalled,
    RankStarted,
    RunEnded,
    TargetReached,
    TraceSaved,
)
from det_jupyter.master.machine.model.configured import Configured
from det_jupyter.master.machine.model.former_events import to_present_form


class ExperimentSubmitted(CreateExperiment, Configured):
    """A user submitted an experiment; `config` is the effective configuration.

    Args:
        origins: Where values of `config` come from, by path: "you" or "template"; values without
            an entry are defaults.
        continues: A trial whose training this experiment's only trial continues.
    """

    kind: Literal["experiment_submitted"] = "experiment_submitted"
    origins: dict[str, str] = {}
    continues: int | None = None


class ContinueRequested(Configured):
    """A user requested to continue an experiment that is over, with this configuration."""

    kind: Literal["continue_requested"] = "continue_requested"
    experiment_id: int


# Events that are requests of users: if the machine refuses one, the user sees the error.
Request = AnyChange | ExperimentSubmitted | ContinueRequested


class UnmanagedHeard(Wire):
    """An unmanaged run has not reported since `silent_since`; None: it has reported again."""

    kind: Literal["unmanaged_heard"] = "unmanaged_heard"
    allocation_id: str
    silent_since: float | None


class DevicesReported(Wire):
    """An agent reported, by slot, why its devices cannot be given out."""

    kind: Literal["devices_reported"] = "devices_reported"
    agent_id: str
    processes: dict[int, list[DeviceProcess]]  # processes that are not our ranks
    lost: dict[int, DeviceFault] = {}
    is_shared: bool = False


class ExperimentDeleted(Wire):
    """All files of an experiment were deleted; `error`: some could not be deleted."""

    kind: Literal["experiment_deleted"] = "experiment_deleted"
    experiment_id: int
    error: str = ""


class CheckpointsDeleted(Wire):
    """Files of these checkpoints were deleted: all of `uuids`, some of `left_bytes`.

    Of `former`, those that were left where they have been moved from.
    """

    kind: Literal["checkpoints_deleted"] = "checkpoints_deleted"
    experiment_id: int
    uuids: list[str]
    left_bytes: dict[str, int] = {}  # size of the files that remain, by uuid
    former: list[str] = []


class LogMatched(Wire):
    """A rank printed a line that a log policy matches."""

    kind: Literal["log_matched"] = "log_matched"
    allocation_id: str
    rank: int
    pattern: str
    action: Literal["cancel_retries", "exclude_node"]
    line: str


class HparamsSampled(Wire):
    """The sampler returned hyperparameters for the trial with this index, or failed."""

    kind: Literal["hparams_sampled"] = "hparams_sampled"
    experiment_id: int
    index: int
    hparams: dict[str, Any] | None = None
    error: str = ""


class TrialJudged(Wire):
    """The pruner decided whether to stop the trial with this index, or failed."""

    kind: Literal["trial_judged"] = "trial_judged"
    experiment_id: int
    index: int
    is_pruned: bool
    error: str = ""


class ContentSetAside(Wire):
    """An event or record could not be handled, and was stored in the table `quarantine`.

    Args:
        experiment_id: The experiment that it is about; None if it is about none.
        what: A description of it, and the error, in one line.
        is_fatal: Whether the experiment cannot continue without it.
        gone: The allocation whose ranks have exited, if it reports an exit.
        gone_ranks: The ranks that have exited; (): all.
    """

    kind: Literal["news_set_aside"] = "news_set_aside"  # its name in stored databases
    experiment_id: int | None
    what: str
    is_fatal: bool
    gone: str = ""
    gone_ranks: list[int] = []


class AgentRegistered(Wire):
    """An agent process reported its name, its slots and its runs."""

    kind: Literal["agent_registered"] = "agent_registered"
    agent_id: str
    session: str
    hostname: str
    pid: int
    birth: str = ""
    slots: list[SlotView]
    runs: list[RunReport] = []
    devices: dict[int, list[DeviceProcess]] = {}
    lost: dict[int, DeviceFault] = {}
    is_shared: bool = False
    is_remote: bool = False  # it uses the listener for agents on other computers
    versions: dict[str, str] = {}
    # Address of its computer for other agents; "": the same computer as the master.
    address: str = ""
    port: int = 0  # port for connections of other agents; 0: none
    cluster: str = ""  # the cluster that its computer is a node of, if it is one
    node: str = ""  # the node, as the cluster identifies it


class AgentAway(Wire):
    """An agent is not connected: nothing is started on it until it registers again.

    Args:
        problem: A sentence with the reason and what to do; "": not known yet.
    """

    kind: Literal["agent_away"] = "agent_away"
    agent_id: str
    problem: str = ""


class AgentRemoved(Wire):
    """A user has removed an agent on another computer: it cannot connect any more."""

    kind: Literal["agent_removed"] = "agent_removed"
    agent_id: str


class AgentsReachable(Wire):
    """Two agents that could not reach each other can now."""

    kind: Literal["agents_reachable"] = "agents_reachable"
    agents: list[str]


class ClustersChanged(Wire):
    """The set of clusters whose nodes become agents has changed."""

    kind: Literal["clusters_changed"] = "clusters_changed"
    names: list[str]


class AgentLost(Wire):
    """An agent exited and no other replaced it: its ranks count as ended."""

    kind: Literal["agent_lost"] = "agent_lost"
    agent_id: str
    loss: Loss = Loss.UNKNOWN


class ClockStepped(Wire):
    """The system clock was set while the master ran: forward by `by_s`, or back if negative."""

    kind: Literal["clock_stepped"] = "clock_stepped"
    by_s: float


class SlotsSettled(Wire):
    """Slots have been free for so long that elastic trials may grow into them."""

    kind: Literal["slots_settled"] = "slots_settled"


class RoomFound(Wire):
    """There may be room on the disk that a trial without slots waits for."""

    kind: Literal["room_found"] = "room_found"
    trial_id: int


class ValidationReported(Wire):
    """A validation reported the searcher metric; None if its value is not a number.

    `time` is the value of the searcher's time metric, if the searcher has one.
    """

    kind: Literal["validation_reported"] = "validation_reported"
    allocation_id: str
    steps_completed: int
    metric: float | None
    time: float | None = None


class LossReported(Wire):
    """A training loss became NaN or infinite, or finite again."""

    kind: Literal["loss_reported"] = "loss_reported"
    allocation_id: str
    metric: str
    steps_completed: int
    value: float


# Kinds of journal records that the machine handles; others are only stored.
MachineRecord = (
    RankStarted
    | FirstStep
    | CheckpointSaved
    | CheckpointDeleted
    | LastStepSaved
    | TargetReached
    | RunEnded
    | RankFailure
    | Notice
    | RanksStalled
    | TraceSaved
    | ChangeMade
)


class RecordArrived(Wire):
    """A rank wrote a record into its journal, of a kind that the machine handles."""

    kind: Literal["record_arrived"] = "record_arrived"
    allocation_id: str
    rank: int
    record: Annotated[MachineRecord, Field(discriminator="kind")]


Event = Annotated[
    Request
    | UnmanagedHeard
    | DevicesReported
    | ExperimentDeleted
    | CheckpointsDeleted
    | LogMatched
    | HparamsSampled
    | TrialJudged
    | ContentSetAside
    | AgentRegistered
    | AgentAway
    | AgentRemoved
    | AgentsReachable
    | ClustersChanged
    | AgentLost
    | ClockStepped
    | SlotsSettled
    | RoomFound
    | RoomReported
    | GangStarted
    | RanksSeen
    | GangExited
    | ValidationReported
    | LossReported
    | RecordArrived,
    Field(discriminator="kind"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(text: str | bytes) -> Event:
    """Parse a stored event, as written by `model_dump_json`, also one of an earlier version."""
    try:
        return _EVENT.validate_json(text)
    except ValidationError:
        present = None
        with suppress(ValueError):  # the text is not JSON
            present = to_present_form(from_json(text))
        if present is None:
            raise
        return _EVENT.validate_python(present)
