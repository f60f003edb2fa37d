"""What the master answers about experiments, trials, slots, agents and itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict

from det_jupyter.contract.host.processes import Process
from det_jupyter.contract.messages.rank_orders import ProfileView, TrialChangeView
from det_jupyter.contract.messages.requests import Submission
from det_jupyter.contract.messages.status import AllocationState, State
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Fraction, Rank, Timestamp
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.lengths import Length

CauseKind = Literal[
    "compute", "input", "transfer", "communication", "checkpoint", "validation", "straggler",
    "uneven", "memory", "residual",
]  # fmt: skip
VerdictKind = Literal[CauseKind, "healthy", "unknown"]


class Cause(Wire):
    """Something that takes a trial's time."""

    kind: CauseKind
    share: Fraction  # of the time; of memory that grows: 0
    rank: Rank | None = None  # whose it is, where it is one rank's
    # Of a straggler: what makes it slow.
    because: Literal["data", "compute", "machine"] | None = None
    evidence: list[str] = []  # the numbers that say so, in sentences
    advice: list[str] = []  # what to try, in sentences, the most promising first


class Verdict(Wire):
    """What limits a trial, in one sentence."""

    # Of the first cause; `healthy`: nothing to gain; `unknown`: not enough seen yet.
    kind: VerdictKind
    sentence: str  # all of it, for people, with share, rank, and the next thing to try
    # Those that are worth a word, the one that names the verdict first. Two or more: they mix.
    causes: list[Cause] = []
    shares: dict[CauseKind, Fraction] = {}  # of all the time, by what took it; they sum to 1
    at: Timestamp  # when it was found
    batches: int  # how many batches it is based on


# None: there is none yet; what an earlier version stored has {} for it.
Target = Annotated[Length | None, BeforeValidator(lambda value: value or None)]


class SlotView(Wire):
    """One slot: one GPU, or one CPU place."""

    id: int
    kind: Literal["cpu", "cuda"]
    index: int  # of the device in NVML's order; of the place for cpu
    name: str
    uuid: str = ""
    memory_bytes: int = 0


class RankView(Wire):
    """One rank of a running allocation."""

    rank: int
    pid: int
    birth: str = ""
    host: str = ""
    slot: SlotView
    connection_file: str
    output_file: str
    backend: str = ""
    device: str = ""

    @property
    def process(self) -> Process:
        """Its process, on the computer of its agent."""
        return Process(self.pid, self.birth, self.host)


class AllocationView(Wire):
    """One allocation of a trial."""

    id: str  # "<experiment>.<trial>.<run>"
    run: int
    state: AllocationState = AllocationState.QUEUED
    agent_id: str | None = None
    slots: list[SlotView] = []
    agent_ids: list[str] = []  # rank i is on agent_ids[i]
    preempted_by: int | None = None  # experiment that it makes room for
    ranks: list[RankView] = []
    started_at: float | None = None
    first_step_at: float | None = None
    launch_note: str = ""  # how the ranks were started, and why not by the zygote


class FailureView(Wire):
    """Why a run failed: the first rank that did."""

    rank: int | None
    exit_code: int | None
    error: str
    where: str = ""
    traceback: str = ""
    at: float
    batch: int | None = None  # that the rank which ended first had begun
    times: int = 1  # that it came in the same way, one after the other
    no_room: bool = False  # a disk was full


class CheckpointView(Wire):
    """A checkpoint."""

    uuid: str
    experiment_id: int
    trial_id: int
    steps_completed: int
    path: str
    size_bytes: int
    created_at: float
    searcher_metric: float | None = None  # of the validation at the same step
    state: Literal["COMPLETED", "PARTIALLY_DELETED", "DELETED"] = "COMPLETED"
    globs: list[str] = []  # of the files that are being deleted; none: all of them, or nothing is


class Divergence(Wire):
    """A metric that is NaN or infinite: a loss since that batch, a validation's after so many."""

    metric: str
    value: Literal["NaN", "infinite"]
    since: int

    def __str__(self) -> str:
        return f"{self.metric} is {self.value} since batch {self.since}"


class StoredTrial(Wire):
    """What the master stores of a trial, and its view has as it is."""

    id: int
    experiment_id: int
    state: State = State.ACTIVE
    hparams: dict[str, Any]
    seed: int
    index: int = 0  # its place within the experiment, from 0
    restarts: int = 0
    best_metric: float | None = None
    latest_metric: float | None = None
    bracket: int | None = None  # of the search's brackets
    rung_metrics: list[float | None] = []  # at each rung it has reached, lowest first
    target: Target = None  # it trains until then, counted from its beginning
    is_resting: bool = False  # reached its target and gave its slots back until it is promoted
    was_stopped: bool = False  # the search ended it before its full length
    failure: FailureView | None = None  # of the last run that failed
    notices: list[str] = []  # notices that its ranks wrote
    alarms: list[str] = []  # those of what makes the training useless, such as a loss that is NaN
    changes: list[TrialChangeView] = []  # made while it trained, oldest first
    profiles: list[ProfileView] = []  # the latest ones, oldest first
    slot_seconds: float = 0.0  # slots times seconds, of the runs that have ended
    held_s: float = 0.0  # seconds in which it held slots, of the runs that have ended
    created_at: float
    ended_at: float | None = None


