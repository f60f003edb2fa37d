"""What our programs say to each other over HTTP: the only types they share, besides records.

    client  ->  master     CreateExperiment                         answers: *View
    agent   ->  master     RegisterAgent, AgentReport               answers: Offsets
    master  ->  agent      AgentCommand: StartGang, SignalGang, ExtendGang, KillGang, ...
    agent   ->  rank       GangPlan + RankPlace = RankSpec (through the zygote, or a file)
    agent   ->  zygote     ForkGang                                 answers: ZygoteReport

Times are UTC seconds since the epoch. `PROTOCOL` changes when an old peer would misunderstand.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL = 2


class Wire(BaseModel):
    """Base of all messages: unknown fields are refused, NaN travels as a string."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class State(StrEnum):
    """States of experiments and trials."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"

    def __repr__(self) -> str:
        return self.value  # what `experiment.wait()` shows as a cell's result

    @property
    def is_terminal(self) -> bool:
        """Whether nothing can happen any more."""
        return self in (State.COMPLETED, State.CANCELED, State.ERROR)


class AllocationState(StrEnum):
    """States of an allocation: one period in which a trial waits for, or holds, slots."""

    QUEUED = "QUEUED"  # waits for slots
    STARTING = "STARTING"  # holds slots; its ranks are not up yet
    RUNNING = "RUNNING"  # its ranks are up
    STOPPING = "STOPPING"  # was asked to leave and still holds its slots
    ENDED = "ENDED"


# ---- the capsule: a captured trial ---------------------------------------------------------


class CapturedName(Wire):
    """One name that travels with the trial."""

    name: str
    cell: str = ""  # "In [5]", a file name, or "" when unknown
    type: str
    size_bytes: int


class Capsule(Wire):
    """A trial taken out of a notebook: digests of blobs, and what a person wants to know of them.

    Args:
        entrypoint: Name of the class, as the configuration gives it.
        payload: Blob with the pickle stream (protocol 5, cloudpickle by value).
        buffers: Blobs with the stream's out-of-band buffers, in order.
        sources: Blob with JSON `{filename: {"label": "Cell In[5]", "source": "..."}}`.
        modules: Files of local modules, by path relative to their import root, to their blobs.
        captured: What the stream holds, for people.
        packages: Names and versions of the imported distributions.
        notices: Things the user should know (a CUDA tensor was copied to the CPU).
    """

    entrypoint: str
    payload: str
    buffers: list[str] = []
    sources: str
    modules: dict[str, str] = {}
    captured: list[CapturedName] = []
    packages: dict[str, str] = {}
    notices: list[str] = []


# ---- client -> master ----------------------------------------------------------------------


class CreateExperiment(Wire):
    """A request to run an experiment. `config` is the user's document, not yet completed."""

    config: dict[str, Any]
    capsule: Capsule
    python: str  # interpreter of the ranks
    cwd: str  # the notebook's folder: working directory of the ranks
    notebook: str | None = None
    template: str | None = None  # name of the template that `config` is laid over


class Refusal(Wire):
    """Body of every 4xx answer: each problem is one line for the user."""

    error: str  # name of a class in det_jupyter.errors
    problems: list[str]


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
    slot: SlotView
    connection_file: str
    output_file: str
    backend: str = ""
    device: str = ""


class AllocationView(Wire):
    """One allocation of a trial."""

    id: str  # "<experiment>.<trial>.<run>"
    run: int
    state: AllocationState
    agent_id: str | None = None
    slots: list[SlotView] = []
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
    state: Literal["COMPLETED", "DELETED"] = "COMPLETED"


class TrialView(Wire):
    """A trial."""

    id: int
    experiment_id: int
    state: State
    hparams: dict[str, Any]
    seed: int
    restarts: int = 0
    steps_completed: int = 0
    progress: float = 0.0
    best_metric: float | None = None
    latest_metric: float | None = None
    allocation: AllocationView | None = None  # the present one
    waiting_for: str | None = None  # one sentence: what it needs, who holds it
    index: int = 0  # its place within the experiment, from 0
    bracket: int | None = None  # of the search's brackets
    rung_metrics: list[float | None] = []  # at each rung it has reached, lowest first
    target: dict[str, int] = {}  # it trains until then, as a length: {"epochs": 4}
    is_resting: bool = False  # reached its target and gave its slots back until it is promoted
    was_stopped: bool = False  # the search ended it before its full length
    failure: FailureView | None = None  # of the last run that failed
    created_at: float
    ended_at: float | None = None


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


