"""When a training run reports, validates and saves, in batches. Knows no data and no model."""

from __future__ import annotations

import sys

from det_jupyter.config import ExperimentConfig, Length, TrainingUnits
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.samplers import shard_length


class Schedule:
    """The boundaries of a training run: batches after which something happens.

    At a boundary the order is always: report training metrics, validate, save.

    Args:
        config: Says how often.
        units: What its lengths come to.
        target: Where this run stops, for good or to hear whether it goes on.
    """

    def __init__(self, config: ExperimentConfig, units: TrainingUnits, target: Length) -> None:
        self.units = units
        self._length = full_length(config, target)
        self._reporting = Length("batches", config.scheduling_unit)
        self._validation = config.min_validation_period
        self._checkpoint = config.min_checkpoint_period
        self.aim_at(target)

    def aim_at(self, target: Length) -> None:
        """Set where this run stops."""
        self.target = self.units.to_batches(target)
        # The whole training of the trial. Rungs are stations on the way: a trial that is promoted
        # over them ends as one that was trained straight on.
        self.end = max(self.target, self.units.to_batches(self._length))

    def next_boundary(self, steps_completed: int) -> int:
        """Return the first boundary after `steps_completed` batches."""
        periods = (self._reporting, self._validation, self._checkpoint)
        found = [next_multiple(self.units, period, steps_completed) for period in periods]
        return min([self.target, *(boundary for boundary in found if boundary is not None)])

    def validates_at(self, steps_completed: int) -> bool:
        """Return whether there is a validation after so many batches."""
        return self._is_due(self._validation, steps_completed)

    def saves_at(self, steps_completed: int) -> bool:
        """Return whether a checkpoint is due after so many batches, whatever the metrics say."""
        return self._is_due(self._checkpoint, steps_completed)

    def _is_due(self, period: Length, steps_completed: int) -> bool:
        return steps_completed == self.target or self.units.is_boundary(period, steps_completed)


def full_length(config: ExperimentConfig, target: Length) -> Length:
    """Return how long the trial trains if nobody stops it."""
    return config.searcher.max_length or target


def next_multiple(units: TrainingUnits, period: Length, steps_completed: int) -> int | None:
    """Return the first batch count after `steps_completed` where a period ends; None for never."""
    if period.amount == 0:
        return None
    if period.unit != "epochs":
        batches = units.to_batches(period)
        return (steps_completed // batches + 1) * batches
    periods = units.epoch_of(steps_completed) // period.amount
    return units.epoch_end((periods + 1) * period.amount)


def training_units(
    config: ExperimentConfig,
    *,
    global_batch_size: int | None,
    batches_per_pass: int | None,
    size: int,
) -> TrainingUnits:
    """Return the units of a trial.

    Args:
        config: Says what a record and an epoch are, and in which of them lengths are given.
        global_batch_size: Records that all ranks train per batch, if the trial says so.
        batches_per_pass: Batches in one pass over the training data of all ranks; None if the data
            has no length.
        size: How many ranks share these batches.

    Raises:
        ConfigError: There is nothing to train on, or a length cannot be counted.
    """
    if batches_per_pass == 0:
        raise ConfigError(
            [
                "build_training_data_loader: the training data has no batches; "
                "it is empty, or smaller than a batch and drop_last is set"
            ]
        )
    if batches_per_pass is None and not config.records_per_epoch:
        for path, length in (
            ("searcher.max_length", config.searcher.max_length),
            ("min_validation_period", config.min_validation_period),
            ("min_checkpoint_period", config.min_checkpoint_period),
        ):
            if length is not None and length.unit == "epochs" and length.amount:
                remedy = "set records_per_epoch"
                raise ConfigError(
                    [f"{path}: in epochs, but the training data has no length; {remedy}"]
                )
    return TrainingUnits(
        # Without a batch size no length is in records: the configuration was refused otherwise.
        global_batch_size=global_batch_size or 1,
        records_per_epoch=config.records_per_epoch if global_batch_size else None,
        batches_per_epoch=(
            sys.maxsize if batches_per_pass is None else shard_length(batches_per_pass, size, 0)
        ),
    )
