"""Requests that change what the master has: a client posts one, and the machine handles it.

A request is the event that it causes, so it is stored and replayed as it was posted. `path` is
where it is posted; the fields that the path names are left out of the body.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from det_jupyter.contract.messages.rank_orders import Change, Profile
from det_jupyter.contract.messages.resources import AgentStatus, PoolStatus
from det_jupyter.contract.messages.views import CheckpointView, ExperimentView, TrialView
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import StrictCount, StrictWhole, Whole
from det_jupyter.contract.values.lengths import Length

Label = Annotated[str, Field(min_length=1, max_length=100)]


class ChangeRequest(Wire):
    """Base of these requests.

    Attributes:
        path: Where it is posted.
        method: How: POST or PUT.
        is_repeatable: Whether it has the same effect when it is made twice.
        answer: What it is answered with.
    """

    path: ClassVar[str]
    answer: ClassVar[Any]
    method: ClassVar[Literal["POST", "PUT"]] = "POST"
    is_repeatable: ClassVar[bool] = True

    @classmethod
    def in_path(cls) -> set[str]:
        """Return the names of the fields that its path has, not its body."""
        return {name for name in cls.model_fields if f"{{{name}}}" in cls.path}

    def given(self) -> dict[str, Any]:
        """Return the values that were given, without what it is about."""
        return self.model_dump(exclude_defaults=True, exclude={"kind", *self.in_path()})


class OfExperiment(ChangeRequest):
    """A request about one experiment."""

    answer: ClassVar[Any] = ExperimentView
    experiment_id: Whole


class OfTrial(ChangeRequest):
    """A request about one trial."""

    answer: ClassVar[Any] = TrialView
    trial_id: Whole


class Pause(OfExperiment):
    """All trials of an experiment are to save their state and give their slots back."""

    path = "/experiments/{experiment_id}/pause"
    kind: Literal["pause"] = "pause"


class Activate(OfExperiment):
    """A paused experiment is to go on."""

    path = "/experiments/{experiment_id}/activate"
    kind: Literal["activate"] = "activate"


class Cancel(OfExperiment):
    """An experiment is to end after its trials have saved their state."""

    path = "/experiments/{experiment_id}/cancel"
    kind: Literal["cancel"] = "cancel"


class Kill(OfExperiment):
    """An experiment is to end now."""

    path = "/experiments/{experiment_id}/kill"
    kind: Literal["kill"] = "kill"


class Archive(OfExperiment):
    """An experiment that is over is to be left out of lists."""

    path = "/experiments/{experiment_id}/archive"
    is_repeatable = False
    kind: Literal["archive"] = "archive"


class Unarchive(OfExperiment):
    """An archived experiment is to be in lists again."""

    path = "/experiments/{experiment_id}/unarchive"
    is_repeatable = False
    kind: Literal["unarchive"] = "unarchive"


class Delete(OfExperiment):
    """An experiment is to be deleted, with its checkpoints, metrics and logs."""

    path = "/experiments/{experiment_id}/delete"
    is_repeatable = False
    kind: Literal["delete"] = "delete"


class ChangeDetails(OfExperiment):
    """An experiment is to be described anew, whatever its state; None: as it is."""

    path = "/experiments/{experiment_id}/details"
    kind: Literal["change_details"] = "change_details"
    name: str | None = None
    description: Annotated[str, Field(max_length=20_000)] | None = None
    # Labels that it gets; those that it has already stay.
    add_labels: Annotated[list[Label], Field(max_length=100)] = []
    # Labels that it loses; those that it does not have do not matter.
    remove_labels: Annotated[list[Label], Field(max_length=100)] = []


class SearchChange(Wire):
    """Other limits for a search; None: as it is."""

    max_trials: StrictWhole | None = None  # more trials than there were to be
    max_length: Length | None = None  # a longer full length, in the unit that it is in
    max_concurrent_trials: StrictWhole | None = None  # at most so many at work at a time; 0: all
    # The same names with narrower ranges, for the trials to come.
    hyperparameters: dict[str, Any] | None = None


class ChangeSearch(OfExperiment, SearchChange):
    """A running search is to have other limits."""

    path = "/experiments/{experiment_id}/search"
    kind: Literal["change_search"] = "change_search"


class ChangeResources(OfExperiment):
    """An experiment may have other resources, while it runs; None: as it is.

    `max_slots`: "none" lifts the limit.
    """

    path = "/experiments/{experiment_id}/resources"
    kind: Literal["change_resources"] = "change_resources"
    priority: StrictWhole | None = None
    weight: float | None = Field(default=None, allow_inf_nan=False)
    max_slots: StrictWhole | Literal["none"] | None = None
    resource_pool: str | None = None


class MoveInQueue(OfExperiment):
    """An experiment is to come right ahead of, or right behind, another one."""

    path = "/experiments/{experiment_id}/move"
    kind: Literal["move_in_queue"] = "move_in_queue"
    ahead_of: StrictWhole | None = None
    behind: StrictWhole | None = None


class QueueChange(Wire):
    """A change of one experiment, as a part of a `ChangeQueue`."""

    # What the user wrote it as; problems with it begin so.
    where: Annotated[str, Field(max_length=1000)]
    request: Annotated[ChangeResources | MoveInQueue, Field(discriminator="kind")]


class ChangeQueue(ChangeRequest):
    """All of these changes are to be made, or none; each is judged after those before it."""

    path = "/queue"
    answer = list[ExperimentView]
    kind: Literal["change_queue"] = "change_queue"
    changes: Annotated[list[QueueChange], Field(max_length=1000)]
    dry_run: StrictBool = False  # make none; only find out what is wrong with them


class SetRetention(OfExperiment):
    """These checkpoints of an experiment are to be kept, and the others deleted.

    The answer has those that are deleted, or with `dry_run` those that would be.
    """

    path = "/experiments/{experiment_id}/retention"
    answer = list[CheckpointView]
    kind: Literal["set_retention"] = "set_retention"
    save_experiment_best: StrictCount
    save_trial_best: StrictCount
    save_trial_latest: StrictCount
    dry_run: StrictBool = False


class DropCheckpoints(ChangeRequest):
    """Checkpoints, or some of their files, are to be deleted: of all of them, or of none."""

    path = "/checkpoints/delete"
    answer = list[CheckpointView]
    is_repeatable = False
    kind: Literal["drop_checkpoints"] = "drop_checkpoints"
    uuids: Annotated[list[str], Field(min_length=1)]
    globs: list[str] = []  # of the files; none: all


class KillTrial(OfTrial):
    """One trial is to end now; its experiment goes on."""

    path = "/trials/{trial_id}/kill"
    kind: Literal["kill_trial"] = "kill_trial"


class ProfileTrial(OfTrial, Profile):
    """Some ranks of a running trial are to record a profile; it comes with the trial's view."""

    path = "/trials/{trial_id}/profile"
    is_repeatable = False
    kind: Literal["profile_trial"] = "profile_trial"


