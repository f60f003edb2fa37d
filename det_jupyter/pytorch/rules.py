"""The rules of a training run: its length, periods, metric and checks; and its start.

    a script        Batch(100), Epoch(1)      Batch([5, 30, 45])
    a configuration {batches: 100}
    the run         Length("batches", 100)    Counts("batches", [5, 30, 45])

A `Length` is an amount of training, or a period: "after every 100 batches". `Counts` are counts
from the trial's beginning: "after batches 5, 30 and 45". Only scripts have them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from det_jupyter.config import ExperimentConfig, Length
from det_jupyter.config.sections import Profiling
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.values.lengths import Unit


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of batches or epochs, from the trial's beginning, after which an event is due."""

    unit: Unit
    counts: Container[int]


Period: TypeAlias = Length | Counts | None  # None and an amount of 0: never


@dataclass(frozen=True)
class TrainUnit:
    """An amount of training, or a period of it. Use `Batch` or `Epoch`.

    Args:
        value: The amount; as a period, less than 1 means 1, as in Determined. Or the counts, from
            the trial's beginning, after which the event is due.

    Raises:
        TypeError: The value is neither a whole number nor a container.
    """

    value: int | Container[int]
    unit: ClassVar[Unit]

    def __post_init__(self) -> None:
        is_number = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not is_number and not isinstance(self.value, Container):
            raise TypeError(
                f"{type(self).__name__}: got {self.value!r}, expected a whole number, or a "
                "container of them such as [5, 30]"
            )

    def to_length(self) -> Length:
        """Return the value as an amount of training.

        Raises:
            TypeError: The value is a container.
        """
        if not isinstance(self.value, int):
            raise TypeError(f"got {self!r}, expected one number: {type(self).__name__}(100)")
        return Length(self.unit, self.value)

    def to_period(self) -> Length | Counts:
        """Return the value as a period, or as counts."""
        if isinstance(self.value, int):
            return Length(self.unit, max(1, self.value))
        return Counts(self.unit, self.value)


@dataclass(frozen=True)
class Batch(TrainUnit):
    """Global batches: steps of the loop."""

    unit = "batches"


@dataclass(frozen=True)
class Epoch(TrainUnit):
    """Passes over the training data."""

    unit = "epochs"


Policy = Literal["best", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """When a training run reports, validates, saves and ends, and which checks it makes."""

    length: Length  # length of the trial; a run may end earlier, at its search's target
    reporting: Period
    validation: Period = None
    checkpoint: Period = None
    checkpoint_policy: Policy = "best"  # which validations are followed by a checkpoint
    metric: str | None = None  # by which validations are compared
    smaller_is_better: bool = True
    needs_metric: bool = False  # a validation without the metric is an error
    initial_validation: bool = False  # before the first batch
    validation_batches: int | None = None  # limit on each rank; None: all
    average_training_metrics: bool = True  # over all ranks; False: only the chief's are reported
    on_nan_loss: Literal["warn", "stop"] = "warn"
    # What to do if the ranks' parameters differ.
    check_ranks: Literal["never", "report", "stop"] = "report"
    records_per_epoch: int = 0  # 0: an epoch is a pass over the training data
    is_script: bool = False  # the rules were given to `fit`, so messages name its arguments
    profiling: Profiling = field(default_factory=Profiling)

    @classmethod
    def of(cls, config: ExperimentConfig, target: Length) -> RunRules:
        """Return the rules that a configuration sets; `target` is the length of this run."""
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
class RunStart:
    """The state with which a run begins."""

    seed: int  # the trial's seed
    checkpoint: CheckpointRef | None = None  # the checkpoint to continue from
    # A checkpoint of another trial, of which only the weights are loaded.
    warm_start: CheckpointRef | None = None
    best_metric: float | None = None  # best of the experiment before this run

    @property
    def steps_completed(self) -> int:
        """Batches trained by earlier runs."""
        return self.checkpoint.steps_completed if self.checkpoint else 0
