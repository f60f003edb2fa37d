"""The Core API's context: what a training script needs of the platform, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from det_jupyter.config import Length
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.preempt import PreemptContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.train import RecordList, RecordSink, TrainContext
from det_jupyter.paths import data_dir
from det_jupyter.storage import LocalStorage, default_root

_ANY_LENGTH = Length("batches", 1)  # off the cluster the script itself says how long


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the Core API.

    Args:
        distributed: This rank's place, and collectives.
        train: Reports of metrics and progress.
        checkpoint: Saving and restoring state.
        preempt: Being asked to leave.
        searcher: How far to train.
        sink: Where the records of all of them go.
    """

    distributed: DistributedContext
    train: TrainContext
    checkpoint: CheckpointContext
    preempt: PreemptContext
    searcher: SearcherContext
    sink: RecordSink


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | None = None,
    sink: RecordSink | None = None,
    length: Length = _ANY_LENGTH,
) -> Context:
    """Return a context for a plain script or notebook: nobody schedules it, or asks it to leave.

    Args:
        distributed: The ranks, if a launcher started several; by default there is one.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's own.
        sink: Gets the records; by default they are kept in `context.sink.records`.
        length: How far `context.searcher` asks to train.
    """
    distributed = distributed or DistributedContext()
    sink = sink or RecordList()
    root = default_root(str(checkpoint_storage) if checkpoint_storage else None, data_dir())
    return Context(
        distributed=distributed,
        train=TrainContext(sink, distributed),
        checkpoint=CheckpointContext(LocalStorage(root), sink, distributed, {}),
        preempt=PreemptContext(None, distributed),
        searcher=SearcherContext(
            length, is_last=True, page=None, distributed=distributed, sink=sink
        ),
        sink=sink,
    )
