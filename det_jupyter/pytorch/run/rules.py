"""Rules of a training run: its length, periods, metric and checks; and where it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from det_jupyter.config import ExperimentConfig, Length
from det_jupyter.config.sections import Profiling
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.pytorch.run.lengths import Period

Policy = Literal["best", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a training run does besides training."""

    length: Length  # of the whole trial; the run may end earlier, at its search's target
    reporting: Period
    validation: Period = None
    checkpoint: Period = None
    checkpoint_policy: Policy = "best"  # which validations are followed by a checkpoint
    metric: str | None = None  # by which validations are compared
    smaller_is_better: bool = True
    needs_metric: bool = False  # a validation without the metric is an error
    initial_validation: bool = False  # before the first batch
    validation_batches: int | None = None  # of this rank at most; None for all
    average_training_metrics: bool = True  # over all ranks; else the metrics are the chief's
    on_nan_loss: Literal["warn", "stop"] = "warn"
    check_ranks: Literal["never", "report", "stop"] = "report"  # if their parameters differ
    records_per_epoch: int = 0  # 0: an epoch is a pass over the training data
    is_script: bool = False  # the rules were given to `fit`, so messages name its arguments
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
    """Where a run begins."""

    seed: int  # the trial's
    checkpoint: CheckpointRef | None = None  # to continue from
    warm_start: CheckpointRef | None = None  # another trial's: only its weights are loaded
    best_metric: float | None = None  # of the experiment, before this run

    @property
    def steps_completed(self) -> int:
        """Batches that were trained before this run."""
        return self.checkpoint.steps_completed if self.checkpoint else 0
