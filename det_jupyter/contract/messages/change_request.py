"""The base class of requests that change the master's state."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from det_jupyter.contract.messages.wire import Wire

Label = Annotated[str, Field(min_length=1, max_length=100)]


class ChangeRequest(Wire):
    """Base of these requests.

    Attributes:
        path: Path of its route, with the names of fields in braces.
        method: The HTTP method.
        is_repeatable: Whether it is idempotent.
        answer: Type of the answer.
    """

    path: ClassVar[str]
    answer: ClassVar[Any]
    method: ClassVar[Literal["POST", "PUT"]] = "POST"
    is_repeatable: ClassVar[bool] = True

    @classmethod
    def in_path(cls) -> set[str]:
        """Return the names of the fields that are in its path and not in its body."""
        return {name for name in cls.model_fields if f"{{{name}}}" in cls.path}

    def given(self) -> dict[str, Any]:
        """Return the fields of the body that differ from their defaults."""
        return self.model_dump(exclude_defaults=True, exclude={"kind", *self.in_path()})
