"""Messages between our programs: the only types that they share, besides records.

    client  ->  master     CreateExperiment, changes (changes.py)   answers: *View
    agent   ->  master     RegisterAgent, AgentReport               answers: Offsets
    master  ->  agent      AgentCommand: StartGang, SignalGang, ExtendGang, KillGang, ...
    agent   ->  rank       GangSpec + RankPlace = RankSpec (through the zygote, or a file)
    agent   ->  zygote     ForkGang                                 answers: ZygoteReport

Times are UTC seconds since the epoch. `PROTOCOL` changes when an old peer would misunderstand.
"""

from det_jupyter.wire.capsule import Capsule, CapturedName, CodeView, ContextRef
from det_jupyter.wire.changes import (
    LIFE,
    Activate,
    AnyChange,
    Archive,
    Cancel,
    ChangeDetails,
    ChangeQueue,
    ChangeRequest,
    ChangeResources,
    ChangeSearch,
    ChangeTrial,
    Delete,
    DropCheckpoints,
    Kill,
    KillTrial,
    MoveInQueue,
    OfExperiment,
    OfTrial,
    Pause,
    ProfileTrial,
    QueueChange,
    SetPools,
    SetRetention,
    SwitchSlots,
    Unarchive,
)
from det_jupyter.wire.cluster import (
    AgentStatus,
    ClusterView,
    DeviceProcess,
    Estimate,
    HolderView,
    JobEntry,
    PoolStatus,
    QueueEntry,
    Reason,
    Remedy,
    RemedyVerb,
    SlotStatus,
    TaskEntry,
)
from det_jupyter.wire.curves import BATCHES, Curve, CurveKey, Curves, steps_per_epoch
from det_jupyter.wire.finding import ExperimentQuery, ExperimentRow, ExperimentRows, Sort
from det_jupyter.wire.gangs import (
    AgentCommand,
    AgentReport,
    AgentReports,
    Chunk,
    CloseRun,
    DevicesSeen,
    ExtendGang,
    GangExited,
    GangStarted,
    KillGang,
    Knock,
    LastWords,
    Leave,
    Offsets,
    PassOrders,
    RankProcess,
    RegisterAgent,
    RunReport,
    SignalGang,
    StartGang,
    SystemSample,
    SystemSampled,
    TakeSamples,
    Unreadable,
)
from det_jupyter.wire.logs import (
    LEVELS,
    MAX_LINES,
    MAX_WAIT_S,
    Level,
    LogLine,
    LogPage,
    LogQuery,
)
from det_jupyter.wire.orders import (
    Change,
    ChangeOrder,
    Order,
    Profile,
    ProfileOrder,
    ProfileView,
    TraceView,
    TrialChangeView,
)
from det_jupyter.wire.plan import CheckpointRef, GangPlan
from det_jupyter.wire.ranks import (
    ForkGang,
    ForkRefused,
    GangForked,
    GangSpec,
    RankExited,
    RankPlace,
    RankSpec,
    ZygoteFailed,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.wire.requests import (
    ContinueExperiment,
    ContinueTrial,
    CreateExperiment,
    EffectiveConfig,
    ImportanceView,
    Pace,
    PlannedBracket,
    PlannedRange,
    PlannedTrials,
    PreviewRequest,
    PreviewView,
    Refusal,
    SetTemplate,
    TemplateView,
)
from det_jupyter.wire.series import Series, SeriesPage, SeriesQuery
from det_jupyter.wire.states import PROTOCOL, AllocationState, State, Wire
from det_jupyter.wire.verdict import Cause, Verdict
from det_jupyter.wire.views import (
    AgentView,
    AllocationView,
    BracketView,
    CheckpointView,
    Divergence,
    ExperimentView,
    FailureView,
    FeedItem,
    MasterInfo,
    RankView,
    RungView,
    SearchChangeView,
    SearchView,
    SlotView,
    Target,
    TimingsView,
    TrialView,
)
