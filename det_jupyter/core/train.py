"""Reports of metrics and progress, which are written as records; the folder for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal

from det_jupyter.contract.run.journal import (
    BatchMetrics,
    MetricsReported,
    Notice,
    Progress,
    RunEnded,
)
from det_jupyter.contract.values.direction import Direction
from det_jupyter.core.argument_checks import (
    ContextPart,
    checked_amounts,
    checked_metrics,
    checked_steps,
    find_choice_problem,
    is_number,
    quoted,
    to_json_value,
    values_by_metric,
)
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.journal import RecordSink
from det_jupyter.core.metric_names import MetricNames


class TensorboardMode(Enum):
    """Whether files for TensorBoard are uploaded by the script, as in Determined.

    Here they are written to the folder that TensorBoard reads, so nothing has to be uploaded. With
    MANUAL, `train.upload_tensorboard_files` may be called, and does nothing.
    """

    AUTO = "AUTO"
    MANUAL = "MANUAL"


def tensorboard_folder(data_dir: Path, experiment_id: int, trial_id: int) -> Path:
    """Return the folder for the TensorBoard files of a trial."""
    return data_dir / "tensorboard" / str(experiment_id) / str(trial_id)


_METADATA = "metadata"  # the group of metrics that `set_metadata` reports


class BestValidation:
    """The best value of the searcher metric so far, as far as this process knows.

    Args:
        metric: Name of the searcher metric.
        smaller_is_better: As in the configuration.
        value: The experiment's best when this run began; None: there was none.
    """

    def __init__(self, metric: str, smaller_is_better: bool, value: float | None) -> None:
        self.metric = metric
        self.value = value
        self.names = MetricNames(metric)
        self._direction = Direction.of(smaller_is_better=smaller_is_better)

    def note(self, metrics: Mapping[str, Any]) -> None:
        """Update the best value with the metrics of a validation."""
        self.value = self._direction.best([self.value, metrics.get(self.metric)])


class EarlyExitReason(Enum):
    """Why a trial ends before its length."""

    INVALID_HP = "invalid_hp"
    USER_REQUESTED_STOP = "stopped"


class TrainContext(ContextPart):
    """Reports metrics and progress of a trial. Only the chief reports.

    Values are checked in the same way in experiments and outside.

    Args:
        sink: Stores the records.
        distributed: The ranks.
        on_steps: Called with the steps completed at each report and each `note_steps`.
        best: The best searcher metric; None outside of experiments.
        tensorboard: Folder for TensorBoard files; by default `tensorboard`.
        on_report: Called when metrics are reported.
    """

    def __init__(
        self,
        sink: RecordSink,
        distributed: DistributedContext,
        *,
        on_steps: Callable[[int], None] = lambda steps_completed: None,
        best: BestValidation | None = None,
        tensorboard: Path | None = None,
        on_report: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_report = on_report
        self._sink = sink
        self._distributed = distributed
        self._on_steps = on_steps
        self._best = best
        self._tensorboard = tensorboard
        self.tensorboard_mode = TensorboardMode.AUTO  # `core.init` sets it
        self._steps_completed = 0
        self._validated: tuple[int, Mapping[str, Any]] = (-1, {})
        self._metadata: dict[str, Any] = {}
        self.early_exit: Literal["invalid_hp", "stopped"] | None = None

    def note_steps(self, steps_completed: int) -> None:
        """Set the steps completed without a report. Any rank may call it."""
        self._steps_completed = checked_steps(steps_completed)
        self._on_steps(self._steps_completed)
        if self._best is not None:
            self._give_notice(self._best.names.note_steps(steps_completed))

    def get_steps(self) -> int:
        """Return the steps completed of the last report or `note_steps`."""
        return self._steps_completed

    def get_validated(self) -> tuple[int, Mapping[str, Any]]:
        """Return the steps and metrics of the last validation; (-1, {}) before the first."""
        return self._validated

    def report_training_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        batch_metrics: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Report the training metrics of the batches up to `steps_completed`.

        Args:
            steps_completed: Batches trained since the beginning of the trial.
            metrics: The averages of the metrics over these batches.
            batch_metrics: The values of each of these batches, all with the same names.
        """
        self._check_chief("report_training_metrics")
        if not batch_metrics:
            self.report_metrics("training", steps_completed, metrics)
            return
        steps_completed = checked_steps(steps_completed)
        values, num_batches = values_by_metric(batch_metrics), len(batch_metrics)
        if num_batches > max(1, steps_completed):
            raise ValueError(
                f"batch_metrics: got {num_batches} batches, expected at most the "
                f"{steps_completed} of steps_completed"
            )
        self.report_metrics("training", steps_completed, metrics)
        if values:
            first = steps_completed - num_batches + 1
            self._sink.write(BatchMetrics(at=time.time(), first=first, values=values))

    def report_validation_metrics(
        self,
        steps_completed: int,
        metrics: Mapping[str, Any],
        trained: Mapping[str, float] | None = None,
    ) -> None:
        """Report the metrics of a validation; `trained` as in `report_metrics`."""
        self._check_chief("report_validation_metrics")
        self.report_metrics("validation", steps_completed, metrics, trained)

    def report_metrics(
        self,
        group: str,
        steps_completed: int,
        metrics: Mapping[str, Any],
        trained: Mapping[str, float] | None = None,
    ) -> None:
        """Report metrics of any group: "training", "validation", or a name of your own.

        Args:
            steps_completed: Batches trained since the beginning of the trial.
            trained: The same amount of training by unit: batches, records, epochs.

        Raises:
            ValueError: A name, the step or a value cannot be reported; the message names it.
            RuntimeError: This rank is not the chief.
        """
        self._check_chief("report_metrics")
        if not isinstance(group, str) or not group or "." in group:
            raise ValueError(f"report_metrics: got group {group!r}, expected a name without dots")
        record = MetricsReported(
            at=time.time(),
            group=group,
            steps_completed=checked_steps(steps_completed),
            metrics=checked_metrics(metrics),
            trained=checked_amounts(trained) if trained else {},
        )
        if group != _METADATA:
            self.on_report()
        self._steps_completed = steps_completed
        self._on_steps(steps_completed)
        self._sink.write(record)
        if group == "validation":
            self._validated = (steps_completed, record.metrics)
            if self._best is not None:
                self._best.note(record.metrics)
        if self._best is not None and group != _METADATA:
            self._give_notice(self._best.names.note(group, steps_completed, record.metrics))

    def report_progress(self, progress: float, steps_completed: int | None = None) -> None:
        """Report the progress of the trial, as a fraction of its length.

        Args:
            steps_completed: Batches trained; by default, those of the last report.
        """
        self._check_chief("report_progress")
        if not is_number(progress) or not 0 <= progress <= 1:
            raise ValueError(f"report_progress: got {progress!r}, expected a number from 0 to 1")
        if steps_completed is not None:
            self.note_steps(steps_completed)
        record = Progress(
            at=time.time(), steps_completed=self._steps_completed, fraction=float(progress)
        )
        self._sink.write(record)

    def report_early_exit(self, reason: EarlyExitReason) -> None:
        """Report that the trial ends now, before its length; then end the script.

        Args:
            reason: INVALID_HP: these hyperparameters cannot work; USER_REQUESTED_STOP: the trial
                has trained enough. Its checkpoints and metrics stay, and it is not tried again.
        """
        self._check_chief("report_early_exit")
        if problem := find_choice_problem(reason, EarlyExitReason):
            raise ValueError(f"report_early_exit: {problem}")
        self.early_exit = reason.value
        is_invalid = reason is EarlyExitReason.INVALID_HP
        self._sink.write(
            RunEnded(
                at=time.time(),
                reason=reason.value,
                steps_completed=self._steps_completed,
                message="its code has reported that (report_early_exit)" if is_invalid else "",
            )
        )

    def set_status(self, status: str) -> None:
        """Print a status such as "loading data" to the log."""
        self._check_chief("set_status")
        if not isinstance(status, str):
            raise ValueError(f"set_status: got {quoted(status)}, expected a string")
        print(f"status: {status}", flush=True)

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Report metadata of this run, as metrics of the group "metadata" at the present step."""
        self._check_chief("set_metadata")
        if not isinstance(metadata, Mapping):
            raise ValueError(f"set_metadata: got {quoted(metadata)}, expected a dict")
        plain = to_json_value("metadata", metadata)
        self.report_metrics(_METADATA, self._steps_completed, plain)
        self._metadata = plain

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata that this process has set last; empty at the beginning."""
        return dict(self._metadata)

    def warn_of_missing_metric(self) -> None:
        """Write a notice if the training has ended, and the searcher metric was not reported."""
        if self._best is not None and self.early_exit != EarlyExitReason.INVALID_HP.value:
            has_validated = self._best.value is not None
            self._give_notice(self._best.names.end(has_validated=has_validated))

    def _give_notice(self, text: str) -> None:
        if text:
            self._sink.write(Notice(at=time.time(), rank=self._distributed.rank, text=text))

    def get_tensorboard_path(self) -> Path:
        """Return the folder for this rank's TensorBoard files; create it if necessary."""
        chief = self._tensorboard or Path("tensorboard")
        rank = self._distributed.rank
        folder = chief if rank == 0 else chief / f"rank_{rank}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def upload_tensorboard_files(
        self,
        selector: Callable[[Path], bool] = bool,
        mangler: Callable[[Path, int], Path] | None = None,
    ) -> None:
        """Do nothing: TensorBoard reads the folder of `get_tensorboard_path` itself.

        Raises:
            RuntimeError: The mode is AUTO.
        """
        if self.tensorboard_mode is TensorboardMode.AUTO:
            raise RuntimeError(
                "upload_tensorboard_files: got a call in TensorboardMode.AUTO, where files are "
                "taken by themselves; leave it out, or give tensorboard_mode="
                "core.TensorboardMode.MANUAL to core.init"
            )

    def get_experiment_best_validation(self) -> float | None:
        """Return the best searcher metric so far; None if there is none or outside experiments.

        It is the experiment's best at the beginning of this run, or a better one reported since.
        """
        return self._best.value if self._best is not None else None

    def _check_chief(self, method: str) -> None:
        self.check_open(f"train.{method}")
        if not self._distributed.is_chief:
            rank = self._distributed.rank
            raise RuntimeError(
                f"{method}: only the chief (rank 0) reports, and this is rank {rank}; "
                "guard the call with `if context.distributed.rank == 0`"
            )
