"""The base class of all messages, the protocol's number, and states."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

PROTOCOL = 10


class Wire(BaseModel):
    """Base of all messages: unknown fields are refused, NaN travels as a string."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    @classmethod
    def built_from(cls, source: Any, **others: Any) -> Self:
        """Return a message with the fields that it shares with a message or record, and others."""
        shared = _shared_fields(cls, source.__class__) - others.keys()
        return cls(**{name: getattr(source, name) for name in shared}, **others)


@cache
def _shared_fields(one: type[BaseModel], other: type[Any]) -> frozenset[str]:
    fields = "model_fields" if issubclass(other, BaseModel) else "__dataclass_fields__"
    return frozenset(one.model_fields.keys() & getattr(other, fields).keys())


class State(StrEnum):
    """States of experiments and trials."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    STOPPING_COMPLETED = "STOPPING_COMPLETED"
    STOPPING_CANCELED = "STOPPING_CANCELED"
    STOPPING_KILLED = "STOPPING_KILLED"
    STOPPING_ERROR = "STOPPING_ERROR"
    COMPLETED = "COMPLETED"
    CANCELED = "CANCELED"
    ERROR = "ERROR"
    DELETING = "DELETING"  # its files are being deleted; then it is gone
    DELETE_FAILED = "DELETE_FAILED"

    def __repr__(self) -> str:
        return self.value  # what `experiment.wait()` shows as a cell's result

    @property
    def is_terminal(self) -> bool:
        """Whether it is over: only a user's request can change it."""
        return self in (
            State.COMPLETED, State.CANCELED, State.ERROR, State.DELETING, State.DELETE_FAILED,
        )  # fmt: skip


class AllocationState(StrEnum):
    """States of an allocation: one period in which a trial waits for, or holds, slots."""

    QUEUED = "QUEUED"  # waits for slots
    STARTING = "STARTING"  # holds slots; its ranks are not up yet
    RUNNING = "RUNNING"  # its ranks are up
    STOPPING = "STOPPING"  # was asked to leave and still holds its slots
    ENDED = "ENDED"
