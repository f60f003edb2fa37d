"""Views: what the master answers about experiments, trials, slots, agents and itself."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict, Field

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages.disks import RoomWait
from det_jupyter.contract.messages.hangs import HangReport
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.rank_orders import ProfileView, SizeChange, TrialChangeView
from det_jupyter.contract.messages.recoveries import RecoveryView
from det_jupyter.contract.messages.requests import Submission
from det_jupyter.contract.messages.search_views import SearchChangeView, SearchView
from det_jupyter.contract.messages.status import AlarmKind, AllocationState, State
from det_jupyter.contract.messages.trackers import TrackerState
from det_jupyter.contract.messages.verdicts import Verdict
from det_jupyter.contract.messages.wire import Kept, Wire
from det_jupyter.contract.values.bounds import Timestamp
from det_jupyter.contract.values.device_memory import DeviceShortage
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.lengths import Length
from det_jupyter.contract.values.sizes import Sizes, sizes_of
from det_jupyter.contract.values.text import clock

# None: there is none yet; trials that an earlier version stored have {}.
Target = Annotated[Length | None, BeforeValidator(lambda value: value or None)]


class SlotView(Wire):
    """One slot: one GPU, or one CPU place."""

    id: int
    kind: Literal["cpu", "cuda"]
    index: int  # index of the device in NVML's order, or of the CPU place
    name: str
    uuid: str = ""
    memory_bytes: int = 0


class RankView(Wire):
    """One rank of a running allocation."""

    rank: int
    pid: int
    birth: str = ""
    host: str = ""
    is_remote: bool = False  # on an agent of another computer, so its pid is not one of this one
    slot: SlotView
    connection_file: str  # on the master's computer; it exists while the kernel can be reached
    output_file: str  # on the computer of the rank
    backend: str = ""
    device: str = ""

    @property
    def process(self) -> ProcessIdentity:
        """Its process on the agent's computer."""
        return ProcessIdentity(self.pid, self.birth, self.host)


class AllocationView(Wire):
    """One allocation of a trial."""

    id: str  # "<experiment>.<trial>.<run>"
    run: int
    state: AllocationState = AllocationState.QUEUED
    agent_id: str | None = None
    slots: list[SlotView] = []
    agent_ids: list[str] = []  # rank i is on agent_ids[i]
    preempted_by: int | None = None  # the experiment that gets its slots
    resized_because: str = ""  # it leaves to go on at once with another number of slots
    ranks: list[RankView] = []
    started_at: float | None = None
    first_step_at: float | None = None
    launch_note: str = ""  # how the ranks were started, and why not by the zygote
    hang: HangReport | None = None  # while the gang makes no progress
    silent_since: float | None = None  # of an unmanaged run: when it last reported, if long ago

    @property
    def processes(self) -> str:
        """The processes of its ranks, such as `process 12 on box`."""
        found = [f"process {rank.pid} on {rank.host}" for rank in self.ranks]
        return " and ".join(found) or "its process"

    @property
    def silence(self) -> str:
        """A sentence on how long an unmanaged run has not reported; "": it reports."""
        if self.silent_since is None:
            return ""
        return (
            f"{self.processes} has reported nothing since {clock(self.silent_since)}; if it has "
            "ended, kill the experiment, or start its program again: it goes on"
        )

    def agent_of(self, rank: int) -> str:
        """Return the agent of a rank; "" if it is unknown."""
        return self.agent_ids[rank] if rank < len(self.agent_ids) else ""


class FailureView(Wire):
    """Why a run failed: the first rank that did."""

    rank: int | None
    exit_code: int | None
    error: str
    where: str = ""
    traceback: str = ""
    at: Timestamp
    batch: int | None = None  # the batch that the rank which exited first had begun
    times: int = 1  # number of consecutive runs that failed in this way
    no_room: bool = False  # a disk was full
    # The kernel has killed the rank or its worker for want of memory, or the GPU had too little.
    no_memory: bool = False
    device_memory: DeviceShortage | None = None  # what held the GPU's memory then
    full_folder: str = ""  # a folder on that disk; "": unknown
    full_on_agent: str = ""  # the agent, if the disk is on another computer than the master
    by_others: bool = False  # another process may have caused it
    is_survived: bool = False  # the other ranks have saved the last step