class ExperimentView(Wire):
    """An experiment with its trials."""

    id: int
    name: str
    state: State
    config: dict[str, Any]  # effective: defaults filled in
    capsule: Capsule
    notebook: str | None
    python: str
    cwd: str
    progress: float
    created_at: float
    ended_at: float | None = None
    message: str = ""  # why it ended as it did
    template: str | None = None  # that its configuration was laid over
    search: SearchView | None = None
    trials: list[TrialView] = []
    last_seq: int = 0  # number of the last feed item about it


class Curve(Wire):
    """One metric of one trial: parallel lists, `value` None where it was not a finite number."""

    trial_id: int
    group: str  # training, training batches ("batches"), validation, or the user's
    name: str
    steps: list[int]
    values: list[float | None]


class FeedItem(Wire):
    """One numbered thing that happened. `kind`:

    experiment, trial: `data` is the new ExperimentView (without trials) or TrialView.
    metrics: a MetricsReported or BatchMetrics record. checkpoint: a CheckpointView.
    truncated: metrics of this trial after `data["steps_completed"]` are void (it restarts there).
    """

    seq: int
    at: float
    kind: Literal["experiment", "trial", "metrics", "checkpoint", "truncated"]
    experiment_id: int
    trial_id: int | None = None
    data: dict[str, Any]


class LogLine(Wire):
    """One line that a rank printed."""

    id: int
    at: float
    trial_id: int
    run: int
    rank: int
    text: str


class AgentView(Wire):
    """An agent and what its slots do."""

    id: str
    hostname: str
    pid: int
    connected: bool
    slots: list[SlotView]
    used: dict[int, str] = {}  # slot id -> allocation id


class MasterInfo(Wire):
    """The 0600 file about the running master; GET /api/v1/master says it without the token."""

    url: str
    token: str = ""
    pid: int
    started_at: float
    process_created_at: float  # psutil's create_time: tells a reused pid from ours
    version: str
    protocol: int
    python: str
    data_dir: str


# ---- agent <-> master ----------------------------------------------------------------------


class CheckpointRef(Wire):
    """Where a run starts from."""

    uuid: str
    path: str
    steps_completed: int


class GangPlan(Wire):
    """Everything there is to know for starting a gang; idempotent by `allocation_id`."""

    allocation_id: str
    experiment_id: int
    trial_id: int
    run: int
    python: str
    cwd: str
    slots: list[SlotView]  # rank i gets slots[i]
    config: dict[str, Any]  # effective
    hparams: dict[str, Any]
    seed: int
    capsule: Capsule
    checkpoint: CheckpointRef | None = None
    warm_start: CheckpointRef | None = None  # another trial's: take its weights, begin at step 0
    best_metric: float | None = None  # best validation of the experiment so far
    target: dict[str, int]  # train until then, counted from the trial's beginning
    target_is_last: bool = True  # leave there, else wait for a farther target or the word to leave


class StartGang(Wire):
    """Start all ranks of the plan, or none."""

    kind: Literal["start_gang"] = "start_gang"
    plan: GangPlan


class SignalGang(Wire):
    """Raise a word of the control page; kill the gang if it is still there `timeout_s` later."""

    kind: Literal["signal_gang"] = "signal_gang"
    allocation_id: str
    signal: Literal["preempt"]
    timeout_s: float


class ExtendGang(Wire):
    """Let the ranks train on to a farther target. Repeatable; a nearer one changes nothing."""

    kind: Literal["extend_gang"] = "extend_gang"
    allocation_id: str
    target: dict[str, int]  # in the unit of the plan's
    target_is_last: bool


class KillGang(Wire):
    """End all ranks now."""

    kind: Literal["kill_gang"] = "kill_gang"
    allocation_id: str


