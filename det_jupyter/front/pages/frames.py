"""What pages send, checked; messages/pages.py explains the frames."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, TypeAdapter, ValidationError

from det_jupyter.contract.messages import Wire
from det_jupyter.errors import UsageError

MAX_COMPARED = 50  # of which the comparison itself refuses most
MIN_PERIOD_S = 0.1

Number = Annotated[StrictInt, Field(ge=0, le=2**53)]


class NoArgs(Wire):
    """The topic is one for all."""


class UsageArgs(Wire):
    """How often samples are asked for."""

    period_s: Annotated[StrictFloat | StrictInt, Field(ge=MIN_PERIOD_S, le=3600)] = 1.0


class ExperimentArgs(Wire):
    """An experiment, and the trial of it that is chosen."""

    experiment_id: Number
    chosen: Number | None = None


class ComparisonArgs(Wire):
    """Experiments side by side."""

    experiment_ids: Annotated[list[Number], Field(max_length=MAX_COMPARED)]


Args = NoArgs | UsageArgs | ExperimentArgs | ComparisonArgs
TOPICS: dict[str, type[Args]] = {
    "experiments": NoArgs,
    "cluster": NoArgs,
    "usage": UsageArgs,
    "experiment": ExperimentArgs,
    "trials": NoArgs,
    "comparison": ComparisonArgs,
}


class Follow(Wire):
    """Follow a topic; `since` is the number of the last news that was seen."""

    op: Literal["follow"]
    id: Number
    topic: Annotated[str, Field(max_length=100)]
    args: dict[str, Any] = {}
    since: Number = 0


class Ack(Wire):
    """These news, and those before, have arrived."""

    op: Literal["ack"]
    id: Number
    seq: Number


class Leave(Wire):
    """Follow it no more."""

    op: Literal["leave"]
    id: Number


class Ask(Wire):
    """A question about an experiment."""

    op: Literal["ask"]
    id: Number
    experiment_id: Number
    question: dict[str, Any]


class Ping(Wire):
    """Is anybody there?"""

    op: Literal["ping"]


Frame = Follow | Ack | Leave | Ask | Ping
_FRAMES: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="op")])


def parse(message: str | bytes) -> Frame:
    """Return the frame that a page sent.

    Raises:
        UsageError: It is none.
    """
    try:
        return _FRAMES.validate_json(message)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"a frame cannot be read: {_first(error)}") from None


def args_of(frame: Follow) -> Args:
    """Return the arguments of a topic.

    Raises:
        UsageError: There is no such topic, or it has others.
    """
    if frame.topic not in TOPICS:
        raise UsageError(f"there is no topic {frame.topic!r}; those are: {', '.join(TOPICS)}")
    try:
        return TOPICS[frame.topic].model_validate(frame.args)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"{frame.topic}: {_first(error)}") from None


def _first(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is too deep"
    details = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, details["loc"]))
    return f"{where}: {details['msg']}" if where else str(details["msg"])