class CheckpointView(Kept):
    """A checkpoint."""

    uuid: str
    experiment_id: int
    trial_id: int
    steps_completed: int
    path: str
    size_bytes: int
    created_at: float
    searcher_metric: float | None = None  # metric of the validation at the same step
    state: Literal["COMPLETED", "PARTIALLY_DELETED", "DELETED"] = "COMPLETED"
    globs: list[str] = []  # patterns of files still to be deleted, if some files stay
    is_foreign: bool = False  # another tool saved it: its files are not deleted from here
    is_placed: bool = (
        False  # a user's request has set `path`: it is not in its experiment's storage
    )
    former: str = ""  # path that it was moved from, while files there are still to be deleted

    @property
    def location(self) -> str:
        """The location of the storage that it is in."""
        return self.path.rpartition("/")[0] or "/"

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern of UUID, EXPERIMENT/UUID or EXPERIMENT/TRIAL/UUID matches."""
        parts = (str(self.experiment_id), str(self.trial_id), self.uuid)
        match pattern.split("/"):
            case [uuid]:
                given = ["*", "*", uuid]
            case [experiment, uuid]:
                given = [experiment, "*", uuid]
            case given:
                pass
        return len(given) == 3 and all(map(fnmatchcase, parts, given))


class Divergence(Wire):
    """A metric that is NaN or infinite, since batch `since` (of a validation: after it)."""

    metric: str
    value: Literal["NaN", "infinite"]
    since: int

    def __str__(self) -> str:
        return f"{self.metric} is {self.value} since batch {self.since}"


class Alarm(NamedTuple):
    """What is wrong with a training that continues: in one word, and in a sentence."""

    kind: AlarmKind
    sentence: str


def alarm_of(
    room: RoomWait | None, allocation: AllocationView | None, divergence: Divergence | None
) -> Alarm:
    """Return the alarm of an active trial; of several, the one that explains the others.

    Ranks that wait for room make no progress, but do not hang.
    """
    if allocation is not None and allocation.silence:
        return Alarm("silent", allocation.silence)
    hang = allocation.hang if allocation is not None else None
    if room is not None:
        is_upload = room.writing == "uploads"
        return Alarm("uploads wait" if is_upload else "waits for room", room.sentence)
    if hang is not None:
        return Alarm("hangs", hang.sentence())
    return Alarm("diverged", str(divergence)) if divergence is not None else Alarm("", "")


class StoredTrial(Kept):
    """The fields that are equal in the stored state of a trial and in its view."""

    id: int
    experiment_id: int
    state: State = State.ACTIVE
    hparams: dict[str, Any]
    seed: int
    index: int = 0  # its number within the experiment, from 0
    restarts: int = 0
    num_recoveries: int = 0  # restarts at the last step, which are not among `restarts`
    recoveries: list[RecoveryView] = []  # the latest ones, oldest first
    best_metric: float | None = None
    latest_metric: float | None = None
    bracket: int | None = None  # index of the trial's bracket in the search
    # The metric at each rung that it has reached, lowest rung first.
    rung_metrics: list[float | None] = []
    target: Target = None  # the length to train to, counted from the trial's beginning
    is_resting: bool = False  # has reached its target, and has no slots until it is promoted
    was_stopped: bool = False  # the search ended it before its full length
    failure: FailureView | None = None  # failure of the last run that failed
    notices: list[str] = []  # written by its ranks
    alarms: list[str] = []  # the notices about useless training, such as a loss that is NaN
    plain_trainer: str = ""  # the trainer that a run has called without DetCallback
    changes: list[TrialChangeView] = []  # made while it trained, oldest first
    profiles: list[ProfileView] = []  # the latest ones, oldest first
    sizes: list[SizeChange] = []  # of an elastic trial: the latest ones, oldest first
    slot_seconds: float = 0.0  # slots times seconds of the runs that have ended
    held_s: float = 0.0  # seconds in which it held slots, in the runs that have ended
    room: RoomWait | None = None  # it waits for room on a disk
    created_at: float
    ended_at: float | None = None


class TrialView(StoredTrial):
    """A trial."""

    steps_completed: int = 0
    progress: float = 0.0
    allocation: AllocationView | None = None  # the present one
    waiting_for: str | None = None  # why it does not run, in a sentence
    leaving: Leaving | None = None  # its ranks were asked to leave, or are being killed
    divergence: Divergence | None = None  # the first one that lasts
    verdict: Verdict | None = None  # what limits its speed

    @property
    def hang(self) -> HangReport | None:
        """Why the trial's ranks make no progress, while they do not."""
        return self.allocation.hang if self.allocation is not None else None

    @property
    def alarm(self) -> Alarm:
        """What is wrong with its training while it continues."""
        room = self.room if self.state is State.ACTIVE else None
        return alarm_of(room, self.allocation, self.divergence)


