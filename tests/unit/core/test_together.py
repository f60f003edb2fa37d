"""What ranks do together: values in the order of ranks, and a failure of one on all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from det_jupyter import core
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.core.together import gather_later, on_all, run_on_chief, settle
from tests.unit.pytorch.thread_ranks import ThreadRank, run_ranks

T = TypeVar("T")

SIZE = 3


def fails_on(failing: int, rank: ThreadRank) -> Callable[[], int]:
    def compute() -> int:
        if rank.rank == failing:
            raise KeyError(f"of {failing}")
        return 10 * rank.rank

    return compute


def assert_failed(outcomes: list[Any], failing: int) -> None:
    """Check that one rank has raised its own error, and all others have named it."""
    for rank, outcome in enumerate(outcomes):
        if rank == failing:
            assert isinstance(outcome, KeyError)
        else:
            assert isinstance(outcome, PeerFailed)
            assert (outcome.rank, outcome.error) == (failing, f"KeyError: 'of {failing}'")


def total(values: list[int]) -> int:
    return sum(values)


def settled(rank: ThreadRank, failing: int, *, on_chief: bool) -> int:
    return settle(rank, fails_on(failing, rank), total, on_chief=on_chief)


CALLS: dict[str, Callable[[ThreadRank, int], Any]] = {
    "on_all": lambda rank, failing: on_all(rank, fails_on(failing, rank)),
    "on_all, local": lambda rank, failing: on_all(rank, fails_on(failing, rank), is_local=True),
    "settle": lambda rank, failing: settled(rank, failing, on_chief=False),
    "settle on the chief": lambda rank, failing: settled(rank, failing, on_chief=True),
}
VALUES = {
    "on_all": [0, 10, 20],
    "on_all, local": [0, 10, 20],
    "settle": 30,
    "settle on the chief": 30,
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("failing", [0, 1, 2, None])
def test_all_ranks_get_the_values_or_the_failure(call: str, failing: int | None) -> None:
    outcomes = run_ranks(SIZE, lambda rank: CALLS[call](rank, -1 if failing is None else failing))
    if failing is None:
        assert outcomes == [VALUES[call]] * SIZE
    else:
        assert_failed(outcomes, failing)


def test_the_chief_computes_for_all() -> None:
    assert run_ranks(SIZE, lambda rank: run_on_chief(rank, lambda: rank.rank + 7)) == [7] * SIZE
    assert_failed(run_ranks(SIZE, lambda rank: run_on_chief(rank, fails_on(0, rank))), 0)


@pytest.mark.parametrize("on_chief", [False, True])
def test_a_combination_that_fails_is_raised_on_all(on_chief: bool) -> None:
    def combine(values: list[int]) -> int:
        raise KeyError("of 0")

    def body(rank: ThreadRank) -> int:
        return settle(rank, lambda: 1, combine, on_chief=on_chief)

    outcomes = run_ranks(SIZE, body)
    if on_chief:
        assert_failed(outcomes, 0)
    else:
        assert [type(outcome) for outcome in outcomes] == [KeyError] * SIZE


def test_a_failure_within_a_failure_names_the_rank_where_it_began() -> None:
    def passes_on() -> int:
        raise PeerFailed(5, "far away")

    for outcome in run_ranks(SIZE, lambda rank: on_all(rank, passes_on)):
        assert isinstance(outcome, PeerFailed)
        assert (outcome.rank, outcome.error) == (5, "far away")


@pytest.mark.parametrize("failing", [0, 1, None])
def test_what_is_gathered_is_told_later(failing: int | None) -> None:
    def body(rank: ThreadRank) -> Any:
        result = gather_later(rank, fails_on(-1 if failing is None else failing, rank))
        assert rank.collectives >= 1
        try:
            return result()
        except (KeyError, PeerFailed) as error:
            return error

    outcomes = run_ranks(SIZE, body)
    if failing is None:
        assert outcomes == [[0, 10, 20], None, None]
    elif failing == 0:
        assert isinstance(outcomes[0], KeyError)
        assert outcomes[1:] == [None, None]
    else:
        assert isinstance(outcomes[0], PeerFailed)
        assert isinstance(outcomes[1], KeyError)
        assert outcomes[2] is None


def test_an_interrupt_waits_for_the_others_only_where_it_is_asked_to() -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    sent: list[object] = []

    class Alone(core.DistributedContext):
        def allgather(self, value: T) -> list[T]:
            sent.append(value)
            return [value]

    alone = Alone()
    with pytest.raises(KeyboardInterrupt):
        on_all(alone, interrupted)
    assert sent == []
    with pytest.raises(KeyboardInterrupt):
        on_all(alone, interrupted, catch=BaseException)
    assert len(sent) == 1
