"""Answers calls of handles that have a wrong argument with the right call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from types import FunctionType
from typing import ParamSpec, TypeVar

from det_jupyter.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)


def explains_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Have a function raise a UsageError with the right call for arguments it does not take."""
    signature = inspect.signature(function)
    name = function.__name__

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(_explain(name, [*signature.parameters], kwargs, error)) from None
        return function(*args, **kwargs)

    return call


def methods_explain_arguments(handle: _Class) -> _Class:
    """Have all public methods of a class explain their arguments."""
    for name, method in list(vars(handle).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(handle, name, explains_arguments(method))
    return handle


def _explain(
    name: str, parameters: list[str], given: Mapping[str, object], error: TypeError
) -> str:
    known = [each for each in parameters if each != "self"]
    for wrong in given:
        if wrong in known:
            continue
        if "config" in known and (path := _path_like(wrong)):
            change = f'{name}({{"{path}": {given[wrong]!r}}})'
            return f"{name}: no argument {wrong}; it takes changes of the configuration: {change}"
        if near := get_close_matches(wrong, known, n=1):
            return f"{name}: no argument {wrong}; write {name}({near[0]}={given[wrong]!r})"
        return f"{name}: no argument {wrong}; it takes {', '.join(known) or 'none'}"
    return f"{name}: {error}; it takes {', '.join(known) or 'no argument'}"


def _path_like(name: str) -> str:
    """Return the path of a key of the configuration by its last part; "" if there is none."""
    from det_jupyter.config.tree import all_paths

    paths = {path.rpartition(".")[2]: path for path in reversed(all_paths())}
    near = get_close_matches(name, paths, n=1, cutoff=0.8)
    return paths[near[0]] if near else ""
