"""Training from a script or a notebook cell: `init` returns the context, `Trainer.fit` trains.

    with pytorch.init(hparams={"global_batch_size": 32}) as context:
        trainer = pytorch.Trainer(MyTrial(context), context)
        trainer.fit(max_length=pytorch.Epoch(3), validation_period=pytorch.Epoch(1))

    where                        ranks                metrics       checkpoints
    notebook, plain script       this process         printed       in a folder of det_jupyter
    script under torchrun        one per process      by rank 0     by rank 0, in the same folder
    in a rank of an experiment   the gang's           the experiment's

Experiments use the same loop, so the same guarantees hold (pauses, exactness).

After Ctrl-C, or a notebook's stop button, the loop finishes its batch and saves, and then
KeyboardInterrupt is raised. A second interrupt raises it at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, get_args

from det_jupyter import core
from det_jupyter.config import Length
from det_jupyter.config.sections import Profiling
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.interrupts import Interrupts
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.contract.trial.origin import Origin, name_of_class
from det_jupyter.core import Context
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.rules import Batch, Epoch, Period, Policy, RunRules, RunStart, TrainUnit
from det_jupyter.pytorch.training.batch_events import Reason
from det_jupyter.pytorch.training.building import check_wrapped
from det_jupyter.pytorch.training.init import is_whole
from det_jupyter.pytorch.training.loop import loop_class
from det_jupyter.pytorch.training.printing import PrintedRecords
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial, check_trial_class, context_class
from det_jupyter.storage import folder_at, reading


class Trainer:
    """Trains a trial. All ranks must create one, and call its methods with the same arguments.

    Args:
        trial: Created with `context`.
        context: The one that `init` yields.

    Raises:
        ConfigError: These are not a trial and its context, or the trial lacks methods.
    """

    def __init__(self, trial: PyTorchTrial, context: PyTorchTrialContext) -> None:
        if not isinstance(trial, PyTorchTrial):
            hint = " (create one: MyTrial(context))" if isinstance(trial, type) else ""
            raise ConfigError(f"Trainer: got {trial!r}, expected a PyTorchTrial{hint}")
        kind = context_class(type(trial))
        if not isinstance(context, kind) or context.core is None:
            given = "pytorch.init()" if kind is PyTorchTrialContext else "pytorch.deepspeed.init()"
            raise ConfigError(f"Trainer: got {context!r}, expected what {given} gives")
        if problems := check_trial_class(type(trial)):
            raise ConfigError([f"Trainer: {problem}" for problem in problems])
        check_wrapped(trial, context)
        context.claim(trial)
        self._trial = trial
        self._context = context
        self._core = context.core
        self._latest: CheckpointRef | None = None  # the last checkpoint of an earlier `fit`

    def fit(
        self,
        checkpoint_period: TrainUnit | None = None,
        validation_period: TrainUnit | None = None,
        max_length: TrainUnit | None = None,
        reporting_period: TrainUnit = Batch(100),  # noqa: B008  # a constant
        checkpoint_policy: Policy = "best",
        latest_checkpoint: str | Path | None = None,
        step_zero_validation: bool = False,
        test_mode: bool = False,
        profiling_enabled: bool | None = None,
    ) -> Reason:
        """Train, and return why the training ended. Collective, with the same arguments.

        Args:
            checkpoint_period, validation_period: The periods. At the end there is always a
                checkpoint and a validation.
            max_length: The length, from the trial's beginning. May be omitted in a rank of an
                experiment: then its configuration or its search determines it.
            reporting_period: The period of training metrics.
            checkpoint_policy: Save a checkpoint after validations that are the best so far, after
                all, or after none.
            latest_checkpoint: Folder or uuid of the checkpoint to continue from. By default a
                second `fit` continues where the first ended, and a rank of an experiment from its
                trial's checkpoint.
            step_zero_validation: Validate before the first batch too.
            test_mode: Run only one batch, one validation batch and one checkpoint.
            profiling_enabled: True: record the parts of each batch; False: record no times at all;
                None: record times by second.

        Returns:
            "completed" at the end; "stopped" if the trial requested its end; else "preempted".

        Raises:
            ConfigError: An argument or the trial is wrong.
            KeyboardInterrupt: The user interrupted; the state is saved, and the message has the
                call that continues.
        """
        periods = {
            "checkpoint_period": checkpoint_period,
            "validation_period": validation_period,
            "reporting_period": reporting_period,
        }
        _check_arguments(max_length, periods, checkpoint_policy, latest_checkpoint)
        context = self._context
        length = Length("batches", 1) if test_mode else self._length(max_length)
        reporting = _period(reporting_period)
        rules = RunRules(length=length, reporting=reporting)
        if context.config is not None:
            rules = RunRules.of(context.config, length)
        rules = replace(
            rules,
            length=length,
            reporting=reporting,
            validation=_period(validation_period),
            checkpoint=_period(checkpoint_period),
            checkpoint_policy=checkpoint_policy,
            metric=rules.metric if context.has_searcher else None,
            needs_metric=False,
            initial_validation=step_zero_validation,
            validation_batches=1 if test_mode else None,
            profiling=Profiling(enabled=profiling_enabled),
            is_script=True,
        )
        ends_at_length = max_length is not None or test_mode
        return self.run(rules, self._start(latest_checkpoint), ends_at_length=ends_at_length)

    def run(
        self,
        rules: RunRules,
        start: RunStart,
        *,
        ends_at_length: bool = True,
        is_kept: bool = True,
    ) -> Reason:
        """Train by these rules. Collective.

        Args:
            ends_at_length: The run ends at the rules' length, not at a search's target.
            is_kept: The checkpoints of the run are not removed after it.
        """
        with leaving_on_interrupt(self._core, is_kept=is_kept) as is_leave_requested:
            loop = loop_class(type(self._trial))(
                self._trial,
                self._context,
                self._aimed_at(rules.length) if ends_at_length else self._core,
                rules,
                start,
                self._origin(start.seed),
                is_leave_requested=is_leave_requested,
            )
            reason = loop.run()
        self._latest = loop.latest_checkpoint or self._latest
        if isinstance(self._core.sink, PrintedRecords):
            self._core.sink.print_timings()
        return reason

    def _length(self, max_length: TrainUnit | None) -> Length:
        if max_length is not None:
            return max_length.to_length()
        if self._core.info is not None:
            return self._core.info.config.searcher.max_length or self._core.searcher.target
        raise ConfigError(
            "fit: max_length: how long to train is missing; "
            "pass pytorch.Batch(n) or pytorch.Epoch(n) with n of at least 1"
        )

    def _aimed_at(self, length: Length) -> core.Context:
        """Return the core context with `length` as the only target, without the search's."""
        searcher = core.SearcherContext(
            length,
            is_last=True,
            page=None,
            distributed=self._core.distributed,
            sink=self._core.sink,
        )
        return replace(self._core, searcher=searcher)

    def _start(self, latest_checkpoint: str | Path | None) -> RunStart:
        info = self._core.info
        checkpoint = self._latest or (info.plan.checkpoint if info else None)
        warm_start = info.plan.warm_start if info and checkpoint is None else None
        is_warm = warm_start is not None and str(latest_checkpoint) == warm_start.uuid
        if latest_checkpoint is not None and not is_warm:
            checkpoint, warm_start = self._find(latest_checkpoint), None
        return RunStart(
            seed=self._context.get_trial_seed(),
            checkpoint=checkpoint,
            warm_start=warm_start,
            best_metric=info.plan.best_metric if info else None,
        )

    def _find(self, checkpoint: str | Path) -> CheckpointRef:
        where = str(checkpoint)
        if (folder := folder_at(where)) is not None:
            where = str(folder)
            if not folder.is_dir() and len(folder.parts) > 1:
                raise ConfigError(f"fit: latest_checkpoint: there is no folder {folder}")
            if not folder.is_dir():  # a uuid, as `fit` prints it
                where = self._core.checkpoint.path_of(str(checkpoint))
        with reading(where) as folder:
            metadata = core.read_metadata(folder)
        return CheckpointRef(
            uuid=metadata["uuid"], path=where, steps_completed=metadata["steps_completed"]
        )

    def _origin(self, seed: int) -> Origin:
        context, info = self._context, self._core.info
        return Origin(
            trial_class=name_of_class(type(self._trial)),
            hparams=context.get_hparams() if context.has_hparams else None,
            config=context.config.to_document() if context.config else None,
            seed=seed,
            experiment_id=info.experiment_id if info else None,
            trial_id=info.trial_id if info else None,
            capsule=info.plan.capsule if info else None,
            blobs=BlobStore.of(info.data_dir) if info else None,
        )


