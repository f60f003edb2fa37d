"""The arguments with which a rank calls a function, and checks of such functions.

def main(): ...                          core.init() returns its context
def main(core_context, hparams): ...     or any of these arguments, by name
def main(lr, width): ...                 hyperparameters, by name
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter
from types import FunctionType
from typing import Any

# Some of Determined's examples name the context `context`.
RANK_ARGUMENTS = ("core_context", "context", "hparams", "info")
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def find_function_problem(function: FunctionType, hparams: Collection[str] = ()) -> str:
    """Return why a rank cannot call the function; "" if it can.

    Args:
        function: The function.
        hparams: Names of the hyperparameters.
    """
    required = [
        each.name
        for each in _parameters(function)
        if each.default is each.empty
        and each.name not in (*RANK_ARGUMENTS, *hparams)
        and each.kind not in _VARIADIC
    ]
    if required:
        given = f"hyperparameters ({', '.join(hparams) or 'there is none'})"
        return (
            f"requires {', '.join(required)}, and ranks give only {given}, core_context, hparams "
            "and info; give the others a default"
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return "is asynchronous, and ranks have no event loop for it; write it with plain `def`"
    return ""


def call(function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    """Call the function with those `values` that are its parameters; return its result.

    >>> call(lambda hparams, lr=2: (hparams, lr), {"hparams": {}, "info": None})
    ({}, 2)
    """
    positional, named = [], {}
    for each in _parameters(function):
        if each.kind is Parameter.POSITIONAL_ONLY:
            if each.name not in values:
                break
            positional.append(values[each.name])
        elif each.name in values and each.kind not in _VARIADIC:
            named[each.name] = values[each.name]
    return function(*positional, **named)


def _parameters(function: Callable[..., Any]) -> list[Parameter]:
    return list(inspect.signature(function, follow_wrapped=False).parameters.values())
