"""The context of the Core API: metrics, checkpoints, preemption and collectives in one object.

In a rank of an experiment `init()` returns the rank's context. Elsewhere it makes one, which is
the current one inside of its `with` block.
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
from det_jupyter.core.orders import OrdersContext
from det_jupyter.core.preempt import PreemptContext
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.train import RecordList, RecordSink, TrainContext
from det_jupyter.errors import ConfigError
from det_jupyter.storage import LocalStorage, default_root
from det_jupyter.system.paths import data_dir

_ANY_LENGTH = Length("batches", 1)  # outside of experiments the script decides how long it trains


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the Core API. In a `with` block it is the current context.

    Args:
        distributed: This rank's place, and collectives.
        train: Reports of metrics and progress.
        checkpoint: Saving and restoring state.
        preempt: The request to leave.
        searcher: The length to train.
        sink: Gets the records of all parts.
        profiler: Sections and counters of the user's own.
        orders: Changes and profiles that a user asks for; None outside of experiments.
        note_batch: Called before each batch with the number begun; writes to memory.
        info: The trial that this process is a rank of; None in a plain script or notebook.
    """

    distributed: DistributedContext
    train: TrainContext
    checkpoint: CheckpointContext
    preempt: PreemptContext
    searcher: SearcherContext
    sink: RecordSink
    profiler: ProfilerContext = field(default_factory=ProfilerContext)
    orders: OrdersContext | None = None
    note_batch: Callable[[int], object] = bool
    info: TrialInfo | None = None
    # The contexts that its `with` blocks replaced.
    _outer: list[Context | None] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def __enter__(self) -> Self:
        self._outer.append(current())
        set_current(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.profiler.flush()
        set_current(self._outer.pop())


_current: Context | None = None


def current() -> Context | None:
    """Return the context of this process: of the rank, or of the innermost `with` block."""
    return _current


def set_current(context: Context | None) -> None:
    """Set the context of this process."""
    global _current
    _current = context


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | None = None,
    sink: RecordSink | None = None,
    length: Length | None = None,
) -> Context:
    """Return the rank's context; in a plain script or notebook, a new one.

    Outside of experiments nothing schedules the work. Use the context in a `with` block.

    Args:
        distributed: The ranks, if a launcher started several; by default there is one. In a rank
            it is accepted and ignored if it describes the same place.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's.
        sink: Gets the records; by default they are kept in `context.sink.records`.
        length: The length of `context.searcher`.

    Raises:
        ConfigError: Arguments in a rank, where the configuration decides; see `distributed`.
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
    train = TrainContext(sink, distributed)
    return Context(
        distributed=distributed,
        train=train,
        checkpoint=CheckpointContext(storage, sink, distributed, {}),
        preempt=PreemptContext(None, distributed),
        searcher=SearcherContext(
            length or _ANY_LENGTH, is_last=True, page=None, distributed=distributed, sink=sink
        ),
        sink=sink,
        profiler=ProfilerContext(sink, train.get_steps),
    )


def get_cluster_info() -> TrialInfo | None:
    """Return the trial of this process; None if it is no rank of an experiment."""
    context = current()
    return context.info if context is not None else None


def _check_arguments(given: dict[str, Any], own: DistributedContext) -> None:
    """Refuse arguments in a rank; the rank uses the gang's groups in any case."""
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
