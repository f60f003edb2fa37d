"""What the machine handles: events, in the past tense. Requests of users are events too.

Events are stored as JSON and replayed after a restart, so they hold everything that the machine
needs to come to the same state again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from det_jupyter.lengths import Length
from det_jupyter.records import (
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
from det_jupyter.wire import (
    Capsule,
    Change,
    ChangeDetails,
    ChangeResources,
    DeviceProcess,
    GangExited,
    GangStarted,
    MoveInQueue,
    Profile,
    QueueChange,
    RunReport,
    SlotView,
    SwitchSlots,
    Wire,
)


class _OfExperiment(Wire):
    kind: str
    experiment_id: int


class ExperimentSubmitted(Wire):
    """A user asked for an experiment.

    Args:
        config: The effective document.
        origins: Of its values, by path: "you" or "template"; the others are defaults.
        continues: A trial to go on with: this experiment's one trial begins where that one is.
        queue_anyway: Accept it though no pool can run it now.
        is_paused: It waits to be activated.
        parent_id: It is a fork of this experiment.
        key: Identifies the submission, so that the client can repeat it.
    """

    kind: Literal["experiment_submitted"] = "experiment_submitted"
    config: dict[str, Any]
    capsule: Capsule
    python: str
    cwd: str
    notebook: str | None = None
    template: str | None = None
    origins: dict[str, str] = {}
    continues: int | None = None
    queue_anyway: bool = False
    is_paused: bool = False
    parent_id: int | None = None
    key: str = ""


class PauseRequested(_OfExperiment):
    """All trials of an experiment are to save their state and give their slots back."""

    kind: Literal["pause_requested"] = "pause_requested"


class ActivateRequested(_OfExperiment):
    """A paused experiment is to go on."""

    kind: Literal["activate_requested"] = "activate_requested"


class CancelRequested(_OfExperiment):
    """An experiment is to end after its trials have saved their state."""

    kind: Literal["cancel_requested"] = "cancel_requested"


class KillRequested(_OfExperiment):
    """An experiment is to end now."""

    kind: Literal["kill_requested"] = "kill_requested"


class KillTrialRequested(Wire):
    """One trial is to end now; its experiment goes on."""

    kind: Literal["kill_trial_requested"] = "kill_trial_requested"
    trial_id: int


class ProfileRequested(Wire):
    """Some ranks of a running trial are to record a profile."""

    kind: Literal["profile_requested"] = "profile_requested"
    trial_id: int
    profile: Profile


class TrialChangeRequested(Wire):
    """A trial is to train on with something changed."""

    kind: Literal["trial_change_requested"] = "trial_change_requested"
    trial_id: int
    change: Change


class SearchChangeRequested(_OfExperiment):
    """A running search is to have other limits; None: unchanged."""

    kind: Literal["search_change_requested"] = "search_change_requested"
    max_trials: int | None = None
    max_length: Length | None = None
    max_concurrent_trials: int | None = None
    hyperparameters: dict[str, Any] | None = None


class ResourcesChangeRequested(_OfExperiment):
    """An experiment is to have another priority, weight, limit or pool."""

    kind: Literal["resources_change_requested"] = "resources_change_requested"
    change: ChangeResources


class DetailsChangeRequested(_OfExperiment):
    """An experiment is to have another name, description or labels."""

    kind: Literal["details_change_requested"] = "details_change_requested"
    change: ChangeDetails


class MoveRequested(_OfExperiment):
    """An experiment is to have another place in the queue."""

    kind: Literal["move_requested"] = "move_requested"
    move: MoveInQueue


class QueueChangesRequested(Wire):
    """All of these changes of the queue shall be made, or none."""

    kind: Literal["queue_changes_requested"] = "queue_changes_requested"
    changes: list[QueueChange]


class SlotsSwitched(Wire):
    """Slots are not to be given out any more, or again."""

    kind: Literal["slots_switched"] = "slots_switched"
    agent_id: str
    switch: SwitchSlots


class PoolsSet(Wire):
    """The pools, all of them, were set."""

    kind: Literal["pools_set"] = "pools_set"
    pools: list[dict[str, Any]]


class DevicesReported(Wire):
    """An agent reported other processes on its devices."""

    kind: Literal["devices_reported"] = "devices_reported"
    agent_id: str
    processes: dict[int, list[DeviceProcess]]


class ArchiveRequested(_OfExperiment):
    """An experiment is to be archived, or not any more."""

    kind: Literal["archive_requested"] = "archive_requested"
    is_archived: bool


class DeleteRequested(_OfExperiment):
    """An experiment is to be deleted, with its checkpoints, metrics and logs."""

    kind: Literal["delete_requested"] = "delete_requested"


class ExperimentDeleted(_OfExperiment):
    """An experiment's files are gone, or could not all be deleted."""

    kind: Literal["experiment_deleted"] = "experiment_deleted"
    error: str = ""


class ContinueRequested(_OfExperiment):
    """An experiment that is over is to go on."""

    kind: Literal["continue_requested"] = "continue_requested"
    config: dict[str, Any]  # the effective one from now on


class RetentionSet(_OfExperiment):
    """An experiment is to keep these numbers of checkpoints from now on."""

    kind: Literal["retention_set"] = "retention_set"
    save_experiment_best: int
    save_trial_best: int
    save_trial_latest: int


class CheckpointsUnwanted(Wire):
    """A user wants these checkpoints to be deleted."""

    kind: Literal["checkpoints_unwanted"] = "checkpoints_unwanted"
    uuids: list[str]


class CheckpointsDeleted(_OfExperiment):
    """The files of these checkpoints are gone."""

    kind: Literal["checkpoints_deleted"] = "checkpoints_deleted"
    uuids: list[str]


class LogMatched(Wire):
    """A rank printed a line that a log policy matches."""

    kind: Literal["log_matched"] = "log_matched"
    allocation_id: str
    rank: int
    pattern: str
    action: Literal["cancel_retries", "exclude_node"]
    line: str


class HparamsSampled(_OfExperiment):
    """The sampler has answered: the hyperparameters of the next trial, or its error."""

    kind: Literal["hparams_sampled"] = "hparams_sampled"
    index: int
    hparams: dict[str, Any] | None = None
    error: str = ""


class TrialJudged(_OfExperiment):
    """The pruner has answered, or failed."""

    kind: Literal["trial_judged"] = "trial_judged"
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
    ExperimentSubmitted
    | PauseRequested
    | ActivateRequested
    | CancelRequested
    | KillRequested
    | KillTrialRequested
    | ProfileRequested
    | TrialChangeRequested
    | SearchChangeRequested
    | ResourcesChangeRequested
    | DetailsChangeRequested
    | MoveRequested
    | QueueChangesRequested
    | SlotsSwitched
    | PoolsSet
    | DevicesReported
    | ArchiveRequested
    | DeleteRequested
    | ExperimentDeleted
    | ContinueRequested
    | RetentionSet
    | CheckpointsUnwanted
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
    | RecordArrived,
    Field(discriminator="kind"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def parse_event(text: str | bytes) -> Event:
    """Return the event that `model_dump_json` wrote."""
    return _EVENT.validate_json(text)
