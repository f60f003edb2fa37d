"""What the machine handles: events, in the past tense, and users' requests (messages/changes.py).

Events are stored as JSON and replayed after a restart, so they hold everything that the machine
needs to come to the same state again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from det_jupyter.contract.messages import (
    AnyChange,
    CreateExperiment,
    DeviceProcess,
    GangExited,
    GangStarted,
    RunReport,
    SlotView,
    Wire,
)
from det_jupyter.contract.run.journal import (
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    FirstStep,
    Notice,
    RankFailure,
    RankStarted,
    RunEnded,
    TargetReached,
    TraceSaved,
)


class ExperimentSubmitted(CreateExperiment):
    """A user asked for an experiment; `config` is the effective document.

    Args:
        origins: Of the values in `config`, by path: "you" or "template"; others are defaults.
        continues: A trial to go on with: this experiment's one trial begins where that one is.
    """

    kind: Literal["experiment_submitted"] = "experiment_submitted"
    origins: dict[str, str] = {}
    continues: int | None = None


class ContinueRequested(Wire):
    """An experiment that is over is to go on."""

    kind: Literal["continue_requested"] = "continue_requested"
    experiment_id: int
    config: dict[str, Any]  # the effective one from now on


# What a user asked for: a refusal is shown.
Request = AnyChange | ExperimentSubmitted | ContinueRequested


class DevicesReported(Wire):
    """An agent reported other processes on its devices."""

    kind: Literal["devices_reported"] = "devices_reported"
    agent_id: str
    processes: dict[int, list[DeviceProcess]]


class ExperimentDeleted(Wire):
    """An experiment's files are gone, or could not all be deleted."""

    kind: Literal["experiment_deleted"] = "experiment_deleted"
    experiment_id: int
    error: str = ""


class CheckpointsDeleted(Wire):
    """The files of these checkpoints are gone."""

    kind: Literal["checkpoints_deleted"] = "checkpoints_deleted"
    experiment_id: int
    uuids: list[str]
    left_bytes: dict[str, int] = {}  # of those of which some files were to go, by uuid


class LogMatched(Wire):
    """A rank printed a line that a log policy matches."""

    kind: Literal["log_matched"] = "log_matched"
    allocation_id: str
    rank: int
    pattern: str
    action: Literal["cancel_retries", "exclude_node"]
    line: str


class HparamsSampled(Wire):
    """The sampler has answered: the hyperparameters of the next trial, or its error."""

    kind: Literal["hparams_sampled"] = "hparams_sampled"
    experiment_id: int
    index: int
    hparams: dict[str, Any] | None = None
    error: str = ""


class TrialJudged(Wire):
    """The pruner has answered, or failed."""

    kind: Literal["trial_judged"] = "trial_judged"
    experiment_id: int
    index: int
    is_pruned: bool
    error: str = ""


class NewsSetAside(Wire):
    """An event or record could not be handled, and was put into the table `quarantine`.

    Args:
        experiment_id: The experiment that it was about; None: of none.
        what: What could not be handled, and why, in one line.
        is_fatal: The experiment cannot go on without it.
        gone: The allocation whose ranks are gone according to it.
    """

    kind: Literal["news_set_aside"] = "news_set_aside"
    experiment_id: int | None
    what: str
    is_fatal: bool
    gone: str = ""


class AgentRegistered(Wire):
    """An agent process reported its name, its slots, and the runs that it knows."""

    kind: Literal["agent_registered"] = "agent_registered"
    agent_id: str
    session: str
    hostname: str
    pid: int
    birth: str = ""
    slots: list[SlotView]
    runs: list[RunReport] = []
    devices: dict[int, list[DeviceProcess]] = {}


class AgentAway(Wire):
    """An agent is not connected: nothing starts there until it registers again.

    Args:
        problem: Why, and what to do, in a sentence; "": not known yet.
    """

    kind: Literal["agent_away"] = "agent_away"
    agent_id: str
    problem: str = ""


class AgentLost(Wire):
    """An agent is gone and no successor came: what ran there is dead."""

    kind: Literal["agent_lost"] = "agent_lost"
    agent_id: str


class ClockStepped(Wire):
    """The system clock was set while the master ran: forward, or back (below 0)."""

    kind: Literal["clock_stepped"] = "clock_stepped"
    by_s: float


class ValidationReported(Wire):
    """The searcher's metric of one validation; None when it was no number.

    `time` is the searcher's time metric, if it has one.
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


# The records that the machine handles; the others are only stored.
MachineRecord = (
    RankStarted
    | FirstStep
    | CheckpointSaved
    | CheckpointDeleted
    | TargetReached
    | RunEnded
    | RankFailure
    | Notice
    | TraceSaved
    | ChangeMade
)


class RecordArrived(Wire):
    """A rank journaled a record that the machine handles."""

    kind: Literal["record_arrived"] = "record_arrived"
    allocation_id: str
    rank: int
    record: Annotated[MachineRecord, Field(discriminator="kind")]


Event = Annotated[
    Request
    | DevicesReported
    | ExperimentDeleted
    | CheckpointsDeleted
    | LogMatched
    | HparamsSampled
    | TrialJudged
    | NewsSetAside
    | AgentRegistered
    | AgentAway
    | AgentLost
    | ClockStepped
    | GangStarted
    | GangExited
    | ValidationReported
    | LossReported
    | RecordArrived,
    Field(discriminator="kind"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(text: str | bytes) -> Event:
    """Return the event that `model_dump_json` wrote."""
    return _EVENT.validate_json(text)