class CloseRun(Wire):
    """The master has everything of this run, its exit included: forget it, remove its sockets."""

    kind: Literal["close_run"] = "close_run"
    allocation_id: str


class Leave(Wire):
    """End the agent (and whatever it still runs)."""

    kind: Literal["leave"] = "leave"


AgentCommand = Annotated[
    StartGang | SignalGang | ExtendGang | KillGang | CloseRun | Leave, Field(discriminator="kind")
]


class RunReport(Wire):
    """A run that the agent knows of and the master has not closed."""

    allocation_id: str
    alive: bool


class RegisterAgent(Wire):
    """An agent's first word, and its first word after each reconnection.

    `session` is new for each agent process, so the master can tell a reconnection from a
    successor whose ranks all died with their agent.
    """

    protocol: int
    version: str
    session: str
    hostname: str
    pid: int
    slots: list[SlotView]
    runs: list[RunReport]


class Offsets(Wire):
    """How many bytes of each file the master has: allocation id -> stream -> bytes.

    Streams are named `journal-<rank>` and `output-<rank>`.
    """

    offsets: dict[str, dict[str, int]]


class Chunk(Wire):
    """Complete lines of a rank's file: its bytes `offset` to `offset + size_bytes`.

    The next chunk begins at `offset + size_bytes`. That is not always the length of `text`: a
    rank may print what is not UTF-8 (each such byte arrives as U+FFFD), and its last line may lack
    the line end that `text` has.
    """

    kind: Literal["chunk"] = "chunk"
    allocation_id: str
    stream: str
    offset: int
    size_bytes: int
    text: str


class RankProcess(Wire):
    """A rank process that was started."""

    rank: int
    pid: int
    connection_file: str
    output_file: str


class GangStarted(Wire):
    """All ranks of the gang exist as processes."""

    kind: Literal["gang_started"] = "gang_started"
    allocation_id: str
    at: float
    ranks: list[RankProcess]
    note: str = ""


class GangExited(Wire):
    """The gang is gone: every rank's process has ended (or none could be started).

    The agent sends it after the last chunk of every stream, again and again until CloseRun.

    Args:
        exit_codes: By rank; negative is minus the signal; None when unknown.
        first_failed: The rank whose failure ended the gang.
        killed: The agent ended it on the master's order (or at the preemption deadline).
        lost: The ranks died with their agent or fork server: not the trial's fault.
        error: Why it could not be started at all.
        error_is_final: Trying again cannot help: somebody has to change something first.
    """

    kind: Literal["gang_exited"] = "gang_exited"
    allocation_id: str
    at: float
    exit_codes: dict[int, int | None]
    first_failed: int | None = None
    killed: bool = False
    lost: bool = False
    error: str = ""
    error_is_final: bool = True


AgentReport = Annotated[Chunk | GangStarted | GangExited, Field(discriminator="kind")]


class AgentReports(Wire):
    """A batch of reports, applied in order."""

    session: str
    reports: list[AgentReport]


# ---- agent -> rank -------------------------------------------------------------------------


