"""`init`: creates the context of the Core API, or returns the current one of this process.

process                                  init() returns
rank with a class or function            its context
rank with a script                       the context of its run, with the rank of its slot
worker that a script or launcher         the context of its run, with the rank of `distributed`
  of an experiment has started
plain script or notebook                 a new context, of a single process or of `distributed`
the same, with a name                    that of a run which it begins (unmanaged.py)
"""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from det_jupyter.config import Length
from det_jupyter.contract.host.paths import data_dir
from det_jupyter.contract.messages import GangPlan
from det_jupyter.core import managed
from det_jupyter.core.argument_checks import find_choice_problem
from det_jupyter.core.checkpoint import CheckpointContext
from det_jupyter.core.context import Context, current, set_current
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.evidence import give_evidence
from det_jupyter.core.failures import report_uncaught
from det_jupyter.core.info import TrialInfo
from det_jupyter.core.journal import Journal, RecordList, RecordSink
from det_jupyter.core.profiler import ProfilerContext
from det_jupyter.core.searcher import SearcherContext
from det_jupyter.core.signals import PreemptContext, PreemptMode
from det_jupyter.core.train import TensorboardMode, TrainContext
from det_jupyter.core.unmanaged import ByHand, open_unmanaged
from det_jupyter.errors import ConfigError
from det_jupyter.storage import open_storage

# Launchers set these for each process that they start.
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "HOROVOD_SIZE")

_TORCHRUN = "TORCHELASTIC_RUN_ID"  # torchrun sets it, with the ranks
BY_TORCHRUN = "distributed=core.DistributedContext.from_torch_distributed()"

logger = logging.getLogger(__name__)


def init(
    *,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Path | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
    sink: RecordSink | None = None,
    length: Length | int | None = None,
    name: str | None = None,
    hparams: Mapping[str, Any] | None = None,
    metric: str = "loss",
    smaller_is_better: bool = True,
    labels: Sequence[str] = (),
    resume: bool = True,
    offline: bool = False,
) -> Context:
    """Return the context of this process. Use it in a `with` block.

    In an experiment it reports to the experiment; a second call returns the same context. Outside
    of experiments the same script runs too, and its arguments are checked in the same way. There,
    with a `name`, it makes an unmanaged experiment: nothing is scheduled, and what the block
    reports, saves and prints is stored.

    Args:
        distributed: The ranks, if a launcher has started several. By default those of the gang in
            a rank of an experiment, or those of torchrun if `name` is given, else this process
            alone.
        checkpoint_storage: Folder for checkpoints; by default det_jupyter's. Not allowed in an
            experiment.
        preempt_mode: Which ranks may call `preempt.should_preempt`.
        tensorboard_mode: Whether `train.upload_tensorboard_files` may be called.
        sink: Stores the records; by default they are kept in `context.sink.records`. Not allowed
            in an experiment.
        length: How far the operations of `context.searcher` train, 1 batch by default; a number
            is a number of batches. In an experiment the search decides it.
        name: Name of an unmanaged experiment; this and what follows has no effect in an
            experiment. All ranks must call `init` in step.
        hparams: Its hyperparameters, to be shown and compared.
        metric: The validation metric by which it is compared.
        smaller_is_better: Whether smaller values of it are better.
        labels: Its labels, besides `unmanaged`.
        resume: Whether the newest unmanaged experiment of this name goes on, from its latest
            checkpoint, `context.info.latest_checkpoint`; else another one begins.
        offline: Only write files, which `det e sync` takes in later, as without a master. The
            same as DET_JUPYTER_OFFLINE=1.

    Raises:
        Conflict: An unmanaged experiment of this name is running.
        ConfigError: An argument is wrong, or the experiment's configuration decides it.
    """
    _check_arguments(distributed, preempt_mode, tensorboard_mode, length)
    given = {"checkpoint_storage": checkpoint_storage, "sink": sink}
    by_hand = ByHand(
        name, hparams, metric, smaller_is_better, labels, resume, offline, checkpoint_storage
    )
    if name is not None:
        if sink is not None:
            raise ConfigError("core.init: got name and sink, expected one of them")
        given = {}  # the same script may be submitted, where the configuration counts
    context = current()
    if context is not None and context.is_entered:
        is_same = context.info is not None
        found = "the same context" if is_same else "another context, whose reports are apart"
        logger.warning("core.init: called inside of the block of another; it returns %s", found)
    is_in_run = context is not None and context.info is not None
    if name is not None and not is_in_run and managed.find_info() is None:
        if not isinstance(length, Length):
            length = Length("batches", length or 1)
        if distributed is None and _TORCHRUN in os.environ and many_processes():
            distributed = DistributedContext.from_torch_distributed()
        _warn_of_others(distributed)
        context = open_unmanaged(by_hand, distributed or DistributedContext(), length)
        context.preempt.awaits_block = True
    elif context is not None and context.info is not None:
        _refuse_arguments(given)
        _check_same_rank(distributed, context.distributed)
    elif (info := managed.find_info()) is not None:
        _refuse_arguments(given)
        context = _context_of_run(info, distributed)
        context.preempt.awaits_block = True
        set_current(context)
    else:
        if not isinstance(length, Length):
            length = Length("batches", length or 1)  # the script decides how long it trains
        _warn_of_others(distributed)
        context = _local_context(distributed or DistributedContext(), given, length)
        context.preempt.awaits_block = True
    context.preempt.mode = preempt_mode
    context.train.tensorboard_mode = tensorboard_mode
    return context


