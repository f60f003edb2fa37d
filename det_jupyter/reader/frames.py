"""Parses and validates the frames that pages send; messages/pages.py documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, TypeAdapter, ValidationError

from det_jupyter.contract.documents.codec import to_text
from det_jupyter.contract.messages import Wire
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError, UsageError

MAX_COMPARED = 50  # the comparison itself has a lower limit
MIN_PERIOD_S = 0.1

Number = Annotated[StrictInt, Field(ge=0, le=2**53)]


class NoArgs(Wire):
    """The arguments of a document that has none."""


class UsageArgs(Wire):
    """The arguments of `usage`: the period at which a page gets samples."""

    period_s: Annotated[StrictFloat | StrictInt, Field(ge=MIN_PERIOD_S, le=3600)] = 1.0


class ExperimentArgs(Wire):
    """The arguments of `experiment`: its id, and the id of the trial whose details are shown."""

    experiment_id: Number
    chosen: Number | None = None


class CurvesArgs(Wire):
    """The arguments of `curves`: the experiment, and the group of its metrics."""

    experiment_id: Number
    group: Annotated[str, Field(max_length=100)]


class ComparisonArgs(Wire):
    """The arguments of `comparison`: the experiments to compare."""

    experiment_ids: Annotated[list[Number], Field(max_length=MAX_COMPARED)]


class ModelArgs(Wire):
    """A model of the registry."""

    id: Number


Args = NoArgs | UsageArgs | ExperimentArgs | CurvesArgs | ComparisonArgs | ModelArgs
DOCUMENTS: dict[str, type[Args]] = {
    "experiments": NoArgs,
    "cluster": NoArgs,
    "usage": UsageArgs,
    "experiment": ExperimentArgs,
    "curves": CurvesArgs,
    "trials": NoArgs,
    "comparison": ComparisonArgs,
    "models": NoArgs,
    "model": ModelArgs,
}


class Follow(Wire):
    """Follow a document. `version` is the one that the page has; 0: none."""

    op: Literal["follow"]
    id: Number
    document: Annotated[str, Field(max_length=100)]
    args: dict[str, Any] = {}
    version: Number = 0


class Ack(Wire):
    """Acknowledge a version of a document, and all earlier ones."""

    op: Literal["ack"]
    id: Number
    version: Number


class Unfollow(Wire):
    """Stop following a document."""

    op: Literal["leave"]
    id: Number


class Ask(Wire):
    """Ask a question about an experiment."""

    op: Literal["ask"]
    id: Number
    experiment_id: Number
    question: dict[str, Any]


class Ping(Wire):
    """Request an answer, to check that the connection works."""

    op: Literal["ping"]


Frame = Follow | Ack | Unfollow | Ask | Ping
_FRAMES: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="op")])


def parse(message: str | bytes) -> Frame:
    """Return the frame in a page's message.

    Raises:
        UsageError: The message is not a valid frame.
    """
    try:
        return _FRAMES.validate_json(message)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"a frame cannot be read: {_first(error)}") from None


def args_of(frame: Follow) -> Args:
    """Return the validated arguments of a document.

    Raises:
        UsageError: The document does not exist, or the arguments are invalid.
    """
    if frame.document not in DOCUMENTS:
        names = ", ".join(DOCUMENTS)
        raise UsageError(f"there is no document {frame.document!r}; those are: {names}")
    try:
        return DOCUMENTS[frame.document].model_validate(frame.args)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"{frame.document}: {_first(error)}") from None


def error_frame(id: int | None, error: Exception) -> str:
    """Return the frame that ends a document with an error, or that answers an invalid frame."""
    is_ours = isinstance(error, DetError)
    text = str(error) if is_ours else error_text(error)
    kind = type(error).__name__ if is_ours else DetError.__name__
    return to_text(op="error", id=id, error=text, kind=kind)


def _first(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is too deep"
    details = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, details["loc"]))
    return f"{where}: {details['msg']}" if where else str(details["msg"])
