"""The kinds of fields that sections are made of, and their base."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictStr,
)
from pydantic_core import PydanticCustomError

from det_jupyter.entrypoints import parse_entrypoint
from det_jupyter.lengths import MAX_AMOUNT, Length

MAX_TITLE = 200


def _refuse_lookalikes(value: Any) -> Any:
    """YAML has real numbers: a quoted "5" or a `true` in a number's place is a mistake."""
    if isinstance(value, (bool, str)):
        raise PydanticCustomError("number", "expected a number")
    return value


def _positive(length: Length) -> Length:
    if length.amount == 0:
        raise PydanticCustomError("length", "expected more than 0")
    return length


def check_entrypoint(value: Any) -> Any:
    """Return the value if it means something (entrypoints.py)."""
    is_list = isinstance(value, list) and all(isinstance(word, str) for word in value)
    if not isinstance(value, str) and not (is_list and value and value[0]):
        raise PydanticCustomError(
            "entrypoint",
            "expected a class or function of the notebook, such as MyTrial, one of a module, such "
            "as model_def:MyTrial, or a command as text or as a list of texts",
        )
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
    return int(value) if float(value).is_integer() and abs(value) <= MAX_AMOUNT else value


_TOO_LONG = f"expected at most {MAX_TITLE} characters"
Ignored = Any  # accepted as it is: it has no effect here, and `notices` say so
Text = StrictStr
Bool = StrictBool
Title = Annotated[StrictStr, BeforeValidator(_title)]
Int = Annotated[int, BeforeValidator(_refuse_lookalikes)]
Count = Annotated[Int, Field(ge=0, le=MAX_AMOUNT)]
PositiveInt = Annotated[Int, Field(ge=1, le=MAX_AMOUNT)]
Number = Annotated[float, BeforeValidator(_refuse_lookalikes), PlainSerializer(_plain_number)]
AbsolutePath = Annotated[StrictStr, Field(pattern=r"^/[^\x00]*$")]
PositiveLength = Annotated[Length, AfterValidator(_positive)]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors.

    A section is built when it is first needed: few programs look at all of them.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    @classmethod
    @cache
    def ignored_keys(cls) -> list[str]:
        """Return the keys that are accepted as they are and have no effect."""
        return [name for name, info in cls.model_fields.items() if info.annotation is Ignored]