def end_script() -> None:
    """Write the buffered records of a script's context. Called when the script ends."""
    context = current()
    if context is None or context.info is None:
        return
    context.profiler.flush()
    if context.train.is_open:
        logger.warning(
            "core.init: the script has ended without closing its context; use it as "
            "`with core.init(...) as context:`"
        )


def get_cluster_info() -> TrialInfo | None:
    """Return the trial that this process works for; None outside of experiments."""
    context = current()
    if context is not None and context.info is not None:
        return context.info
    return managed.find_info()


def many_processes() -> str:
    """Return "VARIABLE is N" if a launcher has started N > 1 processes like this one; else ""."""
    found = (f"{name} is {os.environ[name]}" for name in _SIZES if name in os.environ)
    return next((each for each in found if not each.endswith((" is ", " is 1"))), "")


def _warn_of_others(distributed: DistributedContext | None) -> None:
    if distributed is None and (variable := many_processes()):
        logger.warning(
            "core.init: got no distributed, but %s: each process works by itself, as the chief; "
            "if they train together, pass %s",
            variable,
            BY_TORCHRUN,
        )


def _local_context(
    distributed: DistributedContext, given: dict[str, Any], length: Length
) -> Context:
    sink = given["sink"] or RecordList()
    folder = given["checkpoint_storage"]
    storage = open_storage(str(folder) if folder else None, data_dir())
    storage.check_writable()
    train = TrainContext(sink, distributed)
    return Context(
        distributed=distributed,
        train=train,
        checkpoint=CheckpointContext(storage, sink, distributed, {}),
        preempt=PreemptContext(None, distributed),
        searcher=SearcherContext(
            length, is_last=True, page=None, distributed=distributed, sink=sink, train=train
        ),
        sink=sink,
        profiler=ProfilerContext(sink, train.get_steps),
    )


def _context_of_run(info: TrialInfo, distributed: DistributedContext | None) -> Context:
    atexit.register(end_script)
    process = managed.get_process()
    if distributed is None:
        joined = process.join() if process is not None and process.join is not None else None
        distributed = joined or _single_process(info.plan)
    rank = distributed.rank
    give_evidence(info.folder, rank)
    # The master takes the journals of the gang's ranks; a script may have started more processes.
    of_rank = min(rank, len(info.plan.slots) - 1)
    if process is not None and info.rank == rank:
        managed.time_loop(info, rank, distributed.size, process.journal)
        return managed.managed_context(info, distributed, process.journal, process.on_steps)
    info = info.at(rank, distributed.local_rank)
    journal = Journal.of_run(info.folder, of_rank)
    if distributed.size == 1:
        _lock_journal(journal)
    if of_rank == rank:
        managed.time_loop(info, rank, distributed.size, journal)
    context, counter = managed.counted_context(info, distributed, journal)
    if rank == 0:
        managed.read_written_events(info, journal, counter.note)
    if process is None:
        report_uncaught(info, rank, journal, counter)
    return context


def _single_process(plan: GangPlan) -> DistributedContext:
    """Return the context of the only process of a run with this plan.

    Raises:
        ConfigError: The run has several processes.
    """
    num_slots = len(plan.slots)
    if num_slots == 1:
        return DistributedContext()
    num_processes = len(plan.process_ranks())
    found = many_processes()
    if not found and num_processes == 1:
        return DistributedContext()
    found = found or f"its run has {num_processes} processes"
    raise ConfigError(
        f"core.init: got no distributed, but this process is one of several that train on the "
        f"{num_slots} slots of this trial ({found}); pass {BY_TORCHRUN}, or a "
        "DistributedContext with the ranks and sizes"
    )


def _lock_journal(journal: Journal) -> None:
    """Lock the journal.

    Raises:
        ConfigError: Another running process has locked it.
    """
    try:
        fcntl.flock(journal.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            "core.init: got no distributed of several ranks, but another process of this run "
            "works by itself already, and both would be the chief; pass "
            "distributed=core.DistributedContext(...) with the ranks and sizes"
        ) from None
    except OSError as error:
        logger.debug("journals cannot be locked here: %s", error)


def _check_arguments(
    distributed: object, preempt_mode: object, tensorboard_mode: object, length: object
) -> None:
    problems = []
    if distributed is not None and not isinstance(distributed, DistributedContext):
        problems.append(
            f"core.init: distributed: got {type(distributed).__name__}, expected a "
            "DistributedContext"
        )
    kinds = (
        ("preempt_mode", preempt_mode, PreemptMode),
        ("tensorboard_mode", tensorboard_mode, TensorboardMode),
    )
    for name, mode, kind in kinds:
        if problem := find_choice_problem(mode, kind):
            problems.append(f"core.init: {name}: {problem}")
    is_whole = isinstance(length, int) and not isinstance(length, bool) and length >= 1
    if length is not None and not is_whole and not isinstance(length, Length):
        problems.append(
            f"core.init: length: got {length!r:.60}, expected a number of batches, at least 1, or "
            "a Length"
        )
    if problems:
        raise ConfigError(problems)


def _check_same_rank(distributed: DistributedContext | None, own: DistributedContext) -> None:
    """Check that a given `distributed` has the rank and size of the one in use."""
    if distributed is not None and (distributed.rank, distributed.size) != (own.rank, own.size):
        raise ConfigError(
            f"core.init: got distributed of rank {distributed.rank} of {distributed.size}, "
            f"but this is rank {own.rank} of {own.size} of an experiment; leave it out"
        )


def _refuse_arguments(given: dict[str, Any]) -> None:
    """Raise a ConfigError if one of these arguments is given."""
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ConfigError(
            f"core.init: got {', '.join(names)}, but this is a rank of an experiment, whose "
            "configuration decides that; call core.init() without arguments there"
        )
