"""Requests that change the master's state: a client posts one, and the machine handles it.

A request is also the event that it causes: it is stored and replayed as it was posted. Fields that
are in its path are left out of its body.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictBool

from det_jupyter.contract.messages.change_request import ChangeRequest, Label
from det_jupyter.contract.messages.models import AnyOfModel, CreateModel
from det_jupyter.contract.messages.rank_orders import Change, Profile, TrialChangeView
from det_jupyter.contract.messages.requests import Key, Submission
from det_jupyter.contract.messages.resources import AgentStatus, PoolStatus
from det_jupyter.contract.messages.search_views import SearchView
from det_jupyter.contract.messages.unmanaged import StartUnmanaged
from det_jupyter.contract.messages.views import (
    CheckpointView,
    ExperimentView,
    FailureView,
    Target,
    TrialView,
)
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import (
    Amount,
    Count,
    StrictCount,
    StrictWhole,
    Timestamp,
    Whole,
)
from det_jupyter.contract.values.lengths import Length


class OfExperiment(ChangeRequest):
    """A request about one experiment."""

    answer: ClassVar[Any] = ExperimentView
    experiment_id: Whole


class OfTrial(ChangeRequest):
    """A request about one trial."""

    answer: ClassVar[Any] = TrialView
    trial_id: Whole


class Pause(OfExperiment):
    """Pause an experiment: its trials save their state and give their slots back.

    With `at_once` their ranks are killed instead, also if they have been asked to leave before:
    what they have trained since their last checkpoint is lost.
    """

    path = "/experiments/{experiment_id}/pause"
    kind: Literal["pause"] = "pause"
    at_once: StrictBool = False


class Activate(OfExperiment):
    """Continue a paused experiment."""

    path = "/experiments/{experiment_id}/activate"
    kind: Literal["activate"] = "activate"


class Cancel(OfExperiment):
    """End an experiment after its trials have saved their state."""

    path = "/experiments/{experiment_id}/cancel"
    kind: Literal["cancel"] = "cancel"


class Kill(OfExperiment):
    """End an experiment now."""

    path = "/experiments/{experiment_id}/kill"
    kind: Literal["kill"] = "kill"


class Archive(OfExperiment):
    """Leave an experiment that has ended out of lists."""

    path = "/experiments/{experiment_id}/archive"
    is_repeatable = False
    kind: Literal["archive"] = "archive"


class Unarchive(OfExperiment):
    """Include an archived experiment in lists again."""

    path = "/experiments/{experiment_id}/unarchive"
    is_repeatable = False
    kind: Literal["unarchive"] = "unarchive"


class Delete(OfExperiment):
    """Delete an experiment, with its checkpoints, metrics and logs."""

    path = "/experiments/{experiment_id}/delete"
    is_repeatable = False
    kind: Literal["delete"] = "delete"


class ChangeDetails(OfExperiment):
    """Change name, description or labels, in any state; None leaves a value unchanged."""

    path = "/experiments/{experiment_id}/details"
    kind: Literal["change_details"] = "change_details"
    name: str | None = None
    description: Annotated[str, Field(max_length=20_000)] | None = None
    # Labels to add; one that it has already is ignored.
    add_labels: Annotated[list[Label], Field(max_length=100)] = []
    # Labels to remove; one that it does not have is ignored.
    remove_labels: Annotated[list[Label], Field(max_length=100)] = []


class SearchChange(Wire):
    """New limits for a search; None leaves a limit unchanged."""

    max_trials: StrictWhole | None = None  # a larger number of trials
    max_length: Length | None = None  # a larger full length, in the same unit
    max_concurrent_trials: StrictWhole | None = None  # 0: no limit
    # The same names with narrower ranges, for future trials.
    hyperparameters: dict[str, Any] | None = None


class ChangeSearch(OfExperiment, SearchChange):
    """Change the limits of a running search."""

    path = "/experiments/{experiment_id}/search"
    kind: Literal["change_search"] = "change_search"


class ChangeResources(OfExperiment):
    """Change the resources of an experiment, also while it runs; None leaves a value unchanged.

    `max_slots`: "none" removes the limit.
    """

    path = "/experiments/{experiment_id}/resources"
    kind: Literal["change_resources"] = "change_resources"
    priority: StrictWhole | None = None
    weight: float | None = Field(default=None, allow_inf_nan=False)
    max_slots: StrictWhole | Literal["none"] | None = None
    resource_pool: str | None = None


class MoveInQueue(OfExperiment):
    """Move an experiment in the queue, to directly before or behind another one."""

    path = "/experiments/{experiment_id}/move"
    kind: Literal["move_in_queue"] = "move_in_queue"
    ahead_of: StrictWhole | None = None
    behind: StrictWhole | None = None


class QueueChange(Wire):
    """One change of a `ChangeQueue`."""

    # How the user wrote it: the beginning of problems with it.
    where: Annotated[str, Field(max_length=1000)]
    request: Annotated[ChangeResources | MoveInQueue, Field(discriminator="kind")]


class ChangeQueue(ChangeRequest):
    """Make all of these changes in their order, or none of them."""

    path = "/queue"
    answer = list[ExperimentView]
    kind: Literal["change_queue"] = "change_queue"
    changes: Annotated[list[QueueChange], Field(max_length=1000)]
    dry_run: StrictBool = False  # only check them


class SetRetention(OfExperiment):
    """Set how many checkpoints of an experiment are kept, and delete the others.

    The answer contains those that are deleted; with `dry_run` those that would be.
    """

    path = "/experiments/{experiment_id}/retention"
    answer = list[CheckpointView]
    kind: Literal["set_retention"] = "set_retention"
    save_experiment_best: StrictCount
    save_trial_best: StrictCount
    save_trial_latest: StrictCount
    dry_run: StrictBool = False


class DropCheckpoints(ChangeRequest):
    """Delete checkpoints, or some of their files. If one cannot be deleted, none is."""

    path = "/checkpoints/delete"
    answer = list[CheckpointView]
    is_repeatable = False
    kind: Literal["drop_checkpoints"] = "drop_checkpoints"
    uuids: Annotated[list[str], Field(min_length=1)]
    globs: list[str] = []  # patterns of the files to delete; empty: all files


class MoveCheckpoints(ChangeRequest):
    """Use the copies of checkpoints in another storage from now on, and delete the others.

    Args:
        location: Of that storage, as in bucket_urls.py, or an absolute folder.
        is_lost: The checkpoints are not where they were. If they are found there again, as on a
            drive that was not mounted, they stay.
    """

    path = "/checkpoints/move"
    answer = list[CheckpointView]
    kind: Literal["move_checkpoints"] = "move_checkpoints"
    uuids: Annotated[list[str], Field(min_length=1)]
    location: Annotated[str, Field(min_length=1, max_length=4000)]
    is_lost: StrictBool = False


class KillTrial(OfTrial):
    """End one trial now; its experiment continues."""

    path = "/trials/{trial_id}/kill"
    kind: Literal["kill_trial"] = "kill_trial"


class ProfileTrial(OfTrial, Profile):
    """Record a profile on ranks of a running trial; the trial's view will contain it."""

    path = "/trials/{trial_id}/profile"
    is_repeatable = False
    kind: Literal["profile_trial"] = "profile_trial"


