"""The base class of all messages, and the version of the protocol."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

PROTOCOL = 13


class Wire(BaseModel):
    """Base of all messages: unknown fields are errors; NaN is written as a string."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    @classmethod
    def built_from(cls, source: Any, **others: Any) -> Self:
        """Return a message with the fields of `source` (a message or record), and `others`."""
        shared = _shared_fields(cls, source.__class__) - others.keys()
        return cls(**{name: getattr(source, name) for name in shared}, **others)


@cache
def _shared_fields(one: type[BaseModel], other: type[Any]) -> frozenset[str]:
    fields = "model_fields" if issubclass(other, BaseModel) else "__dataclass_fields__"
    return frozenset(one.model_fields.keys() & getattr(other, fields).keys())
