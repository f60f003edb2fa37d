"""The schedule of a training run: after which batches it reports, validates and saves."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace

from det_jupyter.config import Length, TrainingUnits
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.rules import Period, RunRules


class Schedule:
    """The boundaries of a training run: batches after which it reports, validates or saves.

    At each boundary the run reports training metrics; at some it validates, at some it saves. At
    the target it ends, or gets the next target from its search.
    """

    def __init__(self, rules: RunRules, units: TrainingUnits, target: Length) -> None:
        self.units = units
        self._rules = rules
        self._next_due: dict[int, int] = {}  # by index of the period
        self.aim_at(target)

    def aim_at(self, target: Length) -> None:
        """Set the length at which this run ends."""
        self._next_due.clear()
        self.target = self.units.to_batches(target)
        # The end of the whole training, not of a rung: a trial that is promoted from rung to rung
        # is trained like one without rungs.
        self.end = max(self.target, self.units.to_batches(self._rules.length))

    @property
    def has_epochs(self) -> bool:
        """Whether epochs have a length."""
        return self.units.epoch_end(1) < sys.maxsize

    def validate_every(self, period: Length) -> Period:
        """Set the period of validations from now on, and return the one before."""
        before = self._rules.validation
        self._rules = replace(self._rules, validation=period)
        self._next_due.clear()
        return before

    def next_boundary(self, steps_completed: int) -> int:
        """Return the first boundary after `steps_completed` batches."""
        rules = self._rules
        boundary = self.target
        for index, period in enumerate((rules.reporting, rules.validation, rules.checkpoint)):
            # Not at each call, as `in` of a user's container may be slow.
            if self._next_due.get(index, 0) <= steps_completed:
                due = next_due(self.units, period, steps_completed, self.target)
                self._next_due[index] = sys.maxsize if due is None else due
            boundary = min(boundary, self._next_due[index])
        return boundary

    def validates_at(self, steps_completed: int) -> bool:
        """Return whether a validation is due after `steps_completed` batches."""
        return self._is_due(self._rules.validation, steps_completed)

    def saves_at(self, steps_completed: int) -> bool:
        """Return whether a checkpoint is due after `steps_completed` batches, by its period."""
        return self._is_due(self._rules.checkpoint, steps_completed)

    def _is_due(self, period: Period, steps_completed: int) -> bool:
        return steps_completed == self.target or is_due(self.units, period, steps_completed)


def is_due(units: TrainingUnits, period: Period, steps_completed: int) -> bool:
    """Return whether something is due after `steps_completed` batches.

    It is at the end of each period, or, for Counts, at these counts of batches or epochs.
    """
    if period is None or steps_completed == 0:
        return False
    if isinstance(period, Length):
        return units.is_boundary(period, steps_completed)
    if period.unit == "batches":
        return steps_completed in period.counts
    return units.is_epoch_end(steps_completed - 1) and (
        units.epoch_of(steps_completed - 1) + 1 in period.counts
    )


def next_due(units: TrainingUnits, period: Period, steps_completed: int, end: int) -> int | None:
    """Return the first batch count after `steps_completed` at which the period is due.

    None: never, or, for Counts, not up to `end`.
    """
    if period is None:
        return None
    if isinstance(period, Length):
        if period.amount == 0:
            return None
        if period.unit != "epochs":
            batches = units.to_batches(period)
            return (steps_completed // batches + 1) * batches
        periods = units.epoch_of(steps_completed) // period.amount
        return units.epoch_end((periods + 1) * period.amount)
    candidates: Iterable[int] = range(steps_completed + 1, sys.maxsize)
    if period.unit == "epochs":
        first = units.epoch_of(steps_completed) + 1
        candidates = map(units.epoch_end, range(first, sys.maxsize))
    for steps in candidates:  # a container only supports `in`, so each count is tried
        if steps > end:
            return None
        if is_due(units, period, steps):
            return steps
    return None


def training_units(
    rules: RunRules, *, global_batch_size: int | None, batches_per_pass: int | None
) -> TrainingUnits:
    """Return the units of a trial.

    Args:
        global_batch_size: Records of all ranks per batch; None if the trial has none.
        batches_per_pass: Global batches in one pass over the training data; None if the data has
            no length.

    Raises:
        ConfigError: There are no batches, or lengths are in epochs without a length of the data.
    """
    if batches_per_pass == 0:
        raise ConfigError(
            "build_training_data_loader: the training data has no batches; "
            "it is empty, or smaller than a batch and drop_last is set"
        )
    if batches_per_pass is None and not rules.records_per_epoch:
        given = {
            ("searcher.max_length", "max_length"): rules.length,
            ("min_validation_period", "validation_period"): rules.validation,
            ("min_checkpoint_period", "checkpoint_period"): rules.checkpoint,
        }
        remedy = "give it in batches" if rules.is_script else "set records_per_epoch"
        problems = [
            f"{paths[rules.is_script]}: in epochs, but the training data has no length; {remedy}"
            for paths, period in given.items()
            if period is not None and period.unit == "epochs" and period != Length("epochs", 0)
        ]
        if problems:
            raise ConfigError(problems)
    return TrainingUnits(
        # Without a batch size no length is in records: parsing the configuration checks that.
        global_batch_size=global_batch_size or 1,
        records_per_epoch=rules.records_per_epoch if global_batch_size else None,
        batches_per_epoch=sys.maxsize if batches_per_pass is None else batches_per_pass,
    )
