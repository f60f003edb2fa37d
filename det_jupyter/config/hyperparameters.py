"""Hyperparameters: their five forms, what can be wrong with them, and drawing a sample.

    lr: 0.05                                            a constant, like any value without `type`
    lr: {type: const, val: 0.05}
    depth: {type: int, minval: 2, maxval: 8}            both ends included
    drop: {type: double, minval: 0, maxval: 0.5}
    lr: {type: log, base: 10, minval: -4, maxval: -1}   minval and maxval are exponents
    act: {type: categorical, vals: [relu, gelu]}
    optimizer: {lr: ..., momentum: ...}                 an object without `type` nests

Samples are drawn in the order of the sorted names, however the YAML is sorted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

TYPES = ("const", "int", "double", "log", "categorical")
_KEYS = {
    "const": ({"val"}, set()),
    "int": ({"minval", "maxval"}, {"count"}),
    "double": ({"minval", "maxval"}, {"count"}),
    "log": ({"base", "minval", "maxval"}, {"count"}),
    "categorical": ({"vals"}, set()),
}


def find_problems(hparams: Mapping[str, Any], path: str = "hyperparameters") -> Iterator[str]:
    """Yield one line for everything that is wrong with the hyperparameters."""
    for name, value in hparams.items():
        here = f"{path}.{name}"
        if not isinstance(value, Mapping):
            continue
        if "type" not in value:
            yield from find_problems(value, here)
        elif value["type"] not in TYPES:
            yield f"{here}.type: got {value['type']!r}, expected one of {', '.join(TYPES)}"
        else:
            yield from _find_typed_problems(value, here)


def _find_typed_problems(spec: Mapping[str, Any], path: str) -> Iterator[str]:
    kind = spec["type"]
    required, optional = _KEYS[kind]
    for key in sorted(required - spec.keys()):
        yield f"{path}.{key}: missing; a hyperparameter of type {kind} needs it"
    for key in sorted(spec.keys() - required - optional - {"type"}):
        known = ", ".join(sorted(required | optional))
        yield f"{path}.{key}: unknown key; type {kind} has {known}"
    numbers = {key: spec[key] for key in ("minval", "maxval", "base", "count") if key in spec}
    whole = {"count"} | ({"minval", "maxval"} if kind == "int" else set())
    for key, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield f"{path}.{key}: got {value!r}, expected a number"
            return
        if key in whole and not float(value).is_integer():
            yield f"{path}.{key}: got {value!r}, expected a whole number"
            return
    if "minval" in numbers and "maxval" in numbers and not numbers["minval"] < numbers["maxval"]:
        maxval = numbers["maxval"]
        yield f"{path}.minval: got {numbers['minval']}, expected less than maxval ({maxval})"
    if numbers.get("base", 1) <= 0:
        yield f"{path}.base: got {numbers['base']}, expected a number above 0"
    if numbers.get("count", 1) < 1:
        yield f"{path}.count: got {numbers['count']}, expected at least 1"
    if kind == "categorical" and "vals" in spec and not _is_filled_list(spec["vals"]):
        yield f"{path}.vals: got {spec['vals']!r}, expected a list of at least one value"


def _is_filled_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0


def sample_hparams(hparams: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return one sample: constants as they are, every typed hyperparameter drawn.

    >>> sample_hparams({"b": {"type": "int", "minval": 1, "maxval": 2}, "a": 3}, random.Random(0))
    {'b': 2, 'a': 3}
    """
    drawn = {name: _draw(hparams[name], rng) for name in sorted(hparams)}
    return {name: drawn[name] for name in hparams}


def _draw(spec: Any, rng: random.Random) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    match spec.get("type"):
        case None:
            return sample_hparams(spec, rng)
        case "const":
            return spec["val"]
        case "int":
            return rng.randint(int(spec["minval"]), int(spec["maxval"]))
        case "double":
            return rng.uniform(spec["minval"], spec["maxval"])
        case "log":
            return float(spec["base"]) ** rng.uniform(spec["minval"], spec["maxval"])
        case "categorical":
            return rng.choice(spec["vals"])
        case other:
            raise AssertionError(f"hyperparameter type {other!r} passed validation")
