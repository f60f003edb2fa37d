"""The context of the Core API: metrics, checkpoints, preemption and collectives in one object.

opening.py makes it. It is the current one inside of its `with` block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from det_jupyter.core.argument_checks import ContextPart
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.signals import OrdersContext, PreemptContext
from det_jupyter.core.train import TrainContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parts of the Core API. Within its `with` block it is the current context.

    Args:
        sink: Stores the records of all parts.
        orders: Changes and profiles that a user requests; None outside of experiments.
        note_batch: Called before each batch with its number; writes it to the control page.
        note_exchange: Called with the batch's number before its gradients are exchanged; writes it
            to the control page too.
        info: The trial that this process is a rank of; None in a plain script or notebook.
        on_left: Called with the error, or None, when the last `with` block is left.
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
    note_exchange: Callable[[int], object] = bool
    info: TrialInfo | None = None
    on_left: Callable[[BaseException | None], object] = bool
    is_over: Callable[[], bool] = bool
    # The current contexts before each of its open `with` blocks.
    _outer: list[Context | None] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def is_entered(self) -> bool:
        """Whether a `with` block of this context is open."""
        return bool(self._outer)

    def __enter__(self) -> Self:
        if self.is_over():
            raise RuntimeError(
                "core.init: the run of this context is over, as its block has ended; call "
                "`core.init` again, which begins the next run under its name"
            )
        self._outer.append(current())
        set_current(self)
        self._set_open(True)
        self.preempt.awaits_block = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.profiler.flush()
        finally:  # if the disk is full, the block is left all the same
            # In an experiment this context was the current one before the block, and is it again.
            set_current(self._outer.pop())
            self._set_open(self.is_entered)
            if not self._outer and kind is None:
                self.warn_of_an_early_end()
            if not self._outer:
                self.on_left(error)

    def warn_of_an_early_end(self) -> None:
        """Warn if the script ends within an operation, or is preempted without a checkpoint.

        Also warn if the trial has trained to its end without reporting the searcher metric.
        """
        self.searcher.warn_if_left()
        if not self.preempt.is_acknowledged:
            self.train.warn_of_missing_metric()
        is_new = self.info is not None and self.info.latest_checkpoint is None
        is_leaving = self.preempt.is_acknowledged and self.distributed.is_chief
        if is_new and is_leaving and not self.checkpoint.has_begun:
            logger.warning(
                "preempt: the trial leaves without a checkpoint, so it would begin anew; call "
                "checkpoint.store_path or checkpoint.upload when should_preempt() is true"
            )

    def _set_open(self, is_open: bool) -> None:
        part: ContextPart
        for part in (self.train, self.checkpoint, self.preempt, self.searcher):
            part.is_open = is_open


_current: Context | None = None


def current() -> Context | None:
    """Return the current context of this process; None if there is none."""
    return _current


def set_current(context: Context | None) -> None:
    """Set the context of this process."""
    global _current
    _current = context
