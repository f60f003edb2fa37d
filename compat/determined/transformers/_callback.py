"""`DetCallback`: a Trainer of Hugging Face's reports to its experiment, and can be paused.

on_log         metrics: those whose names begin with eval_ or test_ are of a validation
on_step_end    all ranks learn at the same step whether to leave; then a checkpoint is saved
on_save        what the Trainer has saved becomes a checkpoint of the trial
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import transformers  # type: ignore[import-not-found,unused-ignore]  # optional

from det_jupyter import core
from det_jupyter.contract.host.rundir import run_dir

_log = logging.getLogger("determined")

_SPEED = ("_per_second", "_runtime", "total_flos", "epoch", "step")
_VALIDATION = ("eval_", "test_")
_SUMMARY = "train_runtime"  # is logged when the training ends, also for a pause


class DetCallback(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Reports metrics and progress, saves checkpoints, and ends the training when it is paused.

    In a run that goes on it points `args.resume_from_checkpoint` at what was saved: give that to
    `trainer.train`. All ranks have to have the callback.

    Args:
        core_context: The Core API's.
        args: The Trainer's arguments.
        filter_metrics: Report only these; by default all but speeds.
        user_data: More metadata for each checkpoint.
    """

    def __init__(
        self,
        core_context: core.Context,
        args: Any,
        filter_metrics: Iterable[str] | None = None,
        user_data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.core_context = core_context
        self._chosen = None if filter_metrics is None else {*filter_metrics}
        self._user_data = dict(user_data or {})
        self._reported: set[tuple[str, int]] = set()
        self._saved_at = -1
        self._restore(args)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Report the metrics that the Trainer logs (called by it)."""
        if self.core_context.distributed.rank != 0 or not logs or _SUMMARY in logs:
            return
        metrics = {name: value for name, value in logs.items() if self._is_wanted(name)}
        group = "validation" if any(name.startswith(_VALIDATION) for name in logs) else "training"
        step = int(state.global_step)
        if metrics and (group, step) not in self._reported:
            self._reported.add((group, step))
            self.core_context.train.report_metrics(group, step, metrics)
        if state.max_steps and state.max_steps > 0:
            self.core_context.train.report_progress(min(1.0, step / state.max_steps))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End the training at this step if the trial is to leave (called by the Trainer)."""
        if self.core_context.preempt.should_preempt():
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Make a checkpoint of what the Trainer has saved (called by it, on all ranks)."""
        step = int(state.global_step)
        if step == self._saved_at:
            return
        self._saved_at = step
        self.core_context.distributed.barrier()  # each rank may have written files
        if self.core_context.distributed.rank == 0:
            self._store(Path(args.output_dir), step)

    def _store(self, output: Path, step: int) -> None:
        metadata = {**self._user_data, "steps_completed": step, "trial_id": self._trial_id()}
        with self.core_context.checkpoint.store_path(metadata) as (folder, _):
            for name in (f"checkpoint-{step}", "runs"):
                if (output / name).is_dir():
                    shutil.copytree(output / name, Path(folder) / name)

    def _restore(self, args: Any) -> None:
        info = self.core_context.info
        if info is None or info.latest_checkpoint is None:
            return
        latest = info.latest_checkpoint
        steps = self.core_context.checkpoint.get_metadata(latest)["steps_completed"]
        with self.core_context.checkpoint.restore_path(latest) as folder:
            saved = Path(folder) / f"checkpoint-{steps}"
            # The Trainer may write there, and a checkpoint is only for reading. The copy goes
            # with the folder of this run.
            run = run_dir(info.data_dir, info.plan.allocation_id)
            copy = Path(tempfile.mkdtemp(prefix="resumed-", dir=run.path)) / saved.name
            shutil.copytree(saved, copy)
        _log.info("going on from checkpoint %s, at step %d", latest, steps)
        args.resume_from_checkpoint = str(copy)

    def _trial_id(self) -> int | None:
        return self.core_context.info.trial_id if self.core_context.info is not None else None

    def _is_wanted(self, name: str) -> bool:
        if self._chosen is not None:
            return name in self._chosen
        return not name.endswith(_SPEED)
