"""What users ask of the machine: events (events.py) whose refusal is shown to the user."""

from __future__ import annotations

from typing import Any, Literal

from det_jupyter.lengths import Length
from det_jupyter.wire import (
    Capsule,
    Change,
    ChangeDetails,
    ChangeResources,
    MoveInQueue,
    Profile,
    QueueChange,
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
        is_quiet: Its end is not notified.
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
    is_quiet: bool = False
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


class ArchiveRequested(_OfExperiment):
    """An experiment is to be archived, or not any more."""

    kind: Literal["archive_requested"] = "archive_requested"
    is_archived: bool


class DeleteRequested(_OfExperiment):
    """An experiment is to be deleted, with its checkpoints, metrics and logs."""

    kind: Literal["delete_requested"] = "delete_requested"


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
    """A user wants these checkpoints to be deleted, or those of their files that globs match."""

    kind: Literal["checkpoints_unwanted"] = "checkpoints_unwanted"
    uuids: list[str]
    globs: list[str] = []


Request = (
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
    | ArchiveRequested
    | DeleteRequested
    | ContinueRequested
    | RetentionSet
    | CheckpointsUnwanted
)