class ChangeTrial(OfTrial, Change):
    """Change a trial while it trains; its view will contain when that took effect."""

    path = "/trials/{trial_id}/change"
    is_repeatable = False
    kind: Literal["change_trial"] = "change_trial"


class SwitchSlots(ChangeRequest):
    """Disable or enable slots of an agent."""

    path = "/agents/{agent_id}/slots"
    answer = AgentStatus
    kind: Literal["switch_slots"] = "switch_slots"
    agent_id: str
    slots: list[StrictWhole] | None = None  # their ids; None: all of the agent
    enabled: StrictBool  # whether they may be given out
    # Let gangs on these slots finish; otherwise they are preempted now.
    drain: StrictBool = False


class SetPools(ChangeRequest):
    """Replace all pools by these, which are the value of `pools` in the file of pools."""

    path = "/pools"
    answer = list[PoolStatus]
    method = "PUT"
    kind: Literal["set_pools"] = "set_pools"
    pools: Annotated[list[dict[str, Any]], Field(max_length=1000)]


class ImportedCheckpoint(Wire):
    """A checkpoint of an imported trial; `path` is that of a storage (storage/contract.py)."""

    uuid: Annotated[str, Field(min_length=1, max_length=200)]
    path: Annotated[str, Field(min_length=1)]
    steps_completed: Count
    size_bytes: Count
    created_at: Timestamp
    searcher_metric: Annotated[float, Field(allow_inf_nan=False)] | None = None
    is_foreign: bool = False  # as in CheckpointView


class ImportedTrial(Wire):
    """A run of another tool, or a trial of another master.

    Args:
        source: Its name there, which no other run of the import has.
        steps_completed: The greatest step of its metrics.
        validations: Finite values of the searcher's metric by step.
        held_s: Seconds in which it held slots; None: those from its creation to its end.
        runs: The number of its runs there.
        checkpoints: Oldest first; it can be continued from the last one.
    """

    source: Annotated[str, Field(min_length=1)]
    state: Literal["COMPLETED", "CANCELED", "ERROR"]
    hparams: dict[str, Any]
    notices: list[str] = []
    created_at: Timestamp
    ended_at: Timestamp
    steps_completed: Count
    validations: dict[Count, Annotated[float, Field(allow_inf_nan=False)]] = {}
    seed: Whole = 0
    held_s: Timestamp | None = None
    slot_seconds: Amount = 0.0
    runs: Count = 0
    restarts: Count = 0
    target: Target = None
    was_stopped: bool = False
    bracket: Count | None = None
    rung_metrics: list[float | None] = []
    failure: FailureView | None = None
    changes: list[TrialChangeView] = []
    checkpoints: list[ImportedCheckpoint] = []


class ImportExperiment(ChangeRequest, Submission):
    """Make an experiment of what was trained elsewhere; it is over.

    It can be continued and forked if the capsule has its code. If runs with this key were imported
    before, the runs that are new are added to that experiment, and the new values of the others
    are added to these. Metrics follow as ImportedMetrics, printed lines as ImportedLines.

    Args:
        source: Where the runs come from.
        state: Its state; None: that of its trials, or COMPLETED if they differ.
        search: The state of its search; None: all of its trials are over.
    """

    path = "/experiments/import"
    answer = ExperimentView
    kind: Literal["import_experiment"] = "import_experiment"
    key: Annotated[Key, Field(min_length=1)]
    source: Annotated[str, Field(min_length=1)]
    trials: Annotated[list[ImportedTrial], Field(min_length=1)]
    state: Literal["COMPLETED", "CANCELED", "ERROR"] | None = None
    search: SearchView | None = None


# The requests that change an experiment's state, by verb.
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
    | MoveCheckpoints
    | KillTrial
    | ProfileTrial
    | ChangeTrial
    | SwitchSlots
    | SetPools
    | ImportExperiment
    | StartUnmanaged
    | CreateModel
    | AnyOfModel
)
