"""When a training run reports, validates and saves, in batches. Knows no data and no model."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from det_jupyter.config import Length, TrainingUnits
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.run.rules import Period, Rules
from det_jupyter.pytorch.run.units import Epoch, TrainUnit


class Schedule:
    """The boundaries of a training run: batches after which something happens.

    At a boundary the order is always: report training metrics, validate, save.

    Args:
        rules: Say how often.
        units: What their lengths come to.
        target: Where this run stops, for good or to hear whether it goes on.
    """

    def __init__(self, rules: Rules, units: TrainingUnits, target: Length) -> None:
        self.units = units
        self._rules = rules
        self._found: dict[int, int] = {}  # by the period's place: the next count that is due
        self.aim_at(target)

    def aim_at(self, target: Length) -> None:
        """Set where this run stops."""
        self._found.clear()
        self.target = self.units.to_batches(target)
        # The whole training of the trial. Rungs are stations on the way: a trial that is promoted
        # over them ends as one that was trained straight on.
        self.end = max(self.target, self.units.to_batches(self._rules.length))

    def next_boundary(self, steps_completed: int) -> int:
        """Return the first boundary after `steps_completed` batches."""
        rules = self._rules
        boundary = self.target
        for place, period in enumerate((rules.reporting, rules.validation, rules.checkpoint)):
            if self._found.get(place, 0) <= steps_completed:  # a container may take long to ask
                due = next_due(self.units, period, steps_completed, self.target)
                self._found[place] = sys.maxsize if due is None else due
            boundary = min(boundary, self._found[place])
        return boundary

    def validates_at(self, steps_completed: int) -> bool:
        """Return whether there is a validation after so many batches."""
        return self._is_due(self._rules.validation, steps_completed)

    def saves_at(self, steps_completed: int) -> bool:
        """Return whether a checkpoint is due after so many batches, whatever the metrics say."""
        return self._is_due(self._rules.checkpoint, steps_completed)

    def _is_due(self, period: Period, steps_completed: int) -> bool:
        return steps_completed == self.target or is_due(self.units, period, steps_completed)


def is_due(units: TrainingUnits, period: Period, steps_completed: int) -> bool:
    """Return whether a period ends just after so many batches, or names this count."""
    if period is None or steps_completed == 0:
        return False
    if isinstance(period, Length):
        return units.is_boundary(period, steps_completed)
    assert not isinstance(period.value, int)
    if not isinstance(period, Epoch):
        return steps_completed in period.value
    return units.is_epoch_end(steps_completed - 1) and (
        units.epoch_of(steps_completed - 1) + 1 in period.value
    )


def next_due(units: TrainingUnits, period: Period, steps_completed: int, end: int) -> int | None:
    """Return the first batch count after `steps_completed` where something is due.

    Args:
        units: What lengths come to.
        period: How often it is due.
        steps_completed: Batches trained.
        end: Counts beyond it are of no interest; None stands for them, and for never.
    """
    if period is None:
        return None
    if isinstance(period, Length):
        return _next_multiple(units, period, steps_completed)
    if isinstance(period, Epoch):
        first = units.epoch_of(steps_completed) + 1
        return _first_due(units, period, map(units.epoch_end, _from(first)), end)
    return _first_due(units, period, _from(steps_completed + 1), end)


def as_period(unit: TrainUnit | None) -> Period:
    """Return the period of a script's unit: numbers as lengths, less than 1 as 1."""
    if unit is None or not isinstance(unit.value, int):
        return unit
    length = unit.to_length()
    return Length(length.unit, max(1, length.amount))


def _next_multiple(units: TrainingUnits, period: Length, steps_completed: int) -> int | None:
    if period.amount == 0:
        return None
    if period.unit != "epochs":
        batches = units.to_batches(period)
        return (steps_completed // batches + 1) * batches
    periods = units.epoch_of(steps_completed) // period.amount
    return units.epoch_end((periods + 1) * period.amount)


def _first_due(
    units: TrainingUnits, period: TrainUnit, counts: Iterable[int], end: int
) -> int | None:
    """Return the first count that the period holds; all it is asked may be `in`, so ask each."""
    for steps in counts:
        if steps > end:
            return None
        if is_due(units, period, steps):
            return steps
    return None


def _from(first: int) -> Iterable[int]:
    return range(first, sys.maxsize)


def training_units(
    rules: Rules,
    *,
    global_batch_size: int | None,
    batches_per_pass: int | None,
) -> TrainingUnits:
    """Return the units of a trial.

    Args:
        rules: Say what an epoch is, and in which units lengths are given.
        global_batch_size: Records that all ranks train per batch, if the trial says so.
        batches_per_pass: Global batches in one pass over the training data; None if the data has
            no length.

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
            if _counts_epochs(period)
        ]
        if problems:
            raise ConfigError(problems)
    return TrainingUnits(
        # Without a batch size no length is in records: the configuration was refused otherwise.
        global_batch_size=global_batch_size or 1,
        records_per_epoch=rules.records_per_epoch if global_batch_size else None,
        batches_per_epoch=sys.maxsize if batches_per_pass is None else batches_per_pass,
    )


def _counts_epochs(period: Period) -> bool:
    if isinstance(period, Length):
        return period.unit == "epochs" and period.amount > 0
    return isinstance(period, Epoch)
