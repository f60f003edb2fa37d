"""Failures of one rank, as the other ranks see them.

A rank that raises before a collective leaves the others waiting in it. So the functions here send
the failure in place of the rank's value, and every rank raises after the collective.

What gloo or NCCL say when a rank ends altogether is recognized in core/lost.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from det_jupyter.core import Context, DistributedContext
from det_jupyter.core.lost import PLACE, PeerFailed, PeerLost, is_lost_peer
from det_jupyter.words import error_text

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Sent to the other ranks in place of a value."""

    rank: int
    error: str


def settle(
    distributed: DistributedContext,
    prepare: Callable[[], T],
    combine: Callable[[list[T]], R],
    *,
    on_chief: bool,
) -> R:
    """Return `combine` of all ranks' values. Collective; a failure reaches all ranks.

    Args:
        distributed: The ranks.
        prepare: Makes this rank's value, which has to be picklable.
        combine: Gets the values in the order of ranks.
        on_chief: Let the chief alone combine, and share the result: a second collective, for
            what might come out differently on each rank (code of the user's, which may draw
            random numbers), or is too large to be sent to all ranks.

    Raises:
        PeerFailed: `prepare` or `combine` failed on another rank; there the error is the original.
    """
    mine, error = _attempt(distributed.rank, prepare)
    if on_chief:
        by_rank = distributed.gather(mine)
        outcome: R | _Failure | None = None
        if by_rank is not None:
            outcome = _first_failure(by_rank)
            if outcome is None:
                values = [value for value in by_rank if not isinstance(value, _Failure)]
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
    by_rank = distributed.gather(mine)

    def result() -> list[T] | None:
        if error is not None:
            raise error
        return None if by_rank is None else [_unless_failed(value, None) for value in by_rank]

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
    except PeerFailed as failed:  # all ranks get the one where it began
        return _Failure(failed.rank, failed.error), failed
    except Exception as error:  # raised again after the collective
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


@contextmanager
def naming_lost_peers(core: Context | None) -> Iterator[None]:
    """Tell, in a script, that it was another rank that ended; an experiment sorts it out itself.

    Raises:
        PeerLost: In place of what gloo or NCCL say of it.
    """
    try:
        yield
    except Exception as error:
        is_script = core is not None and core.info is None
        if not is_script or isinstance(error, PeerFailed) or not is_lost_peer(error):
            raise
        said = PLACE.sub("", str(error)).strip().partition("\n")[0].partition(". ")[0]
        raise PeerLost(
            f"another rank has ended, and its own error has the cause (here it shows as: {said})"
        ) from None