class RankPlace(Wire):
    """A rank's place in its gang, in torchrun's words."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    group_rank: int = 0
    group_world_size: int = 1
    master_addr: str
    master_port: int
    listen_fd: int | None = None  # rank 0 only: bound and listening, for its TCPStore
    lifeline_fd: int | None = None  # read end of a pipe that closes when the agent dies
    num_threads: int = 1  # the rank's share of the computer's cores


class RankSpec(Wire):
    """What one rank process is told."""

    plan: GangPlan
    place: RankPlace
    run_dir: str
    data_dir: str
    socket_dir: str  # short 0700 folder for IPC sockets (their paths are limited to ~100 bytes)


# ---- agent <-> zygote (one JSON line each, over the socket that the zygote is started with) ----


class ForkGang(Wire):
    """Fork all ranks of one gang, in rank order, or none.

    The zygote binds the chief's listening socket and fills in `master_port` and `listen_fd`.
    """

    specs: list[RankSpec]


class ZygoteReady(Wire):
    """The first word: everything is imported.

    Args:
        unsafe: Why it will never fork, if so.
        torch_cuda: The version of CUDA (or HIP) that torch was built for; None: a CPU build.
    """

    kind: Literal["ready"] = "ready"
    protocol: int
    version: str
    warmup_s: float
    unsafe: str = ""
    torch_cuda: str | None = None


class ZygoteFailed(Wire):
    """The first and last word of a zygote whose interpreter cannot run ranks."""

    kind: Literal["failed"] = "failed"
    reason: str


class GangForked(Wire):
    """All ranks exist; `pids` in rank order."""

    kind: Literal["forked"] = "forked"
    allocation_id: str
    pids: list[int]


class ForkRefused(Wire):
    """No rank exists, because of `reason`."""

    kind: Literal["refused"] = "refused"
    allocation_id: str
    reason: str


class RankExited(Wire):
    """A rank has ended and took its process group along; a negative code is minus the signal."""

    kind: Literal["exited"] = "exited"
    pid: int
    exit_code: int


ZygoteReport = Annotated[
    ZygoteReady | ZygoteFailed | GangForked | ForkRefused | RankExited,
    Field(discriminator="kind"),
]


# ---- templates and search requests ---------------------------------------------------------


class SetTemplate(Wire):
    """A request to keep a template under its name, instead of what was there."""

    config: dict[str, Any]


class TemplateView(Wire):
    """A template: a part of a configuration that others are laid over."""

    name: str
    config: dict[str, Any]
    created_at: float
    updated_at: float


class EffectiveConfig(Wire):
    """An experiment's whole configuration, and where its values come from.

    Args:
        yaml: It as text, each value that is not the user's own with its origin as a comment.
        config: It as a document.
        origins: "you", "template" or "default", by path.
        template: The template that it was laid over.
        notices: What in it has no effect, each in a sentence.
    """

    yaml: str
    config: dict[str, Any]
    origins: dict[str, str]
    template: str | None = None
    notices: list[str] = []


class PreviewRequest(Wire):
    """A question what a search would train. `config` is as in CreateExperiment."""

    config: dict[str, Any]
    template: str | None = None
    seconds_per_batch: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class PlannedTrials(Wire):
    """So many trials are expected to end at this length."""

    length: dict[str, float]  # {"epochs": 4}; of a time metric {name: amount}
    num_trials: int


class PlannedBracket(Wire):
    """A bracket before it runs, lowest length first; a search without brackets is one."""

    trials: list[PlannedTrials]
    max_concurrent_trials: int | None = None


class Pace(Wire):
    """How long one unit of training takes, and how that is known."""

    unit: str
    seconds_per_unit: float
    source: str  # "as given", or the experiment that it was measured in


class PreviewView(Wire):
    """What a search would train.

    Args:
        searcher: Its name.
        unit: Of all amounts: batches, records, epochs or the time metric.
        num_trials: How many trials there will be.
        trials: How many end where, all brackets together.
        brackets: The same for each bracket.
        expected: Units of training, all trials together.
        least: The same, if as few trials as possible are trained on.
        most: The same, if as many as possible are.
        full: The same, if every trial was trained to the full length.
        concurrent: So many trials train at once on the slots that are there.
        slots: Those slots.
        pace: What the times are reckoned with; None: nobody knows.
        no_pace: Why not.
        seconds: How long the search would take on these slots.
        least_seconds: The same, if as few trials as possible are trained on.
    """

    searcher: str
    metric: str
    unit: str
    num_trials: int
    trials: list[PlannedTrials]
    brackets: list[PlannedBracket]
    expected: float
    least: float
    most: float
    full: float
    concurrent: int = 0
    slots: int = 0
    pace: Pace | None = None
    no_pace: str = ""
    seconds: float | None = None
    least_seconds: float | None = None
    notices: list[str] = []


class ChangeSearch(Wire):
    """A request to give a running search other limits; None: as it is."""

    max_trials: int | None = None
    max_length: dict[str, int] | int | None = None
    max_concurrent_trials: int | None = None
    hyperparameters: dict[str, Any] | None = None


class ContinueTrial(Wire):
    """A request to train a trial on, as an experiment of its own."""

    length: dict[str, int] | int | None = None  # since its beginning; None: its search's length
