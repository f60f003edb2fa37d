"""Makes the context of the Core API, or finds that of this process.

process                                  init() returns
rank with a class or function            its context
rank with a script                       the context of its run, with its place in the gang
worker that a script or launcher         the context of its run; `distributed` says its place
  of an experiment has started
plain script or notebook                 a new context, by itself or with `distributed`
"""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import Any

from det_jupyter.config import Length
from det_jupyter.core import managed
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.context import Context, current, set_current
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import Journal
from det_jupyter.core.preempt import PreemptContext, PreemptMode
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.steps import StepCounter
from det_jupyter.core.train import RecordList, RecordSink, TrainContext
from det_jupyter.core.uncaught import report_uncaught
from det_jupyter.errors import ConfigError
from det_jupyter.storage import LocalStorage, default_root
from det_jupyter.system.paths import data_dir

_ANY_LENGTH = Length("batches", 1)  # outside of experiments the script decides how long it trains
# Launchers set these for each process that they start.
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE")

logger = logging.getLogger(__name__)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    sink: RecordSink | None = None,
    length: Length | None = None,
) -> Context:
    """Return the context of this process. Use it in a `with` block.

    In an experiment it reports to the experiment; a second call returns the same context. Outside,
    the same script runs by itself, and its arguments are checked alike.

    Args:
        distributed: The ranks, if a launcher has started several; by default there is one, or in
            a rank those of its gang.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's. Not in an experiment.
        preempt_mode: Which ranks may ask whether to leave.
        sink: Gets the records; by default they are kept in `context.sink.records`. Not in an
            experiment.
        length: The length of `context.searcher`. Not in an experiment.

    Raises:
        ConfigError: Arguments that the experiment's configuration decides, or that do not fit.
    """
    _check(distributed, preempt_mode)
    given = {"checkpoint_storage": checkpoint_storage, "sink": sink, "length": length}
    rank_context = current()
    if rank_context is not None and rank_context.info is not None:
        _refuse(given)
        _check_place(distributed, rank_context.distributed)
        rank_context.preempt.mode = preempt_mode
        return rank_context
    run = managed.find_run()
    if run is not None:
        _refuse(given)
        context = _managed(run, distributed)
        context.preempt.mode = preempt_mode
        set_current(context)
        return context
    return _local(distributed or DistributedContext(), given, preempt_mode)


def get_cluster_info() -> TrialInfo | None:
    """Return the trial that this process works for; None outside of experiments."""
    context = current()
    if context is not None and context.info is not None:
        return context.info
    process = managed.get_process()
    if process is not None:
        return process.run.info(process.rank, process.device)
    run = managed.find_run()
    return run.info() if run is not None else None


def _local(
    distributed: DistributedContext, given: dict[str, Any], preempt_mode: PreemptMode
) -> Context:
    sink = given["sink"] or RecordList()
    folder = given["checkpoint_storage"]
    storage = LocalStorage(default_root(str(folder) if folder else None, data_dir()))
    storage.check_writable()
    train = TrainContext(sink, distributed)
    return Context(
        distributed=distributed,
        train=train,
        checkpoint=CheckpointContext(storage, sink, distributed, {}),
        preempt=PreemptContext(None, distributed, preempt_mode),
        searcher=SearcherContext(
            given["length"] or _ANY_LENGTH,
            is_last=True,
            page=None,
            distributed=distributed,
            sink=sink,
        ),
        sink=sink,
        profiler=ProfilerContext(sink, train.get_steps),
    )


def _managed(run: managed.Run, distributed: DistributedContext | None) -> Context:
    """Return the context of a script in an experiment."""
    process = managed.get_process()
    if distributed is None:
        joined = process.join() if process is not None and process.join is not None else None
        distributed = joined or _alone(run)
    if process is not None and process.rank == distributed.rank:
        return managed.managed_context(
            run, distributed, process.device, process.journal, process.on_steps
        )
    rank = distributed.rank
    # The master takes the journals of the gang's ranks; a script may have started more processes.
    journal = Journal(run.folder.journal(min(rank, len(run.plan.slots) - 1)))
    if distributed.size == 1:
        _claim(journal)
    device = run.device(rank, distributed.local_rank)
    checkpoint = run.plan.checkpoint
    context = managed.managed_context(
        run, distributed, device, journal, lambda steps: counter.note(steps)
    )
    counter = StepCounter(
        checkpoint.steps_completed if checkpoint else 0,
        journal if distributed.is_chief else None,
        lambda: None,
        context.note_batch,
    )
    if process is None:
        report_uncaught(run, rank, journal, counter)
    return context


def _alone(run: managed.Run) -> DistributedContext:
    """Return the place of a process by itself.

    Raises:
        ConfigError: It is one of several.
    """
    num_slots = len(run.plan.slots)
    if num_slots == 1:
        return DistributedContext()
    sizes = [name for name in _SIZES if os.environ.get(name, "1") not in ("", "1")]
    num_processes = len(run.plan.process_ranks())
    if not sizes and num_processes == 1:
        return DistributedContext()
    found = (
        f"{sizes[0]} is {os.environ[sizes[0]]}"
        if sizes
        else f"its run has {num_processes} processes"
    )
    raise ConfigError([_pass_it(num_slots, found)])


def _pass_it(num_slots: int, found: str) -> str:
    return (
        f"core.init: got no distributed, but this process is one of several that train on the "
        f"{num_slots} slots of this trial ({found}); pass "
        "distributed=core.DistributedContext.from_torch_distributed(), or a DistributedContext "
        "with the ranks and sizes"
    )


def _claim(journal: Journal) -> None:
    """Make sure that no other process that lives has this journal as its own.

    Raises:
        ConfigError: One has: both would be the chief.
    """
    try:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            [
                "core.init: got no distributed of several ranks, but another process of this run "
                "works by itself already, and both would be the chief; pass "
                "distributed=core.DistributedContext(...) with the ranks and sizes"
            ]
        ) from None
    except OSError as error:
        logger.debug("journals cannot be locked here: %s", error)


def _check(distributed: object, preempt_mode: object) -> None:
    problems = []
    if distributed is not None and not isinstance(distributed, DistributedContext):
        problems.append(
            f"core.init: distributed: got {type(distributed).__name__}, expected a "
            "DistributedContext"
        )
    if not isinstance(preempt_mode, PreemptMode):
        problems.append(
            f"core.init: preempt_mode: got {preempt_mode!r:.60}, expected one of "
            f"{', '.join(f'PreemptMode.{mode.name}' for mode in PreemptMode)}"
        )
    if problems:
        raise ConfigError(problems)


def _check_place(distributed: DistributedContext | None, own: DistributedContext) -> None:
    """Refuse another place than the rank's; it uses the gang's groups in any case."""
    if distributed is not None and (distributed.rank, distributed.size) != (own.rank, own.size):
        raise ConfigError(
            [
                f"core.init: got distributed of rank {distributed.rank} of {distributed.size}, "
                f"but this is rank {own.rank} of {own.size} of an experiment; leave it out"
            ]
        )


def _refuse(given: dict[str, Any]) -> None:
    """Refuse arguments in an experiment."""
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ConfigError(
            [
                f"core.init: got {', '.join(names)}, but this is a rank of an experiment, whose "
                "configuration decides that; call core.init() without arguments there"
            ]
        )
