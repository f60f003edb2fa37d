"""Raises errors that contain the right call, for calls of handles with wrong arguments."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature
from numbers import Integral, Real
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

from det_jupyter.client.requests import number_of
from det_jupyter.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Class = TypeVar("_Class", bound=type)
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_UNNAMED = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)
_LONGEST = 60  # characters of a value in a call; in place of a longer one there are dots


def _is_seconds(value: object) -> bool:
    return value is None or (isinstance(value, Real) and not isinstance(value, bool))


def _is_number_of_lines(value: object) -> bool:
    return value is None or (isinstance(value, Integral) and not isinstance(value, bool))


def _is_path(value: object) -> bool:
    return value is None or isinstance(value, str | os.PathLike)


# By name: arguments that no request checks, how they are checked, and what is expected.
_CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "callback": (callable, "a function, which is called with the experiment"),
    "folder": (_is_path, "the path of a folder, as text or a Path"),
    "on_tick": (callable, "a function, which is called with the experiment's data"),
    "tail": (_is_number_of_lines, "a whole number of lines, or None for all"),
    "timeout": (_is_seconds, "a number of seconds, or None"),
}


def explains_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function raise a UsageError, with the right call, for arguments it does not take."""
    signature = inspect.signature(function)
    name = function.__name__
    unnamed = {key for key, each in signature.parameters.items() if each.kind in _UNNAMED}

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            if unnamed & kwargs.keys():  # Python 3.13 binds them to `**kwargs`
                raise TypeError("a positional argument was given by name")
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise UsageError(_explain(name, signature, args, kwargs, error)) from None
        for each in given.keys() & _CHECKS.keys():
            is_right, expected = _CHECKS[each]
            if not is_right(given[each]):
                raise UsageError(f"{name}: {each}: got {given[each]!r:.60}, expected {expected}")
        return function(*args, **kwargs)

    return call


def methods_explain_arguments(handle: _Class) -> _Class:
    """Apply `explains_arguments` to all public methods of a class."""
    for name, method in list(vars(handle).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(handle, name, explains_arguments(method))
    return handle


def _explain(
    name: str,
    signature: Signature,
    args: Sequence[Any],
    given: Mapping[str, Any],
    error: TypeError,
) -> str:
    parameters = {key: each for key, each in signature.parameters.items() if key != "self"}
    args = args[len(signature.parameters) - len(parameters) :]
    known = [key for key, each in parameters.items() if each.kind in _NAMED]
    takes_any = any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values())
    unnamed = [key for key, each in parameters.items() if each.kind in _UNNAMED]
    if nameless := [key for key in unnamed if key in given]:
        right = {key: value for key, value in given.items() if key not in nameless}
        for key in nameless:
            several = parameters[key].kind is Parameter.VAR_POSITIONAL
            several &= isinstance(given[key], list | tuple)
            args = [*args, *(given[key] if several else [given[key]])]
        call = _call(name, args, right)
        return f"{name}: {' and '.join(nameless)} must be given without a name; write {call}"
    wrong = [] if takes_any else [key for key in given if key not in known]
    if not wrong:
        return f"{name}: {error}; it takes {', '.join(parameters) or 'no argument'}"
    from det_jupyter.config import path_of_change
    from det_jupyter.config.tree import paths_by_name

    takes_changes = "config" in known and parameters["config"].default is None
    changes: dict[str, Any] = {}
    right = {key: value for key, value in given.items() if key in known}
    for key in wrong:
        path, is_sure = path_of_change(key) if takes_changes else ("", False)
        near = get_close_matches(key, known)
        if path and (is_sure or not near):
            changes[path] = given[key]
        elif near:
            right[near[0]] = given[key]
        else:
            call = _call(name, [{f"hyperparameters.{key}": given[key]}], {})
            is_new = takes_changes and key not in paths_by_name()
            hint = f"; a hyperparameter is changed by {call}" if is_new else ""
            return f"{name}: no argument {key}; it takes {', '.join(parameters) or 'none'}{hint}"
    what = f"{name}: no argument {' or '.join(wrong)}"
    if not changes:
        return f"{what}; write {_call(name, args, right)}"
    before = args[0] if args else right.pop("config", None)
    changes = {**(before if isinstance(before, Mapping) else {}), **changes}
    call = _call(name, [changes, *args[1:]], right)
    return f"{what}; it takes changes of the configuration: {call}"


def _call(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> str:
    named = (f"{key}={_shown(value)}" for key, value in given.items())
    return f"{name}({', '.join([*map(_shown, args), *named])})"


def _shown(value: Any) -> str:
    """Return a value as it is written in a call; for a handle, its number."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return f"{{{', '.join(f'{json.dumps(key)}: {_shown(value[key])}' for key in value)}}}"
    if isinstance(value, type | FunctionType):
        return value.__name__
    text = repr(number_of(value))
    return text if len(text) <= _LONGEST else "..."
