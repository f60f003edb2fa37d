"""The context of a process that belongs to a run of an experiment, made from the run's folder.

    process                                        finds its run by      writes to
    rank that the agent has started                `set_process`         journal-<rank>
    worker that a script or a launcher started     RUN_VARIABLE etc.     journal-<rank>

A worker has the rank of its `distributed`. It writes the records that a rank would write, and its
uncaught error, since the process that the agent has started only gets the worker's exit code.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import FirstStep
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.context import Context
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.event_reading import read_events, stop_reading
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import Journal, RecordSink
from det_jupyter.core.plain_runs import watch_trainers
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.signals import OrdersContext, PreemptContext
from det_jupyter.core.timings.any_loop import LoopTimings
from det_jupyter.core.timings.arrivals import Arrivals
from det_jupyter.core.timings.torch_hooks import clock_of, watch
from det_jupyter.core.train import BestValidation, TrainContext, tensorboard_folder
from det_jupyter.storage import open_storage_of_ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process that the agent has started to run a script; `core.init()` uses it there.

    Args:
        info: Its run, rank and device.
        journal: Its journal.
        on_steps: Called with the steps completed at each report.
        join: Connects the ranks if the agent has started one per slot; called by `core.init()`
            without `distributed`, at most once. None: this is the only process of the run.
    """

    info: TrialInfo
    journal: Journal
    on_steps: Callable[[int], None]
    join: Callable[[], DistributedContext] | None = None


_process: Process | None = None


def set_process(process: Process | None) -> None:
    """Set the process that `core.init()` uses. Called by a rank before it runs a script."""
    global _process
    _process = process


def get_process() -> Process | None:
    """Return the process that was set; None in workers that a script or launcher started."""
    return _process


def find_info() -> TrialInfo | None:
    """Return the run that this process belongs to; None outside of experiments."""
    return _process.info if _process is not None else TrialInfo.from_environment()


_loop: LoopTimings | None = None


def time_loop(info: TrialInfo, rank: int, size: int, journal: RecordSink) -> None:
    """Time the training loop of this process from now on, if it is not timed yet.

    Does nothing if the configuration turns timings off.

    Args:
        info: The process's run.
        rank: The process's rank.
        size: Number of ranks.
        journal: The rank's journal.
    """
    global _loop
    is_timed = _loop is not None and not _loop.is_over
    if is_timed or info.config.profiling.enabled is False:
        return
    page = info.folder.path / "arrivals"
    shares = 1 < size == len(info.plan.slots) and len(set(info.plan.homes)) == 1
    open_arrivals = partial(Arrivals.of_run, page, rank, size) if shares else lambda: None
    steps = info.plan.steps_completed
    if _loop is not None:
        _loop.begin_run(journal, steps, open_arrivals)
        return
    _loop = LoopTimings(journal, steps, open_clock=clock_of, open_arrivals=open_arrivals)
    watch(_loop)
    os.register_at_fork(after_in_child=_loop.leave)
    atexit.register(_loop.close)


def end_timing() -> None:
    """Write the remaining timings of a run; the process may begin another one."""
    if _loop is not None:
        _loop.end_run()


def read_written_events(
    info: TrialInfo, sink: RecordSink, on_steps: Callable[[int], None]
) -> None:
    """Report as metrics what the chief writes for TensorBoard, until it reports some itself.

    Also write a notice if the user's code calls a trainer without DetCallback.
    """
    watch_trainers(sink, info.plan.capsule.entrypoint)
    read_events_of(info, sink, on_steps)


def read_events_of(info: TrialInfo, sink: RecordSink, on_steps: Callable[[int], None]) -> None:
    """Report as metrics what the chief writes for TensorBoard, until it reports some itself."""
    searcher = info.config.searcher
    length = searcher.max_length
    epochs = length.amount if length is not None and length.unit == "epochs" else 0
    read_events(sink, on_steps, searcher.metric, epochs)