class ChangeTrial(OfTrial, Change):
    """A trial is to train on with something changed; its view says when that took effect."""

    path = "/trials/{trial_id}/change"
    is_repeatable = False
    kind: Literal["change_trial"] = "change_trial"


class SwitchSlots(ChangeRequest):
    """Slots of an agent are to be given out no more, or again."""

    path = "/agents/{agent_id}/slots"
    answer = AgentStatus
    kind: Literal["switch_slots"] = "switch_slots"
    agent_id: str
    slots: list[StrictWhole] | None = None  # their ids; None: all of the agent
    enabled: StrictBool  # whether they may be given out
    # Let the gangs that are there finish; else they are asked to leave at once.
    drain: StrictBool = False


class SetPools(ChangeRequest):
    """These pools, the file's `pools` key, replace all that there were."""

    path = "/pools"
    answer = list[PoolStatus]
    method = "PUT"
    kind: Literal["set_pools"] = "set_pools"
    pools: Annotated[list[dict[str, Any]], Field(max_length=1000)]


# The changes of an experiment's life, by the verb that asks for them.
LIFE: dict[str, type[OfExperiment]] = {
    "pause": Pause,
    "activate": Activate,
    "cancel": Cancel,
    "kill": Kill,
    "archive": Archive,
    "unarchive": Unarchive,
    "delete": Delete,
}

AnyChange = (
    Pause
    | Activate
    | Cancel
    | Kill
    | Archive
    | Unarchive
    | Delete
    | ChangeDetails
    | ChangeSearch
    | ChangeResources
    | MoveInQueue
    | ChangeQueue
    | SetRetention
    | DropCheckpoints
    | KillTrial
    | ProfileTrial
    | ChangeTrial
    | SwitchSlots
    | SetPools
)
