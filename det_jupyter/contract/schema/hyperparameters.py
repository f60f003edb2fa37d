"""Hyperparameters: their forms in a configuration, checks of them, and drawing a sample.

    lr: 0.05                                            a constant, like any value without `type`
    lr: {type: const, val: 0.05}
    depth: {type: int, minval: 2, maxval: 8}            both ends included
    drop: {type: double, minval: 0, maxval: 0.5}
    lr: {type: log, base: 10, minval: -4, maxval: -1}   minval and maxval are exponents
    act: {type: categorical, vals: [relu, gelu]}
    optimizer: {lr: ..., momentum: ...}                 an object without `type` nests

Samples are drawn in the order of the sorted names at every level, whatever the order in the YAML,
from 32-bit words of the experiment's generator (seeds.py). A constant draws no words, a double or
log two, an int or categorical as many as it takes until one is within its range.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import takewhile
from random import Random
from typing import Any

from det_jupyter.contract.schema.key_paths import format_value, join_all
from det_jupyter.contract.schema.seeds import draw_below, draw_between
from det_jupyter.errors import Problem

TYPES = ("const", "int", "double", "log", "categorical")
_KEYS = {
    "const": ({"val"}, set()),
    "int": ({"minval", "maxval"}, {"count"}),
    "double": ({"minval", "maxval"}, {"count"}),
    "log": ({"base", "minval", "maxval"}, {"count"}),
    "categorical": ({"vals"}, set()),
}
_ALIASES = {  # names that other tools have for these types
    "bool": "categorical", "boolean": "categorical", "choice": "categorical",
    "constant": "const", "discrete": "categorical", "float": "double", "integer": "int",
    "log_uniform": "log", "loguniform": "log", "number": "double", "range": "int",
    "real": "double", "uniform": "double",
}  # fmt: skip
_ALL_KEYS = {"type"}.union(*(required | optional for required, optional in _KEYS.values()))
_NUMBERS = ("minval", "maxval", "base", "count")
_MOST_INTS = 2**63  # values of an int hyperparameter: two words of the generator suffice


def is_nested(spec: Any) -> bool:
    """Return whether `spec` is a mapping of further hyperparameters: it has no `type`."""
    return isinstance(spec, Mapping) and spec.get("type") is None


def is_range(spec: Any) -> bool:
    """Return whether `spec` is a range, from which a value is drawn for each trial."""
    return isinstance(spec, Mapping) and spec.get("type") in TYPES[1:]


def leaves(
    hparams: Mapping[str, Any], *, is_sorted: bool = False
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each hyperparameter that is not nested, with its keys; an empty mapping is one."""
    for name in sorted(hparams) if is_sorted else hparams:
        spec = hparams[name]
        if is_nested(spec) and spec:
            for path, leaf in leaves(spec, is_sorted=is_sorted):
                yield (name, *path), leaf
        else:
            yield (name,), spec


