"""The Core API: metrics, checkpoints, preemption and collectives for any training code."""

from det_jupyter.core.checkpoint import CheckpointContext, read_metadata
from det_jupyter.core.context import Context, current, set_current
from det_jupyter.core.distributed import (
    CONTROL_TIMEOUT,
    DistributedContext,
    local_chief_first,
)
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.managed import Process, Run, managed_context, set_process
from det_jupyter.core.opening import get_cluster_info, init
from det_jupyter.core.orders import OrdersContext
from det_jupyter.core.preempt import PreemptContext, PreemptMode
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.steps import StepCounter
from det_jupyter.core.train import RecordList, RecordSink, TrainContext

__all__ = [
    "CONTROL_TIMEOUT",
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "OrdersContext",
    "PreemptContext",
    "PreemptMode",
    "Process",
    "ProfilerContext",
    "RecordList",
    "RecordSink",
    "Run",
    "SearcherContext",
    "StepCounter",
    "TrainContext",
    "TrialInfo",
    "current",
    "get_cluster_info",
    "init",
    "local_chief_first",
    "managed_context",
    "read_metadata",
    "set_current",
    "set_process",
]
