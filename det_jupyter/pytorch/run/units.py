"""How long and how often, in a script's words: `Batch(100)`, `Epoch(1)`, `Batch([5, 30, 45])`.

A period is a number ("after every 100 batches") or a container of counts from the beginning of the
trial ("after batches 5, 30 and 45"). A configuration's lengths (config/lengths.py) also know
records; there are no containers among them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from det_jupyter.config import Length


@dataclass(frozen=True)
class TrainUnit:
    """An amount of training, or a period of it. Use `Batch` or `Epoch`.

    Args:
        value: So many; as a period less than 1 means 1, as in Determined. Or the counts, from the
            trial's beginning, after which something happens.

    Raises:
        TypeError: It is neither a whole number nor a container.
    """

    value: int | Container[int]

    def __post_init__(self) -> None:
        is_number = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not is_number and not isinstance(self.value, Container):
            raise TypeError(
                f"{type(self).__name__}: got {self.value!r}, expected a whole number, or a "
                "container of them such as [5, 30]"
            )

    def to_length(self) -> Length:
        """Return the amount as the configuration has it.

        Raises:
            TypeError: This is a container, or neither a Batch nor an Epoch.
        """
        if not isinstance(self.value, int):
            raise TypeError(f"got {self!r}, expected one number: {type(self).__name__}(100)")
        if isinstance(self, Batch):
            return Length("batches", self.value)
        if isinstance(self, Epoch):
            return Length("epochs", self.value)
        raise TypeError(f"got {self!r}, expected Batch(n) or Epoch(n)")


@dataclass(frozen=True)
class Batch(TrainUnit):
    """Batches, of all ranks together: steps of the loop."""


@dataclass(frozen=True)
class Epoch(TrainUnit):
    """Passes over the training data."""