def ranges_in_lists(spec: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping inside a list that looks like a range, with its path.

    It is a part of a constant: nothing is drawn from it.
    """
    for index, item in enumerate(spec if isinstance(spec, list) else ()):
        for inner, leaf in leaves({"": item}):
            here = join_all((*inner[1:],))
            place = f"{path}[{index}]{'.' if here else ''}{here}"
            if is_range(leaf):
                yield place, leaf
            yield from ranges_in_lists(leaf, place)


def find_problems(hparams: Mapping[str, Any], path: str = "hyperparameters") -> Iterator[Problem]:
    """Yield all problems with the hyperparameters of a configuration."""
    lost = dict(_lost_indents(hparams))
    for name, value in hparams.items():
        here = f"{path}.{name}"
        if keys := lost.get(name):
            yield _lost_keys(here, value, keys)
            value = {**(value or {}), **{key: hparams[key] for key in keys}}
        if not isinstance(value, Mapping):
            continue
        if value.get("type") is None or any(_lost_indents(value)):
            yield from find_problems(value, here)
        elif value["type"] not in TYPES:
            yield Problem(
                f"{here}.type",
                f"got {format_value(value['type'])}, expected {_meant(value['type'])}",
            )
        else:
            yield from _find_typed_problems(value, here)


def _lost_indents(hparams: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each hyperparameter that is followed by keys of its own, with these keys.

    lr:                     lr: {type: double}
    type: double            minval: 0.1
    minval: 0.1             maxval: 1.0
    maxval: 1.0
    """
    names = list(hparams)
    for index, name in enumerate(names):
        value, after = hparams[name], names[index + 1 :]
        keys = [*takewhile(_ALL_KEYS.__contains__, after)]
        if value is None:
            kind = hparams["type"] if "type" in keys else None
            if isinstance(kind, str) and kind in (*TYPES, *_ALIASES) and len(keys) > 1:
                yield name, keys
        elif keys and {*keys} & wanting_keys(value):
            yield name, keys


def wanting_keys(spec: Any) -> set[str]:
    """Return the keys that a hyperparameter with a type still needs."""
    kind = spec.get("type") if isinstance(spec, Mapping) else None
    return _KEYS[kind][0] - spec.keys() if kind in TYPES else set()


def find_wanting(hparams: Mapping[str, Any], key: str) -> str:
    """Return the path of the last hyperparameter that lacks such a key, or has no value.

    >>> find_wanting({"lr": {"type": "double"}, "depth": 3}, "minval")
    'lr'
    """
    found = [(".".join(path), spec) for path, spec in leaves(hparams)] if key in _ALL_KEYS else []
    wanting = [path for path, spec in found if key in wanting_keys(spec)]
    return (wanting or [path for path, spec in found[-1:] if spec is None] or [""])[-1]


def _lost_keys(path: str, value: Any, keys: Sequence[str]) -> Problem:
    them, verb = ("it", "belongs") if len(keys) == 1 else ("them", "belong")
    text = f"{'has no value; ' if value is None else ''}{', '.join(keys)} {verb} below it"
    return Problem(path, text, in_yaml=f"{text}: indent {them}")


def _meant(kind: Any) -> str:
    if isinstance(kind, str) and (meant := _ALIASES.get(kind)):
        return meant
    return f"one of {', '.join(TYPES)}; a value of yours needs another key than type"


def _find_typed_problems(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    kind = spec["type"]
    required, optional = _KEYS[kind]
    # A null is the value of a constant; elsewhere it counts as not given.
    spec = {key: value for key, value in spec.items() if value is not None or key == "val"}
    for key in sorted(required - spec.keys()):
        yield Problem.missing(f"{path}.{key}", f"; a hyperparameter of type {kind} needs it")
    known = sorted(required | optional)
    for key in sorted(spec.keys() - {*known, "type"}):
        nearest = get_close_matches(key, known, n=1)
        if nearest:
            text = f"unknown key; did you mean {nearest[0]}?"
            yield Problem(f"{path}.{key}", text, f"{path}.{nearest[0]}")
        else:
            known_keys = ", ".join(known)
            yield Problem(f"{path}.{key}", f"unknown key; type {kind} has {known_keys}")
    values = spec.get("vals")
    if "vals" in spec and kind == "categorical" and not (isinstance(values, list) and values):
        yield Problem(
            f"{path}.vals", f"got {format_value(values)}, expected a list of at least one value"
        )
    numbers = {key: spec[key] for key in _NUMBERS if key in spec}
    unfit = list(_find_unfit_numbers(numbers, kind, path))
    yield from unfit or _find_empty_range(numbers, kind, path)


def _find_unfit_numbers(numbers: Mapping[str, Any], kind: str, path: str) -> Iterator[Problem]:
    whole = {"count"} | ({"minval", "maxval"} if kind == "int" else set())
    for key, value in numbers.items():
        if not _is_finite(value):
            yield Problem(f"{path}.{key}", f"got {format_value(value)}, expected a number")
        elif key in whole and value != int(value):
            yield Problem(f"{path}.{key}", f"got {format_value(value)}, expected a whole number")
        elif key == "base" and value <= 0:
            yield Problem(f"{path}.base", f"got {format_value(value)}, expected a number above 0")
        elif key == "count" and value < 1:
            yield Problem(f"{path}.count", f"got {format_value(value)}, expected at least 1")


def _find_empty_range(numbers: Mapping[str, Any], kind: str, path: str) -> Iterator[Problem]:
    """Yield the problems of the range as a whole; each number is valid by itself."""
    if not {"minval", "maxval"} <= numbers.keys():
        return
    low, high = numbers["minval"], numbers["maxval"]
    if not low < high:
        yield Problem(f"{path}.minval", f"got {low}, expected less than maxval ({high})")
    elif not _is_finite(float(high) - float(low)) or (kind == "int" and high - low >= _MOST_INTS):
        yield Problem(f"{path}.maxval", f"got {high}, expected a range that is less wide")
    elif kind == "log" and "base" in numbers:
        for key, exponent in (("minval", low), ("maxval", high)):
            if not _is_representable(numbers["base"], exponent):
                yield Problem(
                    f"{path}.{key}", f"got {exponent}, an exponent too far from 0 for a number"
                )


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that is too large for a float
        return False


def _is_representable(base: float, exponent: float) -> bool:
    try:
        return math.pow(base, exponent) > 0
    except OverflowError:
        return False


def sample_hparams(hparams: Mapping[str, Any], generator: Random) -> dict[str, Any]:
    """Return one sample: constants unchanged, a drawn value for each range.

    >>> from det_jupyter.contract.schema.seeds import make_generator
    >>> space = {"lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1}, "depth": 3}
    >>> sample_hparams(space, make_generator(0))
    {'lr': 0.004430375245218264, 'depth': 3}
    """
    drawn = {name: _draw(hparams[name], generator) for name in sorted(hparams)}
    return {name: drawn[name] for name in hparams}


def _draw(spec: Any, generator: Random) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    match spec.get("type"):
        case None:
            return sample_hparams(spec, generator)
        case "const":
            return spec["val"]
        case "int":
            low, high = int(spec["minval"]), int(spec["maxval"])
            return low + draw_below(generator, high - low + 1)
        case "double":
            return draw_between(generator, spec["minval"], spec["maxval"])
        case "log":
            exponent = draw_between(generator, spec["minval"], spec["maxval"])
            return float(spec["base"]) ** exponent
        case "categorical":
            values = spec["vals"]
            return values[draw_below(generator, len(values))]
        case other:
            raise AssertionError(f"hyperparameter type {other!r} passed validation")


def extreme_hparams(hparams: Mapping[str, Any], *, is_largest: bool) -> dict[str, Any]:
    """Return the sample that has every range at its lower end, or at its upper one.

    Of a list of values that are not all numbers it is the first, or the last.

    >>> extreme_hparams({"width": {"type": "int", "minval": 8, "maxval": 64}}, is_largest=True)
    {'width': 64}
    """
    return {name: _extreme(spec, is_largest) for name, spec in hparams.items()}


def _extreme(spec: Any, is_largest: bool) -> Any:
    if not is_range(spec):
        return extreme_hparams(spec, is_largest=is_largest) if is_nested(spec) else _constant(spec)
    if spec["type"] == "categorical":
        values = spec["vals"]
        if all(isinstance(value, int | float) for value in values):
            return (max if is_largest else min)(values)
        return values[-1 if is_largest else 0]
    end = spec["maxval" if is_largest else "minval"]
    match spec["type"]:
        case "log":
            return float(spec["base"]) ** end
        case "int":
            return int(end)
    return float(end)


def _constant(spec: Any) -> Any:
    return spec["val"] if isinstance(spec, Mapping) else spec