class StepCounter:
    """Keeps the steps completed that a function or script has reported in this run.

    Args:
        first: Steps completed before this run.
        journal: The chief's journal; None on the other ranks.
        on_first_step: Called at the first step of this run.
        note_batch: Called with the number of the batch that follows each report.
    """

    def __init__(
        self,
        first: int,
        journal: RecordSink | None,
        on_first_step: Callable[[], None],
        note_batch: Callable[[int], object],
    ) -> None:
        self._note_batch = note_batch
        self.first = first
        self.steps_completed = first
        self._journal = journal
        self._on_first_step = on_first_step
        self._has_stepped = False

    def note(self, steps_completed: int) -> None:
        """Store the steps completed; at the first step of the run, journal it."""
        self.steps_completed = steps_completed
        self._note_batch(steps_completed + 1)
        if self._has_stepped or steps_completed <= self.first:
            return
        self._has_stepped = True
        if self._journal is not None:
            self._journal.write(FirstStep(at=time.time(), steps_completed=steps_completed))
        self._on_first_step()


def managed_context(
    info: TrialInfo,
    distributed: DistributedContext,
    journal: Journal,
    on_steps: Callable[[int], None],
) -> Context:
    """Return the context of a process of a run.

    Args:
        info: The process's run, with its rank.
        distributed: The ranks of the run.
        journal: Stores the records.
        on_steps: Called with the steps completed at each report.
    """
    plan, config = info.plan, info.config
    own_page = ControlPage(info.folder.control)
    page = own_page if distributed.is_chief else None
    ids: Mapping[str, int] = {"experiment_id": plan.experiment_id, "trial_id": plan.trial_id}
    storage = open_storage_of_ranks(config.checkpoint_storage.location, info.data_dir)
    train = TrainContext(
        journal,
        distributed,
        on_steps=on_steps,
        best=BestValidation(
            config.searcher.metric, config.searcher.smaller_is_better, plan.best_metric
        ),
        tensorboard=tensorboard_folder(info.data_dir, plan.experiment_id, plan.trial_id),
        on_report=stop_reading,
    )
    preempt = PreemptContext(own_page, distributed)
    is_timed = config.profiling.enabled is not False
    profiler = ProfilerContext(journal if is_timed else None, train.get_steps)
    checkpoint = CheckpointContext(
        storage,
        journal,
        distributed,
        ids,
        info.folder.wanted,
        journal.gate,
        info.latest_checkpoint,
        info.hparams,
    )
    if _loop is not None and not _loop.is_over:
        profiler.follow(_loop)
        checkpoint.timed = partial(_loop.timed_block, "checkpoint")
    return Context(
        distributed=distributed,
        train=train,
        checkpoint=checkpoint,
        preempt=preempt,
        searcher=SearcherContext(
            plan.target,
            is_last=plan.target_is_last,
            page=page,
            distributed=distributed,
            sink=journal,
            train=train,
            metric=config.searcher.metric,
            full_length=config.searcher.max_length,
            on_leave=preempt.acknowledge_preemption_signal,
        ),
        sink=journal,
        profiler=profiler,
        orders=OrdersContext(
            plan.orders, page=page, file=info.folder.orders, distributed=distributed
        ),
        note_batch=own_page.batch_writer(distributed.rank),
        note_exchange=own_page.exchange_writer(distributed.rank),
        info=info,
    )


def counted_context(
    info: TrialInfo,
    distributed: DistributedContext,
    journal: Journal,
    on_first_step: Callable[[], None] = lambda: None,
) -> tuple[Context, StepCounter]:
    """Return the context of a process without our training loop, and the counter of its steps."""
    context = managed_context(info, distributed, journal, lambda steps: counter.note(steps))
    counter = StepCounter(
        info.plan.steps_completed,
        journal if distributed.is_chief else None,
        on_first_step,
        context.note_batch,
    )
    return context, counter
