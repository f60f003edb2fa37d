"""Which functions a rank can call, and what it gives to them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from det_jupyter.contract.trial.rank_arguments import call, find_function_problem

VALUES = {"core_context": 1, "hparams": 2, "info": 3}


def nothing() -> Any:
    return ()


def some(hparams: Any, info: Any) -> Any:
    return hparams, info


def positional(info: Any, hparams: Any = 9, /, core_context: Any = 9) -> Any:
    return info, hparams, core_context


def own_first(info: Any, lr: Any = 7, hparams: Any = 8, /) -> Any:
    return info, lr, hparams


def named(*hparams: Any, core_context: Any, lr: Any = 5, **info: Any) -> Any:
    return hparams, core_context, lr, info


@functools.wraps(some)
def wrapped(info: Any = 0) -> Any:
    return info


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (nothing, ()),
        (some, (2, 3)),
        (positional, (3, 2, 1)),
        (own_first, (3, 7, 8)),  # what comes after one that is not given cannot be given
        (named, ((), 1, 5, {})),
        (wrapped, 3),
    ],
)
def test_a_function_gets_what_it_has_arguments_for(
    function: Callable[..., Any], expected: Any
) -> None:
    assert call(function, VALUES) == expected
    assert find_function_problem(function) == ""  # type: ignore[arg-type]  # functions


async def waits() -> None:
    """Cannot be called."""


async def waits_and_yields() -> Any:
    yield


def yields() -> Any:
    yield


def requires(hparams: Any, lr: Any, size: Any, *rest: Any, **more: Any) -> None:
    """Cannot be called."""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (waits, "is asynchronous, and ranks"),
        (waits_and_yields, "is asynchronous, and ranks"),
        (
            requires,
            "requires size, and ranks give only hyperparameters (lr), core_context, hparams and",
        ),
    ],
)
def test_why_a_function_cannot_be_called(function: Any, problem: str) -> None:
    assert find_function_problem(function, {"lr": 1}).startswith(problem)


def test_a_function_may_yield_and_take_hyperparameters_by_name() -> None:
    assert find_function_problem(yields) == ""  # type: ignore[arg-type]  # a function
    assert find_function_problem(requires, ["lr", "size"]) == ""  # type: ignore[arg-type]
