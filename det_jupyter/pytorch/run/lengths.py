"""How long and how often, in a script and in the run.

    a script        Batch(100), Epoch(1)      Batch([5, 30, 45])
    a configuration {batches: 100}
    the run         Length("batches", 100)    Counts("batches", [5, 30, 45])

A `Length` (lengths.py) is an amount, or a period: "after every 100 batches". `Counts` are
counts from the trial's beginning: "after batches 5, 30 and 45". Only scripts have them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from det_jupyter.config import Length
from det_jupyter.contract.values.lengths import Unit


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts, from the trial's beginning, after which something is due."""

    unit: Unit
    counts: Container[int]


Period: TypeAlias = Length | Counts | None  # None and an amount of 0: never


@dataclass(frozen=True)
class TrainUnit:
    """An amount of training, or a period of it. Use `Batch` or `Epoch`.

    Args:
        value: The amount; as a period, less than 1 means 1, as in Determined. Or the counts, from
            the trial's beginning, after which something is due.

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
        """Return the amount.

        Raises:
            TypeError: The value is a container.
        """
        if not isinstance(self.value, int):
            raise TypeError(f"got {self!r}, expected one number: {type(self).__name__}(100)")
        return Length(self.unit, self.value)

    def to_period(self) -> Length | Counts:
        """Return the period."""
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