def _check_arguments(
    max_length: Any,
    periods: Mapping[str, Any],
    checkpoint_policy: Any,
    latest_checkpoint: Any,
) -> None:
    """Check the arguments of `fit`.

    Raises:
        ConfigError: Arguments are wrong; the error has all of them.
    """
    problems = []
    if max_length is not None and not (
        isinstance(max_length, (Batch, Epoch)) and is_whole(max_length.value, 1)
    ):
        problems.append(
            f"fit: max_length: got {max_length!r}, expected pytorch.Batch(n) or pytorch.Epoch(n) "
            "with n of at least 1"
        )
    for name, period in periods.items():
        if period is not None and not isinstance(period, (Batch, Epoch)):
            problems.append(
                f"fit: {name}: got {period!r}, expected pytorch.Batch(n), pytorch.Epoch(n), or "
                "one of them with the counts after which it is due"
            )
    if checkpoint_policy not in get_args(Policy):
        known = get_args(Policy)
        near = get_close_matches(str(checkpoint_policy), known, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        problems.append(
            f"fit: checkpoint_policy: got {checkpoint_policy!r}, expected one of "
            f"{', '.join(map(repr, known))}{hint}"
        )
    if latest_checkpoint is not None and not isinstance(latest_checkpoint, (str, Path)):
        problems.append(
            f"fit: latest_checkpoint: got {latest_checkpoint!r}, expected the folder or the uuid "
            "of a checkpoint"
        )
    if problems:
        raise ConfigError(problems)


def _period(unit: TrainUnit | None) -> Period:
    return None if unit is None else unit.to_period()


@contextmanager
def leaving_on_interrupt(core: Context, *, is_kept: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether there was an interrupt, for the loop to call.

    In a rank of an experiment, and outside of the main thread, the handling of interrupts does not
    change. Processes that are forked in the block, such as loader workers, ignore interrupts: this
    process ends them.

    Args:
        core: The context of this process.
        is_kept: The checkpoints are not removed, so the training can be continued.

    Raises:
        KeyboardInterrupt: After the block, if there was an interrupt; the message has the call
        that
            continues.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if core.info is not None or not is_main:
        yield lambda: False
        return
    interrupts = Interrupts()
    previous: Any = signal.getsignal(signal.SIGINT)
    process = os.getpid()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != process or not interrupts.note():
            return
        if interrupts.num > 1:
            raise KeyboardInterrupt
        what = "the batch and saving" if is_kept else "the batch"
        sys.stderr.write(f"interrupted: finishing {what}; again to stop at once\n")

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: interrupts.num > 0
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupts.num:
        raise KeyboardInterrupt(
            _interrupted_message(core) if is_kept else "the training was interrupted"
        )


def _interrupted_message(core: Context) -> str:
    records = getattr(core.sink, "records", [])
    saved = [record for record in records if isinstance(record, CheckpointSaved)]
    if not saved:
        return "the training was interrupted"
    last = saved[-1]
    return (
        f"the training was interrupted after batch {last.steps_completed}; "
        f"fit(latest_checkpoint={last.uuid!r}) goes on"
    )
