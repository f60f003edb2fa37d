r"""Hyperparameters in the form that samplers work on: flat, and each of them a number.

    lr: {type: log, base: 10, minval: -4, maxval: -1}       lr          1e-4 ... 1e-1, log scale
    net: {depth: {type: int, minval: 2, maxval: 8}}         net.depth   2 ... 8
    net: {act: {type: categorical, vals: [relu, [1, 2]]}}   net.act     0 ... 1: place in vals
    net: {a.b: {type: double, minval: 0, maxval: 1}}        net.a\.b    0 ... 1
    width: 64                                               (no dimension)

Values of a categorical are represented by their index in vals, since they may be of any JSON type.
`to_hparams` converts back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.schema.hyperparameters import is_nested, is_range, leaves
from det_jupyter.searcher.change_checks import same_value

_OUTSIDE = object()


@dataclass(frozen=True, slots=True)
class Dimension:
    """A hyperparameter that is not constant."""

    name: str  # its path, with dots
    spec: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Its type: int, double, log or categorical."""
        return str(self.spec["type"])

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest value, or index in `vals`."""
        if self.kind == "categorical":
            return 0, len(self.spec["vals"]) - 1
        low, high = self.spec["minval"], self.spec["maxval"]
        if self.kind == "log":
            base = float(self.spec["base"])
            low, high = sorted((base**low, base**high))
        return (int(low), int(high)) if self.kind == "int" else (float(low), float(high))


def find_dimensions(hyperparameters: Mapping[str, Any]) -> Iterator[Dimension]:
    """Yield the hyperparameters that are not constant, sorted by name at every level.

    >>> space = {"b": {"c": {"type": "int", "minval": 1, "maxval": 2}}, "a": 3}
    >>> [(dimension.name, dimension.bounds) for dimension in find_dimensions(space)]
    [('b.c', (1, 2))]
    """
    for path, spec in leaves(hyperparameters, is_sorted=True):
        if is_range(spec):
            yield Dimension(".".join(map(_escaped, path)), spec)


def to_hparams(
    hyperparameters: Mapping[str, Any], params: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return the hyperparameters of a trial for the numbers that a sampler chose."""
    hparams: dict[str, Any] = {}
    for key, spec in hyperparameters.items():
        name = prefix + _escaped(key)
        if is_nested(spec):
            hparams[key] = to_hparams(spec, params, f"{name}.")
        elif not isinstance(spec, Mapping):
            hparams[key] = spec
        elif spec["type"] == "const":
            hparams[key] = spec["val"]
        elif spec["type"] == "categorical":
            hparams[key] = spec["vals"][int(params[name])]
        else:
            low, high = Dimension(name, spec).bounds
            # Rounding of logarithms may exceed the bounds.
            number = min(max(params[name], low), high)
            hparams[key] = int(number) if spec["type"] == "int" else float(number)
    return hparams


def to_params(
    hyperparameters: Mapping[str, Any], hparams: Mapping[str, Any]
) -> dict[str, float] | None:
    """Return the numbers of a trial's hyperparameters; None if they lie outside of the space."""
    found = dict(_find_params(hyperparameters, hparams, ""))
    return None if _OUTSIDE in found.values() else found


def _find_params(
    hyperparameters: Mapping[str, Any], hparams: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Any]]:
    for key, spec in hyperparameters.items():
        name = prefix + _escaped(key)
        if key not in hparams:
            yield name, _OUTSIDE
            continue
        value = hparams[key]
        if is_nested(spec):
            yield from _find_params(spec, value if isinstance(value, Mapping) else {}, f"{name}.")
        elif not isinstance(spec, Mapping) or spec["type"] == "const":
            constant = spec["val"] if isinstance(spec, Mapping) else spec
            if _place_of(value, [constant]) is None:
                yield name, _OUTSIDE
        else:
            yield name, _to_number(Dimension(name, spec), value)


def _to_number(dimension: Dimension, value: Any) -> Any:
    if dimension.kind == "categorical":
        place = _place_of(value, dimension.spec["vals"])
        return _OUTSIDE if place is None else place
    low, high = dimension.bounds
    return value if low <= value <= high else _OUTSIDE


def _place_of(value: Any, values: list[Any]) -> int | None:
    """Return the index of a value; 1 and true differ, and NaN equals itself."""
    texts = [_text(known) for known in values]
    if (text := _text(value)) in texts:
        return texts.index(text)
    return next((place for place, known in enumerate(values) if same_value(known, value)), None)


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _escaped(key: str) -> str:
    return key.replace("\\", "\\\\").replace(".", "\\.")
