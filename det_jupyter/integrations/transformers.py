"""transformers: a `Trainer` reports to its experiment, is paused and resumed, follows its search.

    det = DetCallback()
    trainer = Trainer(model, training_arguments(hparams, max_steps=800), callbacks=[det], ...)
    trainer.train(resume_from_checkpoint=det.resume_from_checkpoint)

on_step_end, on_epoch_end   whether the trial leaves here, or is compared with others here: then
                            the Trainer saves, and evaluates for a comparison
on_log, on_evaluate         metrics
on_save                     what the Trainer has saved becomes a checkpoint of the trial

A run that continues has the same order of data and log history as one that was never paused, since

- a trial leaves where the Trainer logs: the logged loss is an average since the previous log, and
  no checkpoint contains it. If the next log would take too long, it logs and leaves at once;
- at the last step of an epoch the Trainer saves after it has evaluated the epoch.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from det_jupyter import core
from det_jupyter.contract.run.scalars import is_metric
from det_jupyter.errors import CheckpointError, DetError
from det_jupyter.integrations import require
from det_jupyter.integrations.common import Operations, origin_of, reporting_context

require("transformers")

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from det_jupyter.integrations.leaving import LeaveStep
from det_jupyter.integrations.training_arguments import check_arguments, training_arguments

__all__ = ["DetCallback", "training_arguments"]

logger = logging.getLogger(__name__)

_PROGRESS_S = 1.0  # time between two reports of progress
_GROUPS = {"eval_": "validation", "test_": "test"}  # groups by the beginnings of metrics' names
_SUMMARY = "total_flos"  # is logged when `train` ends, also for a pause
_BEST = "best_checkpoint"  # in the metadata: uuid of the Trainer's best; "" is this one
_HAS_CALLBACK = "_has_det_callback"  # an attribute of the TrainerState


class DetCallback(TrainerCallback):
    """Makes a Trainer's training a trial: metrics, progress, checkpoints, pauses, search.

    All ranks must have it.

    Args:
        context: The Core API's; by default the current one.
        metadata: More metadata for each checkpoint.

    Raises:
        DetError: There is no context.
    """

    def __init__(
        self, context: core.Context | None = None, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self._context = reporting_context(context, "DetCallback")
        self._metadata = dict(metadata or {})
        self._open = ExitStack()
        self._folder: Path | None = None  # folder of the checkpoint that training continues from
        self._is_read = False  # whether `resume_from_checkpoint` was read
        self._is_prepared = False
        self._followed: Operations | None = None
        self._leaving = LeaveStep(self._context, 0)
        self._progress_at = -math.inf  # time of the last report
        self._saves_later = False  # whether the Trainer saves at the end of the epoch
        self._ends_length = False  # whether the trial has trained its length when that is saved
        self._is_leaving = False
        self._weights: dict[str, Any] = {}  # weights of a trial that has nothing left to train
        self._has_left = False
        self._logged_at: int | None = None  # steps
        self._evaluated_at: int | None = None
        self._evaluated: dict[str, Any] = {}
        self._stored_at: int | None = None
        self._best: str | None = None

    @property
    def resume_from_checkpoint(self) -> str | None:
        """The state to continue from, for `Trainer.train`; None if the trial begins."""
        self._is_read = True
        if self._folder is None and self._latest is not None:
            opened = self._context.checkpoint.restore_path(self._latest)
            self._folder = self._open.enter_context(opened)
        return None if self._folder is None else str(self._folder)

    @property
    def has_left(self) -> bool:
        """Whether `train` has returned because the trial pauses; it continues in another run."""
        return self._has_left

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Check the Trainer (called by it, as all of these methods).

        Raises:
            DetError: It does not fit the trial: its callbacks, processes or arguments.
        """
        self._prepare(args, state)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> TrainerControl:
        """Begin to follow the search. A trial that left at a comparison is compared now.

        Raises:
            DetError: As in `on_init_end`; or `train` was called without the checkpoint.
        """
        self._prepare(args, state)
        self._check_checkpoint(state)
        self._followed = Operations(self._context, "DetCallback", "the Trainer's evaluation")
        if self._followed.is_compared and self._followed.unit is core.Unit.RECORDS:
            raise DetError(
                "DetCallback: searcher.max_length is in records, and a Trainer counts steps and "
                "epochs; write max_length: {batches: N}, in optimizer steps, or {epochs: N}"
            )
        self._leaving = LeaveStep(self._context, state.global_step)
        self._check_length(state)
        if state.global_step and self._operations.is_reached(self._length(state)):
            # Evaluated by the previous run, which left here.
            self._evaluated = _evaluated_at(state)
            if not self._followed.go_on(self._length(state), self._evaluated):
                self._is_leaving = control.should_training_stop = True
                self._weights = {name: each.clone() for name, each in model.state_dict().items()}
        return control

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Check that the search has its metric, when the model was evaluated.

        Raises:
            DetError: The metric is not among those of the evaluation.
        """
        if self._evaluated_at == state.global_step:
            self._operations.check_metric(self._evaluated)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Save and end the run if a pause is due. All ranks call; some calls are collective."""
        if self._is_leaving:  # leaving since `train` began, but a Trainer takes at least one step
            control.should_log = control.should_evaluate = control.should_save = False
            return control
        is_due = self._leaving.exchange(args, state)
        if is_due and time.monotonic() - self._progress_at >= _PROGRESS_S:
            self._report_progress(state)
        if float(state.epoch).is_integer():  # the last step of an epoch
            self._saves_later, control.should_save = control.should_save, False
        else:
            self._end_here(args, state, control)
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Save and end the run if a pause is due, unless it has ended within this epoch."""
        if self._is_leaving:
            control.should_log = control.should_evaluate = control.should_save = False
            return control
        control.should_save = control.should_save or self._saves_later
        self._saves_later = False
        self._end_here(args, state, control)
        return control

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report what the Trainer logs, but not after the trial has left."""
        values = _metrics(logs)
        if not values or _SUMMARY in (logs or {}) or self._has_left:
            return
        step = state.global_step
        if "loss" in values:
            self._logged_at = step
        if not self._context.distributed.is_chief:
            return
        group = _GROUPS.get(min(values)[:5], "training")
        trained = {"batches": float(step), "epochs": float(state.epoch or 0)}
        self._context.train.report_metrics(group, step, values, trained)
        self._report_progress(state)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Keep the metrics of this step's evaluations: there is one for each data set."""
        before = self._evaluated if self._evaluated_at == state.global_step else {}
        self._evaluated = before | _metrics(metrics)
        self._evaluated_at = state.global_step

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: object = None,
        **_: Any,
    ) -> TrainerControl:
        """Store what the Trainer has saved; then leave if the search ends here. Collective."""
        if state.global_step != self._stored_at:
            self._store(args, state, model)
        if self._ends_length:
            self._ends_length = False
            if not self._operations.go_on(self._length(state), self._evaluated):
                self._is_leaving = control.should_training_stop = True
            self._check_length(state)
        return control

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        """Report the last progress, and release the checkpoint that was read.

        If a callback has stopped the training before the search would, the trial is over.
        """
        self._report_progress(state)
        if self._weights:
            model.load_state_dict(self._weights)  # without the step that a Trainer takes at least
        is_early = self._operations.is_compared and not self._is_leaving
        if is_early and self._context.distributed.is_chief:
            self._context.train.report_early_exit(core.EarlyExitReason.USER_REQUESTED_STOP)
        self._has_left = self._is_leaving and self._context.preempt.is_acknowledged
        self._open.close()
        with suppress(OSError):  # there is more in it, or another rank has removed it
            Path(args.output_dir).rmdir()

    @property
    def _latest(self) -> str | None:
        info = self._context.info
        return info.latest_checkpoint if info is not None else None

    @property
    def _operations(self) -> Operations:
        assert self._followed is not None
        return self._followed

    def _prepare(self, args: TrainingArguments, state: TrainerState) -> None:
        if _HAS_CALLBACK in vars(state):
            raise DetError("DetCallback: the Trainer has it twice; give it once")
        setattr(state, _HAS_CALLBACK, True)
        if self._is_prepared:
            return
        self._is_prepared = True
        check_arguments(args, self._context.distributed.size)
        info = self._context.info
        if info is not None:  # trials that train at once may have the same folder
            folder, own = Path(args.output_dir), f"trial-{info.trial_id}"
            if folder.name != own:  # the arguments of another Trainer of this trial
                args.output_dir = str(folder / own)
        if args.load_best_model_at_end and self._latest is not None:
            self._fetch_best(Path(args.output_dir), self._latest)

    def _check_checkpoint(self, state: TrainerState) -> None:
        """Check that `train` was called once, with `resume_from_checkpoint`, even if that is None.

        Raises:
            DetError: It was called again, or without this argument.
        """
        if (before := self._context.train.get_steps()) > state.global_step:
            raise DetError(
                f"DetCallback: the trial has trained {before} steps already, and Trainer.train "
                f"begins at {state.global_step}; give the callback to one Trainer, and call train "
                "once: where callback.has_left is true, the trial is paused, so return"
            )
        is_anew = self._latest is not None and state.global_step == 0
        if is_anew or (self._context.info is not None and not self._is_read):
            raise DetError(
                f"DetCallback: {'this trial continues' if is_anew else 'a trial may be paused'}, "
                "and Trainer.train was called without its checkpoint; write "
                "trainer.train(resume_from_checkpoint=callback.resume_from_checkpoint), which is "
                "None where training begins"
            )

    def _fetch_best(self, folder: Path, latest: str) -> None:
        """Copy the Trainer's best checkpoint to where it was before the pause. Collective."""
        checkpoint = self._context.checkpoint
        found = checkpoint.get_metadata(latest).get(_BEST)
        if found is None:
            return
        self._best = found or latest
        try:
            steps = checkpoint.get_metadata(self._best)["steps_completed"]
            checkpoint.download(self._best, folder / f"checkpoint-{steps}")
        except CheckpointError as error:
            logger.warning("load_best_model_at_end: the best model so far is gone: %s", error)

    def _end_here(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl
    ) -> None:
        """Let the Trainer evaluate and save where a length ends, or save and end for a pause."""
        step = state.global_step
        if self._operations.is_reached(self._length(state)):
            is_compared = self._operations.is_compared
            if self._evaluated_at != step and (is_compared or _evaluates(state)):
                control.should_evaluate = True
            if is_compared or args.save_strategy != "no":
                self._ends_length = control.should_save = True
            elif not self._operations.go_on(self._length(state), self._evaluated):
                control.should_training_stop = True
        elif self._leaving.step is not None and not control.should_training_stop:
            is_log = control.should_log or self._logged_at == step
            if is_log or step >= self._leaving.step:
                self._is_leaving = control.should_save = control.should_training_stop = True
                control.should_log = args.logging_strategy != "no"
                self._context.preempt.acknowledge_preemption_signal()

    def _length(self, state: TrainerState) -> int:
        """Return how far the trial has trained, in the unit of its operations."""
        is_epochs = self._operations.unit is core.Unit.EPOCHS
        return math.floor(state.epoch) if is_epochs else state.global_step

    def _check_length(self, state: TrainerState) -> None:
        if self._operations.unit is core.Unit.EPOCHS:
            length, setting = state.num_train_epochs, "num_train_epochs=N"
        else:
            length, setting = state.max_steps, "max_steps=N"
        self._operations.check_length(length, "the Trainer", f"TrainingArguments({setting})")

    def _store(self, args: TrainingArguments, state: TrainerState, model: object) -> None:
        step, distributed = state.global_step, self._context.distributed
        self._stored_at = step
        keeps = bool(args.load_best_model_at_end)
        is_best = keeps and state.best_global_step == step
        folder = Path(args.output_dir, f"checkpoint-{step}")
        best = {_BEST: "" if is_best else self._best} if keeps else {}
        metadata = {**self._metadata, "steps_completed": step, **best}
        distributed.barrier()  # every rank may have written files
        origin = origin_of(self._context, "transformers", model)
        uuid = self._context.checkpoint.upload(
            folder, metadata, shard=distributed.size > 1, origin=origin
        )
        if is_best:
            self._best = uuid
        if not keeps and distributed.local_rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        if args.eval_strategy == "no" and not self._operations.is_compared:
            self._context.train.warn_of_missing_metric()

    def _report_progress(self, state: TrainerState) -> None:
        self._progress_at = time.monotonic()
        if self._context.distributed.is_chief and state.max_steps > 0:
            fraction = min(1.0, state.global_step / state.max_steps)
            self._context.train.report_progress(fraction, state.global_step)


def _evaluated_at(state: TrainerState) -> dict[str, Any]:
    """Return what was logged at the present step, by the log history."""
    found: dict[str, Any] = {}
    for logs in state.log_history:
        if logs["step"] == state.global_step:
            found |= _metrics({name: logs[name] for name in logs if name != "step"})
    return found


def _evaluates(state: TrainerState) -> bool:
    """Return whether the Trainer has evaluated the model in this trial."""
    return any(name.startswith("eval_") for logs in state.log_history for name in logs)


def _metrics(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (logs or {}).items() if is_metric(name)}
