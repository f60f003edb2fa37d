"""Rules of a training run: its length, periods, metric and checks; and where it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from det_jupyter.config import ExperimentConfig, Length
from det_jupyter.config.sections import Profiling
from det_jupyter.pytorch.run.lengths import Period
from det_jupyter.wire import CheckpointRef

Policy = Literal["best", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a training run does besides training.

    Args:
        length: The trial's whole length. The run may end earlier, at its search's target.
        reporting, validation, checkpoint: The periods.
        checkpoint_policy: Which validations are followed by a checkpoint.
        metric: The metric by which validations are compared; None if there is none.
        smaller_is_better: The direction of that metric.
        needs_metric: A validation without the metric is an error.
        initial_validation: Validate before the first batch too.
        validation_batches: Limit of this rank's batches in a validation; None for all.
        average_training_metrics: Average over all ranks; else the metrics are the chief's.
        on_nan_loss: The effect of a loss that is not finite.
        check_ranks: The effect of ranks whose parameters differ; "never": do not compare them.
        records_per_epoch: Records of an epoch; 0: an epoch is a pass over the training data.
        is_script: The rules were given to `fit`, so messages name its arguments.
        profiling: Which batches are timed.
    """

    length: Length
    reporting: Period
    validation: Period = None
    checkpoint: Period = None
    checkpoint_policy: Policy = "best"
    metric: str | None = None
    smaller_is_better: bool = True
    needs_metric: bool = False
    initial_validation: bool = False
    validation_batches: int | None = None
    average_training_metrics: bool = True
    on_nan_loss: Literal["warn", "stop"] = "warn"
    check_ranks: Literal["never", "report", "stop"] = "report"
    records_per_epoch: int = 0
    is_script: bool = False
    profiling: Profiling = field(default_factory=Profiling)

    @classmethod
    def of(cls, config: ExperimentConfig, target: Length) -> Rules:
        """Return the rules of a configuration; `target` is where the run stops."""
        return cls(
            length=config.searcher.max_length or target,
            reporting=Length("batches", config.scheduling_unit),
            validation=config.min_validation_period,
            checkpoint=config.min_checkpoint_period,
            checkpoint_policy=config.checkpoint_policy,
            metric=config.searcher.metric,
            smaller_is_better=config.searcher.smaller_is_better,
            needs_metric=config.searcher.name == "single",
            initial_validation=config.perform_initial_validation,
            average_training_metrics=config.optimizations.average_training_metrics,
            on_nan_loss=config.on_nan_loss,
            check_ranks=config.optimizations.check_ranks,
            records_per_epoch=config.records_per_epoch,
            profiling=config.profiling,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where a run begins.

    Args:
        seed: The trial's.
        checkpoint: The state to continue from; None to start from the beginning.
        warm_start: Another trial's checkpoint, of which only the weights are loaded.
        best_metric: The best validation of the experiment before this run.
    """

    seed: int
    checkpoint: CheckpointRef | None = None
    warm_start: CheckpointRef | None = None
    best_metric: float | None = None

    @property
    def steps_completed(self) -> int:
        """Batches that were trained before this run."""
        return self.checkpoint.steps_completed if self.checkpoint else 0
