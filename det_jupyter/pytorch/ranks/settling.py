"""Coming to one result on all ranks, of which each has a part, and any may fail at it.

A rank that raised before a collective would leave the others waiting in it. So a failure takes the
place of the value that is sent, and is raised by everybody afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from det_jupyter.core import DistributedContext
from det_jupyter.words import error_text

T = TypeVar("T")
R = TypeVar("R")


class PeerFailed(RuntimeError):
    """Another rank has failed, in what this one cannot go on without. The cause is told there.

    Args:
        rank: Which one.
        error: What it raised, in words.
    """

    def __init__(self, rank: int, error: str) -> None:
        super().__init__(rank, error)
        self.rank = rank
        self.error = error

    def __str__(self) -> str:
        return f"rank {self.rank} failed: {self.error}"


@dataclass(frozen=True, slots=True)
class _Failure:
    """What the ranks that wait for this one get in place of its value."""

    rank: int
    error: str


def settle(
    distributed: DistributedContext,
    prepare: Callable[[], T],
    combine: Callable[[list[T]], R],
    *,
    on_chief: bool,
) -> R:
    """Return what `combine` makes of all ranks' values. Collective; nobody is left waiting.

    Args:
        distributed: The ranks.
        prepare: Makes this rank's value, which has to be picklable.
        combine: Gets the values in the order of ranks.
        on_chief: Let the chief alone combine, and share the result: a second collective, for
            what might come out differently on each rank (code of the user's, which may draw
            random numbers), or is too large to be sent to everyone.

    Raises:
        PeerFailed: `prepare` or `combine` failed on another rank; there the error is the original.
    """
    mine, error = _attempt(distributed.rank, prepare)
    if on_chief:
        everyone = distributed.gather(mine)
        outcome: R | _Failure | None = None
        if everyone is not None:
            outcome = _first_failure(everyone)
            if outcome is None:
                values = [value for value in everyone if not isinstance(value, _Failure)]
                outcome, error = _attempt(distributed.rank, lambda: combine(values))
        return _unless_failed(cast("R | _Failure", distributed.broadcast(outcome)), error)
    values = [_unless_failed(value, error) for value in distributed.allgather(mine)]
    return combine(values)


def gather_later(
    distributed: DistributedContext, prepare: Callable[[], T]
) -> Callable[[], list[T] | None]:
    """Gather what `prepare` returns on every rank. Collective; it raises nothing of `prepare`'s.

    Returns:
        A function to be called inside of the next `settle`, so that all ranks hear of a failure
        there. It returns the values in the order of ranks on the chief, None elsewhere; or raises
        this rank's own error, or on the chief PeerFailed.
    """
    mine, error = _attempt(distributed.rank, prepare)
    everyone = distributed.gather(mine)

    def result() -> list[T] | None:
        if error is not None:
            raise error
        return None if everyone is None else [_unless_failed(value, None) for value in everyone]

    return result


def run_on_chief(distributed: DistributedContext, compute: Callable[[], T]) -> T:
    """Return, on all ranks, what `compute` returns on the chief. Collective.

    Raises:
        PeerFailed: It failed; on the chief the error is the original.
    """
    outcome: T | _Failure | None = None
    error: Exception | None = None
    if distributed.is_chief:
        outcome, error = _attempt(distributed.rank, compute)
    return _unless_failed(cast("T | _Failure", distributed.broadcast(outcome)), error)


def _attempt(rank: int, compute: Callable[[], T]) -> tuple[T | _Failure, Exception | None]:
    try:
        return compute(), None
    except PeerFailed as failed:  # all ranks are told of the one where it began
        return _Failure(failed.rank, failed.error), failed
    except Exception as error:  # raised again as soon as the others have heard of it
        return _Failure(rank, error_text(error)), error


def _first_failure(values: list[T | _Failure]) -> _Failure | None:
    return next((value for value in values if isinstance(value, _Failure)), None)


def _unless_failed(value: T | _Failure, error: Exception | None) -> T:
    """Return the value; raise this rank's own error, or else that of the rank which failed."""
    if error is not None:
        raise error
    if isinstance(value, _Failure):
        raise PeerFailed(value.rank, value.error)
    return value
