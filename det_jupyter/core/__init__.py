"""The Core API: metrics, checkpoints, preemption and collectives for any training code."""

from det_jupyter.core.checkpoint import CheckpointContext, DownloadMode
from det_jupyter.core.context import Context, current, set_current
from det_jupyter.core.distributed import CONTROL_TIMEOUT, DistributedContext
from det_jupyter.core.event_reading import end_reading
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import RecordList, RecordSink
from det_jupyter.core.managed import (
    Process,
    StepCounter,
    counted_context,
    get_process,
    managed_context,
    read_written_events,
    set_process,
    time_loop,
)
from det_jupyter.core.opening import end_script, get_cluster_info, init
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext, SearcherMode, SearcherOperation, Unit
from det_jupyter.core.signals import OrdersContext, PreemptContext, PreemptMode
from det_jupyter.core.together import local_chief_first
from det_jupyter.core.train import EarlyExitReason, TensorboardMode, TrainContext
from det_jupyter.storage import read_metadata

# Determined's names. Here a context is the same outside of experiments, and info is one object.
ClusterInfo = TrialInfo
DummyCheckpointContext = CheckpointContext
DummyDistributedContext = DistributedContext
DummyPreemptContext = PreemptContext
DummyProfilerContext = ProfilerContext
DummySearcherContext = SearcherContext
DummyTrainContext = TrainContext

__all__ = [
    "CONTROL_TIMEOUT",
    "CheckpointContext",
    "ClusterInfo",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "DummyCheckpointContext",
    "DummyDistributedContext",
    "DummyPreemptContext",
    "DummyProfilerContext",
    "DummySearcherContext",
    "DummyTrainContext",
    "EarlyExitReason",
    "OrdersContext",
    "PreemptContext",
    "PreemptMode",
    "Process",
    "ProfilerContext",
    "RecordList",
    "RecordSink",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "StepCounter",
    "TensorboardMode",
    "TrainContext",
    "TrialInfo",
    "Unit",
    "counted_context",
    "current",
    "end_reading",
    "end_script",
    "get_cluster_info",
    "get_process",
    "init",
    "local_chief_first",
    "managed_context",
    "read_metadata",
    "read_written_events",
    "set_current",
    "set_process",
    "time_loop",
]
