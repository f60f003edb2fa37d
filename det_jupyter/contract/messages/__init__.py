"""Messages between our programs. All of them are imported from here.

    client  ->  master     CreateExperiment, changes (changes.py)   answers: *View
    agent   ->  master     RegisterAgent, AgentReport               answers: Offsets
    master  ->  agent      AgentCommand: StartGang, SignalGang, ExtendGang, KillGang, ...
    master  ->  bridge     BridgeOrder: StartHost, EndHost, ...     answers: BridgeReport
    agent   ->  rank       RankSpec: a GangSpec and a RankPlace (through the zygote, or a file)
    agent   ->  zygote     ForkGang                                 answers: ZygoteReport

Times are UTC seconds since the epoch. `PROTOCOL` is raised when a peer of the former version could
not read a message, or would do something else.
"""

from det_jupyter.contract.messages.alerts import (
    AlertDelivery,
    AlertDestination,
    AlertNews,
    AlertsView,
    AlertTested,
    TryAlerts,
)
from det_jupyter.contract.messages.change_request import ChangeRequest
from det_jupyter.contract.messages.changes import (
    LIFE,
    Activate,
    AnyChange,
    Archive,
    Cancel,
    ChangeDetails,
    ChangeQueue,
    ChangeResources,
    ChangeSearch,
    ChangeTrial,
    Delete,
    DropCheckpoints,
    ImportedCheckpoint,
    ImportedTrial,
    ImportExperiment,
    Kill,
    KillTrial,
    MoveCheckpoints,
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
from det_jupyter.contract.messages.checks import (
    AgentCheck,
    CheckAgents,
    CheckConnections,
    ClusterCheck,
    ConnectionsChecked,
    PeerMeasured,
)
from det_jupyter.contract.messages.clusters import (
    AddCluster,
    AskForNodes,
    BridgeOrder,
    BridgeReport,
    ClusterNode,
    ClusterStatus,
    EndBridge,
    EndHost,
    RemovedCluster,
    StartHost,
)
from det_jupyter.contract.messages.curves import BATCHES, Curve, CurveKey, Curves, steps_per_epoch
from det_jupyter.contract.messages.device_faults import DeviceFault
from det_jupyter.contract.messages.disks import (
    CollectedGarbage,
    CollectGarbage,
    DiskReading,
    DiskStatus,
    DiskUsage,
    DiskUse,
    FreedRoom,
    Garbage,
    RoomForecast,
    RoomWait,
)
from det_jupyter.contract.messages.gang_links import Cut, GangLink
from det_jupyter.contract.messages.gang_specs import (
    CheckpointRef,
    ForkGang,
    ForkRefused,
    GangForked,
    GangNetwork,
    GangPlan,
    GangSpec,
    RankExited,
    RankPlace,
    RankSpec,
    ZygoteFailed,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.contract.messages.gangs import (
    AddAgent,
    AgentCommand,
    AgentCredentials,
    ClockReading,
    CloseRun,
    ExtendGang,
    KillGang,
    Leave,
    Offsets,
    OtherVersion,
    PassOrders,
    RegisterAgent,
    RemoteStart,
    RunCommand,
    RunReport,
    SignalGang,
    StartGang,
    StoredCheckpoint,
    StoredFile,
    StoredFiles,
    TakeSamples,
    WantSlots,
)
from det_jupyter.contract.messages.hangs import HangReport, RankStall, describe_mismatch
from det_jupyter.contract.messages.models import (
    CreateModel,
    DeleteModel,
    DeleteVersion,
    EditModel,
    EditVersion,
    ModelView,
    OfModel,
    RegisterVersion,
    SetAlias,
    StoredModel,
    StoredVersion,
    VersionView,
)
from det_jupyter.contract.messages.queries import (
    LEVELS,
    MAX_LINES,
    MAX_WAIT_S,
    ExperimentQuery,
    ExperimentRow,
    ExperimentRows,
    Level,
    LogLine,
    LogPage,
    LogQuery,
    Series,
    SeriesPage,
    SeriesQuery,
    Sort,
)
from det_jupyter.contract.messages.rank_kernels import OpenTunnel, RankKernel
from det_jupyter.contract.messages.rank_orders import (
    Change,
    ChangeOrder,
    Order,
    Profile,
    ProfileOrder,
    ProfileView,
    SizeChange,
    TraceView,
    TrialChangeView,
)
from det_jupyter.contract.messages.recoveries import RecoveryView
from det_jupyter.contract.messages.reports import (
    AgentReport,
    AgentReports,
    Chunk,
    CrashOutput,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangStarted,
    Loss,
    MemoryHolder,
    MemoryShortage,
    RankProcess,
    RanksSeen,
    RoomReported,
    SystemSample,
    SystemSampled,
    Unreadable,
)
from det_jupyter.contract.messages.requests import (
    Capsule,
    CapturedName,
    CodeView,
    ConfigText,
    ContextRef,
    ContinueExperiment,
    ContinueTrial,
    CreateExperiment,
    EffectiveConfig,
    ImportanceView,
    ImportedLine,
    ImportedLines,
    ImportedMetrics,
    NumStored,
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
    TrialEstimate,
)
from det_jupyter.contract.messages.resources import (
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
    RunEntry,
    SlotStatus,
)
from det_jupyter.contract.messages.search_views import (
    BracketView,
    RungView,
    SearchChangeView,
    SearchView,
)
from det_jupyter.contract.messages.status import AllocationState, State
from det_jupyter.contract.messages.trackers import (
    ModelOrder,
    SendTo,
    TrackerOrder,
    TrackerProgress,
    TrackerState,
    TrackerWork,
)
from det_jupyter.contract.messages.unmanaged import (
    UNMANAGED,
    StartUnmanaged,
    UnmanagedStart,
)
from det_jupyter.contract.messages.verdicts import Cause, Verdict
from det_jupyter.contract.messages.views import (
    Alarm,
    AllocationView,
    CheckpointView,
    Divergence,
    ExperimentFields,
    ExperimentView,
    FailureView,
    FeedItem,
    MasterInfo,
    RankView,
    SlotView,
    StoredExperiment,
    StoredTrial,
    Target,
    TimingsView,
    TrialView,
    alarm_of,
)
from det_jupyter.contract.messages.wire import BACKGROUND, PROTOCOL, Wire
