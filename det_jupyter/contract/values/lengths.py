"""Amounts of training in batches, records or epochs, and their conversion to batches.

A Length is written as `{epochs: 6}` everywhere: in configurations, records, plans and commands.

    records r     r // global_batch_size, at least 1
    epochs  e     e * records_per_epoch // global_batch_size   when records_per_epoch is known,
                  e * batches_per_epoch                        otherwise; at least 1

The end of each epoch is rounded by itself, so errors do not add up: with 1437 records and batches
of 64, epochs end after 22, 44, 67, 89, 112 and 134 batches. A batch is a global batch, of all
ranks together; `batches_per_epoch` of them are one pass over the training data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from det_jupyter.contract.values.bounds import MAX_COUNT

Unit = Literal["batches", "records", "epochs"]
UNITS: tuple[Unit, ...] = ("batches", "records", "epochs")


@dataclass(frozen=True, slots=True)
class Length:
    """An amount of training in one unit; zero means never."""

    unit: Unit
    amount: int

    def to_document(self) -> dict[str, int]:
        """Return the mapping that a configuration has for it.

        >>> Length("epochs", 6).to_document()
        {'epochs': 6}
        """
        return {self.unit: self.amount}

    def comparable_amount(self, other: Length | None) -> int:
        """Return the amount of `other` if it has the same unit, else 0."""
        return other.amount if other is not None and other.unit == self.unit else 0

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}"

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _type: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Have pydantic read a length by `parse_length` and write it by `to_document`."""
        write = core_schema.plain_serializer_function_ser_schema(cls.to_document)
        return core_schema.no_info_plain_validator_function(_validated, serialization=write)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of the forms that `parse_length` reads."""
        amount = {"type": "integer", "minimum": 0}
        forms = [
            {
                "type": "object",
                "properties": {unit: amount},
                "required": [unit],
                "additionalProperties": False,
            }
            for unit in UNITS
        ]
        return {"anyOf": [amount, *forms]}


def _validated(value: Any) -> Length:
    try:
        return parse_length(value)
    except ValueError as error:
        raise PydanticCustomError("length", "{reason}", {"reason": str(error)}) from None


def parse_length(value: Any) -> Length:
    """Return the Length that `{unit: amount}`, or a bare number of batches, stands for.

    Raises:
        ValueError: The value is neither; the message says what is expected.
    """
    if isinstance(value, Length):
        return value
    unit, amount = ("batches", value)
    if isinstance(value, dict) and len(value) == 1:
        unit, amount = next(iter(value.items()))
    if unit in UNITS and _is_whole(amount):
        if amount > MAX_COUNT:
            raise ValueError(f"expected at most {MAX_COUNT} {unit}")
        return Length(unit, int(amount))
    raise ValueError(
        'expected exactly one of "batches", "records" or "epochs" with a whole number '
        "that is not negative, such as {epochs: 6}"
    )


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value >= 0 and (isinstance(value, int) or value.is_integer())


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingUnits:
    """Converts lengths into batches, for one trial.

    >>> units = TrainingUnits(global_batch_size=64, records_per_epoch=1437, batches_per_epoch=23)
    >>> [units.epoch_end(k) for k in range(7)]
    [0, 22, 44, 67, 89, 112, 134]
    """

    global_batch_size: int
    batches_per_epoch: int
    records_per_epoch: int | None = None

    def epoch_end(self, epochs: int) -> int:
        """Return the number of batches in the first `epochs` epochs."""
        if epochs == 0:
            return 0
        if self.records_per_epoch:
            return max(epochs, epochs * self.records_per_epoch // self.global_batch_size)
        return epochs * self.batches_per_epoch

    def to_batches(self, length: Length) -> int:
        """Return the number of batches in `length`: at least 1, unless the length is 0."""
        if length.amount == 0:
            return 0
        match length.unit:
            case "batches":
                return length.amount
            case "records":
                return max(1, length.amount // self.global_batch_size)
            case "epochs":
                return self.epoch_end(length.amount)

    def trained(self, steps_completed: int) -> dict[str, float]:
        """Return the amount of training after `steps_completed` batches, in each unit."""
        epoch = self.epoch_of(steps_completed)
        start, end = self.epoch_end(epoch), self.epoch_end(epoch + 1)
        return {
            "batches": steps_completed,
            "records": steps_completed * self.global_batch_size,
            "epochs": epoch + (steps_completed - start) / (end - start),
        }

    def epoch_of(self, batch_idx: int) -> int:
        """Return the epoch that the batch with this index (from 0) belongs to."""
        if not self.records_per_epoch:
            return batch_idx // self.batches_per_epoch
        # The number of epochs whose exact end is before the end of this batch.
        records = (batch_idx + 1) * self.global_batch_size
        return min(batch_idx, (records - 1) // self.records_per_epoch)

    def is_epoch_start(self, batch_idx: int) -> bool:
        """Return whether this batch is the first of its epoch."""
        return self.epoch_end(self.epoch_of(batch_idx)) == batch_idx

    def is_epoch_end(self, batch_idx: int) -> bool:
        """Return whether this batch is the last of its epoch."""
        return self.epoch_end(self.epoch_of(batch_idx) + 1) == batch_idx + 1

    def is_boundary(self, period: Length, steps_completed: int) -> bool:
        """Return whether a period of this length ends exactly after `steps_completed` batches."""
        if period.amount == 0 or steps_completed == 0:
            return False
        if period.unit != "epochs":
            return steps_completed % self.to_batches(period) == 0
        epochs = self.epoch_of(steps_completed)  # the next batch's: those before it are complete
        return self.epoch_end(epochs) == steps_completed and epochs % period.amount == 0