class ExperimentFields(Wire):
    """The fields that all views of an experiment have."""

    id: int
    created_at: float
    ended_at: float | None = None
    held_s: float = 0.0  # seconds in which any trial held slots, without those since `held_since`
    is_archived: bool = False
    is_unmanaged: bool = False  # a user has started its processes by hand
    priority: int = 42


class StoredExperiment(ExperimentFields, Submission):
    """The fields that are equal in the stored state of an experiment and in its view."""

    state: State = State.ACTIVE
    message: str = ""  # why it is in this state
    held_since: float | None = None  # since then a trial has held slots; not yet in `held_s`
    search_changes: list[SearchChangeView] = []  # the latest ones, oldest first
    pool: str = ""
    weight: float = 1.0
    max_slots: int | None = None

    # Read of every experiment, whichever version has stored its configuration: none is parsed.

    @property
    def searcher_name(self) -> str:
        """The search method."""
        return str(self._section("searcher").get("name", ""))

    @property
    def metric(self) -> str:
        """The name of the searcher's metric."""
        return str(self._section("searcher").get("metric", ""))

    @property
    def direction(self) -> Direction:
        """Which values of the searcher's metric are better."""
        smaller = self._section("searcher").get("smaller_is_better", True)
        return Direction.of(smaller_is_better=bool(smaller))

    @property
    def slots_per_trial(self) -> int:
        """How many slots each of its trials needs to start."""
        return self.sizes.least

    @property
    def sizes(self) -> Sizes:
        """How many slots each of its trials may have."""
        return sizes_of(self.config)

    @property
    def labels(self) -> list[str]:
        """The experiment's labels."""
        return list(self.config.get("labels") or [])

    @property
    def description(self) -> str:
        """The experiment's description."""
        return str(self.config.get("description") or "")

    def _section(self, name: str) -> dict[str, Any]:
        section = self.config.get(name)
        return section if isinstance(section, dict) else {}


class ExperimentView(StoredExperiment):
    """An experiment with its trials."""

    name: str
    progress: float
    search: SearchView | None = None
    trials: list[TrialView] = []
    trackers: list[TrackerState] = []  # services that it is sent to

    @property
    def plain_trainer(self) -> str:
        """The trainer that its function or script calls without DetCallback; "": none is known."""
        found = (trial.plain_trainer for trial in self.trials if trial.plain_trainer)
        return self.capsule.plain_trainer or next(found, "")


class TimingsView(Wire):
    """How long the parts of consecutive batches took.

    `durations_ns[part][i]` (None if the batch has no such part) and `records[i]` are of the batch
    that completed step `first + i`.
    """

    id: int
    first: int
    records: list[int]
    durations_ns: dict[str, list[int | None]]


class FeedItem(Wire):
    """One numbered item of the feed. `kind`:

    metrics: `data` is a MetricsReported or BatchMetrics record.
    truncated: the trial restarts at `data["steps_completed"]`; its later metrics are discarded.
    experiment, trial, cluster: it has changed; `data` is empty.
    config, checkpoint: the experiment's configuration, or a checkpoint of the trial, has changed;
        `data` is empty.
    """

    seq: int
    at: float
    kind: Literal["metrics", "truncated", "experiment", "config", "trial", "checkpoint", "cluster"]
    experiment_id: int
    trial_id: int | None = None
    data: dict[str, Any]


class MasterInfo(Wire):
    """The 0600 file about the running master; GET /api/v1/master returns it without the token.

    Programs of other versions read it too, to name its version or to stop it.
    """

    model_config = ConfigDict(extra="ignore")

    url: str
    token: str = Field("", repr=False)
    pid: int
    started_at: float
    birth: str = ""
    host: str = ""  # name of its computer
    version: str
    protocol: int
    python: str
    data_dir: str
    checkpoint_storage: str = ""  # folder that replaces storages without a backend here
    reader_url: str = ""  # where its reader serves documents, with the same token

    @property
    def process(self) -> ProcessIdentity:
        """The master's process, with its computer."""
        return ProcessIdentity(self.pid, self.birth, self.host)
