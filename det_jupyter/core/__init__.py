"""The Core API: metrics, checkpoints, preemption and collectives for any training code."""

from det_jupyter.core.checkpoint import CheckpointContext, read_metadata
from det_jupyter.core.context import Context, init
from det_jupyter.core.distributed import CONTROL_TIMEOUT, DistributedContext
from det_jupyter.core.preempt import PreemptContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.train import RecordList, RecordSink, TrainContext

__all__ = [
    "CONTROL_TIMEOUT",
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "PreemptContext",
    "RecordList",
    "RecordSink",
    "SearcherContext",
    "TrainContext",
    "init",
    "read_metadata",
]
