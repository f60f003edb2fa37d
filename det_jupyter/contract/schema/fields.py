"""Types of the fields in configuration sections, and the base class of sections."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    StrictBool,
    StrictStr,
    Tag,
)
from pydantic_core import PydanticCustomError

from det_jupyter.contract.values.bounds import MAX_COUNT
from det_jupyter.contract.values.entrypoints import parse_entrypoint
from det_jupyter.contract.values.lengths import Length

MAX_TITLE = 200


def _refuse_non_numbers(value: Any) -> Any:
    """Refuse a quoted "5" and `true`, which pydantic would convert to numbers."""
    if isinstance(value, (bool, str)):
        raise PydanticCustomError("number", "expected a number")
    return value


def _positive(length: Length) -> Length:
    if length.amount == 0:
        raise PydanticCustomError("length", "expected more than 0")
    return length


def _shape_of_entrypoint(value: Any) -> str:
    return "words" if isinstance(value, (list, tuple)) else "text"


def _entrypoint_text(value: Any) -> Any:
    if isinstance(value, str):
        return _parseable(value)
    meant = ""
    if isinstance(value, Mapping) and len(value) == 1:  # `entrypoint: {model_def: Trial}`
        (module, name), *_ = value.items()
        meant = f"; write {module}:{name}" if isinstance(name, str) else ""
    raise PydanticCustomError("entrypoint", "{reason}", {"reason": _ENTRYPOINT + meant})


def _word(value: Any) -> Any:
    if isinstance(value, str) and "\0" not in value:
        return value
    needed = "expected text"
    if type(value) in (int, float):
        needed = f'expected text; write "{value}"'
    elif isinstance(value, str):
        needed = "expected text without the character #x0000"
    raise PydanticCustomError("entrypoint", "{reason}", {"reason": needed})


def _parseable(value: str | list[str]) -> str | list[str]:
    """Return an entrypoint unchanged, if it can be parsed (entrypoints.py)."""
    if isinstance(value, list) and not (value and value[0].strip()):
        reason = "expected a command: the name of a program, and what it is given"
        raise PydanticCustomError("entrypoint", "{reason}", {"reason": reason})
    try:
        parse_entrypoint(value)
    except ValueError as error:
        raise PydanticCustomError("entrypoint", "{reason}", {"reason": str(error)}) from None
    return value


def _title(value: Any) -> Any:
    if isinstance(value, str) and (not value.strip() or not value.isprintable()):
        raise PydanticCustomError("title", "expected one line of text that is not empty")
    if isinstance(value, str) and len(value) > MAX_TITLE:
        raise PydanticCustomError("title", "{reason}", {"reason": _TOO_LONG})
    return value


def _plain_number(value: float) -> Any:
    return int(value) if float(value).is_integer() and abs(value) <= MAX_COUNT else value


_ENTRYPOINT = (
    "expected a class or function of the notebook, such as MyTrial, one of a module, such as "
    "model_def:MyTrial, or a command as text or as a list of texts"
)
_TOO_LONG = f"expected at most {MAX_TITLE} characters"
Ignored = Any  # a key of Determined without effect here, which `notices` reports
Text = StrictStr
Bool = StrictBool
Title = Annotated[StrictStr, BeforeValidator(_title)]
Int = Annotated[int, BeforeValidator(_refuse_non_numbers)]
Count = Annotated[Int, Field(ge=0, le=MAX_COUNT)]
PositiveInt = Annotated[Int, Field(ge=1, le=MAX_COUNT)]
Number = Annotated[float, BeforeValidator(_refuse_non_numbers), PlainSerializer(_plain_number)]
AbsolutePath = Annotated[StrictStr, Field(pattern=r"^/[^\x00]*$")]
EntrypointValue = Annotated[
    Annotated[str, BeforeValidator(_entrypoint_text), Tag("text")]
    | Annotated[
        list[Annotated[str, BeforeValidator(_word)]], AfterValidator(_parseable), Tag("words")
    ],
    Discriminator(_shape_of_entrypoint),
]
PositiveLength = Annotated[Length, AfterValidator(_positive)]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors.

    The validator of a section is built at its first use: few programs use all of them.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    @classmethod
    @cache
    def ignored_keys(cls) -> list[str]:
        """Return the keys that are accepted and have no effect."""
        return [name for name, info in cls.model_fields.items() if info.annotation is Ignored]


def as_number(value: Any) -> float | None:
    """Return the value if it is a finite number and no bool, else None."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and math.isfinite(value) else None


def as_whole(value: Any) -> int | None:
    """Return the value as an int if it is a whole number, else None."""
    found = as_number(value)
    return int(found) if found is not None and float(found).is_integer() else None
