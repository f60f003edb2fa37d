"""The Core API: metrics, checkpoints, preemption and collectives for any training code."""

from det_jupyter.core.checkpoint import CheckpointContext, read_metadata
from det_jupyter.core.context import Context, current, get_cluster_info, init, set_current
from det_jupyter.core.distributed import (
    CONTROL_TIMEOUT,
    DistributedContext,
    local_chief_first,
)
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.orders import OrdersContext
from det_jupyter.core.preempt import PreemptContext
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.train import RecordList, RecordSink, TrainContext

__all__ = [
    "CONTROL_TIMEOUT",
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "OrdersContext",
    "PreemptContext",
    "ProfilerContext",
    "RecordList",
    "RecordSink",
    "SearcherContext",
    "TrainContext",
    "TrialInfo",
    "current",
    "get_cluster_info",
    "init",
    "local_chief_first",
    "read_metadata",
    "set_current",
]
