"""Computations of all ranks that raise an error on every rank if one of them has failed.

A rank that raises before a collective would leave the others waiting in it. The functions here
send the failure in place of the rank's value, and every rank raises after the collective: its own
error, or PeerFailed with the error of the first rank that failed. All are collective.

The errors of gloo or NCCL when a rank's process ends are recognized in peer_errors.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

from det_jupyter.contract.host.disk_space import is_no_room
from det_jupyter.contract.values.text import error_text
from det_jupyter.core.distributed import DistributedContext
from det_jupyter.core.peer_errors import PeerFailed

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Failure:
    """Sent to the other ranks in place of a value."""

    rank: int
    error: str
    no_room: bool


def on_all(
    distributed: DistributedContext,
    compute: Callable[[], T],
    *,
    is_local: bool = False,
    catch: type[BaseException] = Exception,
) -> list[T]:
    """Return the picklable results of `compute` on all ranks, in the order of ranks.

    Args:
        distributed: The ranks.
        compute: Called on each rank.
        is_local: Whether only the ranks of this computer take part.
        catch: Errors that are raised after the collective. Others are raised at once, and leave
            the other ranks waiting.
    """
    mine, error = _attempt(distributed.rank, compute, catch)
    gather = distributed.allgather_local if is_local else distributed.allgather
    return [_unless_failed(value, error) for value in gather(mine)]


def run_on_chief(
    distributed: DistributedContext,
    compute: Callable[[], T],
    *,
    catch: type[BaseException] = Exception,
) -> T:
    """Call `compute` on the chief, and return its result on all ranks."""
    outcome: T | _Failure | None = None
    error: BaseException | None = None
    if distributed.is_chief:
        outcome, error = _attempt(distributed.rank, compute, catch)
    return _unless_failed(cast("T | _Failure", distributed.broadcast(outcome)), error)


def settle(
    distributed: DistributedContext,
    prepare: Callable[[], T],
    combine: Callable[[list[T]], R],
    *,
    on_chief: bool,
) -> R:
    """Return `combine` of the results of `prepare` on all ranks, in the order of ranks.

    Args:
        distributed: The ranks.
        prepare: Called on each rank.
        combine: Called on each rank with the same list.
        on_chief: Whether only the chief combines, and sends the result to all: a second
            collective, for results that are too large to be sent to all ranks, or that code of
            the user might compute differently on each rank (random numbers).
    """
    if not on_chief:
        return combine(on_all(distributed, prepare))
    mine, error = _attempt(distributed.rank, prepare)
    by_rank = distributed.gather(mine)
    outcome: R | _Failure | None = None
    if by_rank is not None:
        outcome = next((value for value in by_rank if isinstance(value, _Failure)), None)
        if outcome is None:
            values = cast("list[T]", by_rank)
            outcome, error = _attempt(distributed.rank, lambda: combine(values))
    return _unless_failed(cast("R | _Failure", distributed.broadcast(outcome)), error)


def gather_later(
    distributed: DistributedContext, prepare: Callable[[], T]
) -> Callable[[], list[T] | None]:
    """Gather the results of `prepare` on the chief. Errors of `prepare` are not raised yet.

    Returns:
        A function to call within the next `settle`, which then raises a failure on all ranks. It
        returns the values in the order of ranks on the chief, None on other ranks. It raises this
        rank's own error, or on the chief PeerFailed.
    """
    mine, error = _attempt(distributed.rank, prepare)
    by_rank = distributed.gather(mine)

    def result() -> list[T] | None:
        if error is not None:
            raise error
        return None if by_rank is None else [_unless_failed(value, None) for value in by_rank]

    return result


@contextmanager
def local_chief_first(distributed: DistributedContext) -> Iterator[None]:
    """Run the block on the first rank of each computer, then on its other ranks. Collective.

    For files that the ranks of a computer share, such as a download:

        with local_chief_first(context.distributed):
            dataset = torchvision.datasets.MNIST(folder, download=True)

    Raises:
        RuntimeError: On the other ranks, if the block failed on the first; they do not run it.
    """
    if distributed.local_size == 1:
        yield
    elif distributed.local_rank == 0:
        failure: str | None = "was ended"
        try:
            yield
            failure = None
        except BaseException as error:  # an exit too: the other ranks raise it
            failure = f"raised {error_text(error)}"
            raise
        finally:
            distributed.broadcast_local((distributed.rank, failure))
    else:
        rank, failure = distributed.broadcast_local((-1, None))
        if failure is not None:
            raise RuntimeError(f"local_chief_first: rank {rank}, which goes first, {failure}")
        yield


def _attempt(
    rank: int, compute: Callable[[], T], catch: type[BaseException] = Exception
) -> tuple[T | _Failure, BaseException | None]:
    try:
        return compute(), None
    except PeerFailed as failed:  # send on the rank and error that it names
        return _Failure(failed.rank, failed.error, failed.no_room), failed
    except catch as error:  # raised again after the collective
        return _Failure(rank, error_text(error), is_no_room(error)), error


def _unless_failed(value: T | _Failure, error: BaseException | None) -> T:
    """Return the value; raise this rank's own error, or else PeerFailed."""
    if error is not None:
        raise error
    if isinstance(value, _Failure):
        raise PeerFailed(value.rank, value.error, value.no_room)
    return value