class TrialView(StoredTrial):
    """A trial."""

    steps_completed: int = 0
    progress: float = 0.0
    allocation: AllocationView | None = None  # the present one
    waiting_for: str | None = None  # one sentence: what it needs, and what holds it
    divergence: Divergence | None = None  # the first one that lasts
    verdict: Verdict | None = None  # where its time goes


class RungView(Wire):
    """An amount of training at which trials are compared."""

    length: dict[str, float]  # {"epochs": 4}; of a time metric {name: amount}
    num_results: int = 0
    num_promoted: int = 0


class BracketView(Wire):
    """A tournament of its own within a search."""

    rungs: list[RungView]  # lowest first
    max_trials: int
    num_created: int = 0


class SearchView(Wire):
    """A search as a whole; which trial is where, the trials say."""

    name: str
    max_trials: int
    num_created: int = 0
    num_closed: int = 0
    divisor: float | None = None
    brackets: list[BracketView] = []


class SearchChangeView(Wire):
    """A change of a running search: what it changed, by name, before and after."""

    at: float
    before: dict[str, Any]
    after: dict[str, Any]


class ExperimentFields(Wire):
    """What each description of an experiment has."""

    id: int
    created_at: float
    ended_at: float | None = None
    held_s: float = 0.0  # seconds in which any trial held slots, but for those that do now
    is_archived: bool = False
    priority: int = 42


class StoredExperiment(ExperimentFields, Submission):
    """What the master stores of an experiment, and its view has as it is."""

    state: State = State.ACTIVE
    message: str = ""  # why it ended as it did
    held_since: float | None = None  # since then a trial holds slots, which `held_s` lacks
    search_changes: list[SearchChangeView] = []  # the latest ones, oldest first
    pool: str = ""
    weight: float = 1.0
    max_slots: int | None = None


class ExperimentView(StoredExperiment):
    """An experiment with its trials."""

    name: str
    progress: float
    search: SearchView | None = None
    trials: list[TrialView] = []
    last_seq: int = 0  # number of the last feed item about it

    @property
    def metric(self) -> str:
        """The name of the searcher's metric."""
        return str(self.config["searcher"]["metric"])

    @property
    def labels(self) -> list[str]:
        """The words to find it by."""
        return list(self.config.get("labels") or [])

    @property
    def description(self) -> str:
        """What it is about."""
        return str(self.config.get("description") or "")

    @property
    def direction(self) -> Direction:
        """Which values of that metric are better."""
        return Direction.of_config(self.config)


class TimingsView(Wire):
    """How long the parts of some batches took: lists by part, a duration (or None) for each batch.

    The first is the batch that completed step `first`; `records` were trained in each.
    """

    id: int
    first: int
    records: list[int]
    durations_ns: dict[str, list[int | None]]


class FeedItem(Wire):
    """One numbered thing that happened. `kind`:

    experiment, trial: `data` is the new ExperimentView (without trials) or TrialView. What is
        large and the same as before is left out: config and capsule, hparams.
    metrics: a MetricsReported or BatchMetrics record. checkpoint: a CheckpointView.
    truncated: metrics of this trial after `data["steps_completed"]` are void (it restarts there).
    cluster: slots, queues or reasons have changed; `data` is empty, GET /cluster has the rest.
        It goes to the followers of all experiments, under experiment_id 0.
    """

    seq: int
    at: float
    kind: Literal["experiment", "trial", "metrics", "checkpoint", "truncated", "cluster"]
    experiment_id: int
    trial_id: int | None = None
    data: dict[str, Any]


class AgentView(Wire):
    """An agent and what its slots do."""

    id: str
    hostname: str
    pid: int
    connected: bool
    problem: str = ""  # why it is not, and what can be done, in a sentence
    slots: list[SlotView]
    used: dict[int, str] = {}  # slot id -> allocation id


class MasterInfo(Wire):
    """The 0600 file about the running master; GET /api/v1/master says it without the token.

    Programs of other versions read it as well, to say which it is, or to stop it.
    """

    model_config = ConfigDict(extra="ignore")

    url: str
    token: str = ""
    pid: int
    started_at: float
    birth: str = ""
    host: str = ""  # name of its computer
    version: str
    protocol: int
    python: str
    data_dir: str
    checkpoint_storage: str = ""  # folder in the place of a storage without a backend here

    @property
    def process(self) -> Process:
        """Its process, and thereby where it is."""
        return Process(self.pid, self.birth, self.host)
