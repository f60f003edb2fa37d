"""Messages between our programs: the only types that they share, besides records.

    client  ->  master     CreateExperiment, changes (changes.py)   answers: *View
    agent   ->  master     RegisterAgent, AgentReport               answers: Offsets
    master  ->  agent      AgentCommand: StartGang, SignalGang, ExtendGang, KillGang, ...
    agent   ->  rank       GangSpec + RankPlace = RankSpec (through the zygote, or a file)
    agent   ->  zygote     ForkGang                                 answers: ZygoteReport

Times are UTC seconds since the epoch. `PROTOCOL` changes when an old peer would misunderstand.
"""

from det_jupyter.contract.messages.capsule import Capsule, CapturedName, CodeView, ContextRef
from det_jupyter.contract.messages.changes import (
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
    SearchChange,
    SetPools,
    SetRetention,
    SwitchSlots,
    Unarchive,
)
from det_jupyter.contract.messages.cluster import (
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
from det_jupyter.contract.messages.curves import BATCHES, Curve, CurveKey, Curves, steps_per_epoch
from det_jupyter.contract.messages.finding import (
    ExperimentQuery,
    ExperimentRow,
    ExperimentRows,
    ListedExperiment,
    Sort,
)
from det_jupyter.contract.messages.gangs import (
    AgentCommand,
    AgentReport,
    AgentReports,
    Chunk,
    CloseRun,
    CrashOutput,
    DevicesSeen,
    ExtendGang,
    GangExited,
    GangStarted,
    KillGang,
    Leave,
    Offsets,
    OtherVersion,
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
from det_jupyter.contract.messages.logs import (
    LEVELS,
    MAX_LINES,
    MAX_WAIT_S,
    Level,
    LogLine,
    LogPage,
    LogQuery,
)
from det_jupyter.contract.messages.orders import (
    Change,
    ChangeOrder,
    Order,
    Profile,
    ProfileOrder,
    ProfileView,
    TraceView,
    TrialChangeView,
)
from det_jupyter.contract.messages.plan import CheckpointRef, GangPlan
from det_jupyter.contract.messages.ranks import (
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
from det_jupyter.contract.messages.requests import (
    ConfigText,
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
    Submission,
    TemplateView,
)
from det_jupyter.contract.messages.series import Series, SeriesPage, SeriesQuery
from det_jupyter.contract.messages.states import PROTOCOL, AllocationState, State, Wire
from det_jupyter.contract.messages.verdict import Cause, Verdict
from det_jupyter.contract.messages.views import (
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
    StoredExperiment,
    StoredTrial,
    Target,
    TimingsView,
    TrialView,
)
