"""Takes objects apart as pickling does: the state that an object gives, not all that it has."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what pickling `value` would pickle next, each with its step on the way there.

    A step is written as Python writes it (`.name`, `['key']`, `[0]`), or empty if it has no way.
    """
    match value:
        case dict():
            for key, item in value.items():
                yield f"[{key!r}]", item
        case list() | tuple():
            for index, item in enumerate(value):
                yield f"[{index}]", item
        case set() | frozenset():
            for item in value:
                yield "{...}", item
        case types.FunctionType():
            yield from _parts_of_function(value)
        case types.MethodType():
            yield "", value.__self__
            yield "", value.__func__
        case functools.partial():
            yield ".func", value.func
            yield ".args", value.args
            yield ".keywords", value.keywords
        case staticmethod() | classmethod():
            yield "", value.__func__
        case property():
            for function in (value.fget, value.fset, value.fdel):
                yield "", function
        case type():
            for name, item in list(vars(value).items()):
                if name not in ("__dict__", "__weakref__", "_abc_impl"):
                    yield f".{name}", item
            for base in value.__bases__:
                yield f"<{base.__name__}>", base
        case _:
            yield from _parts_of_object(value)


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f".<locals>.{name}", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = function.__defaults__ or ()
    positional = function.__code__.co_varnames[: function.__code__.co_argcount]
    keyword = (function.__kwdefaults__ or {}).items()
    for name, item in (*zip(positional[::-1], defaults[::-1], strict=False), *keyword):
        yield f"({name}=...)", item
    for name, item in vars(function).items():
        yield f".{name}", item


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    reduced = _reduction(value)
    if not isinstance(reduced, tuple):
        return
    _, args, *rest = reduced
    state, items, pairs = (*rest, None, None, None)[:3]
    for part in args:
        if not isinstance(part, type):
            yield "", part
    slots: dict[str, Any] = {}
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state, slots = state
    attributes = (state if isinstance(state, dict) else {}) | slots
    for name, item in attributes.items():
        yield f".{name}", item
    if state is not None and not isinstance(state, dict):
        yield "", state
    for index, item in enumerate(items or ()):
        yield f"[{index}]", item
    for key, item in pairs or ():
        yield f"[{key!r}]", item


def _reduction(value: Any) -> Any:
    try:
        return value.__reduce_ex__(5)
    except Exception:  # it cannot be pickled: then it has no parts, it is the culprit
        return None
