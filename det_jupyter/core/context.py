"""The Core API's context: what a training script needs of the platform, in one object.

A rank of an experiment has one before the user's code runs: `init()` returns it there. Elsewhere
`init()` makes one, which is the current one inside of its `with` block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from det_jupyter.config import Length
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.preempt import PreemptContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.train import RecordList, RecordSink, TrainContext
from det_jupyter.errors import ConfigError
from det_jupyter.storage import LocalStorage, default_root
from det_jupyter.system.paths import data_dir

_ANY_LENGTH = Length("batches", 1)  # off the cluster the script itself says how long


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the Core API. In a `with` block it is the current one; leaving ends nothing.

    Args:
        distributed: This rank's place, and collectives.
        train: Reports of metrics and progress.
        checkpoint: Saving and restoring state.
        preempt: Being asked to leave.
        searcher: How far to train.
        sink: Where the records of all of them go.
        note_batch: Told how many batches this rank has begun, before each: a write to memory.
        info: The trial that this process is a rank of; None in a plain script or notebook.
    """

    distributed: DistributedContext
    train: TrainContext
    checkpoint: CheckpointContext
    preempt: PreemptContext
    searcher: SearcherContext
    sink: RecordSink
    note_batch: Callable[[int], object] = bool
    info: TrialInfo | None = None
    # The contexts around its `with` blocks.
    _outer: list[Context | None] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __enter__(self) -> Self:
        self._outer.append(current())
        set_current(self)
        return self

    def __exit__(self, *error: object) -> None:
        set_current(self._outer.pop())


_current: Context | None = None


def current() -> Context | None:
    """Return the context of this process: a rank's own, or that of the innermost `with` block."""
    return _current


def set_current(context: Context | None) -> None:
    """Make this the context that `init()` and everything else in this process finds."""
    global _current
    _current = context


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | None = None,
    sink: RecordSink | None = None,
    length: Length | None = None,
) -> Context:
    """Return the context: a rank's own; in a plain script or notebook, a new one.

    In the latter nobody schedules the work, or asks it to leave. Use it as a `with` block.

    Args:
        distributed: The ranks, if a launcher started several; by default there is one. A rank
            may give it as well, and goes on with its gang's own groups.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's own.
        sink: Gets the records; by default they are kept in `context.sink.records`.
        length: How far `context.searcher` asks to train.

    Raises:
        ConfigError: Arguments were given in a rank, where the experiment's configuration decides;
            only `distributed` may be, if it describes the same place.
    """
    given = {
        "distributed": distributed,
        "checkpoint_storage": checkpoint_storage,
        "sink": sink,
        "length": length,
    }
    rank_context = current()
    if rank_context is not None and rank_context.info is not None:
        _check_arguments(given, rank_context.distributed)
        return rank_context
    distributed = distributed or DistributedContext()
    sink = sink or RecordList()
    root = default_root(str(checkpoint_storage) if checkpoint_storage else None, data_dir())
    storage = LocalStorage(root)
    storage.check_writable()
    return Context(
        distributed=distributed,
        train=TrainContext(sink, distributed),
        checkpoint=CheckpointContext(storage, sink, distributed, {}),
        preempt=PreemptContext(None, distributed),
        searcher=SearcherContext(
            length or _ANY_LENGTH, is_last=True, page=None, distributed=distributed, sink=sink
        ),
        sink=sink,
    )


def get_cluster_info() -> TrialInfo | None:
    """Return what this process knows of its trial; None if it is no rank of an experiment."""
    context = current()
    return context.info if context is not None else None


def _check_arguments(given: dict[str, Any], own: DistributedContext) -> None:
    """Refuse what decides otherwise than the gang. Its own groups are used in any case."""
    distributed = given.pop("distributed")
    if distributed is not None and (distributed.rank, distributed.size) != (own.rank, own.size):
        raise ConfigError(
            [
                f"core.init: got distributed of rank {distributed.rank} of {distributed.size}, "
                f"but this is rank {own.rank} of {own.size} of an experiment; leave it out"
            ]
        )
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ConfigError(
            [
                f"core.init: got {', '.join(names)}, but this is a rank of an experiment, whose "
                "configuration decides that; call core.init() without arguments there"
            ]
        )
