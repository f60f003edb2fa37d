"""Makes an axis for each hyperparameter that varies, and the value of each trial on it. Pure.

A hyperparameter varies if the configuration has a range for it, or if its values differ, as after
a change of the search. Nested ones are named by their path: `optimizer.lr`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from det_jupyter.view.making.axes import category_axis, number_axis
from det_jupyter.view.model.search_state import Axis

MAX_LABEL = 24
_TYPES = ("const", "int", "double", "log", "categorical")
_HUGE = 1e300
_MISSING = object()

Path = tuple[str, ...]


def place_trials(
    space: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]
) -> tuple[list[Axis], list[list[float | None]]]:
    """Return the axes and, for each sample, its value on each of them."""
    if not space and samples:
        # The configuration has no ranges: the hyperparameters of the trials are the axes.
        space = samples[0]
    axes: list[Axis] = []
    columns: list[list[float | None]] = []
    for path, spec in leaves(space):
        values = [_value_at(sample, path) for sample in samples]
        if not (_is_varied(spec) or any(value != values[0] for value in values)):
            continue
        axis, places = _placed(".".join(path), spec, values)
        axes.append(axis)
        columns.append(places)
    return axes, [list(row) for row in zip(*columns, strict=True)] or [[] for _ in samples]


def value_text(axis: Axis, place: float | None) -> str:
    """Format the value at a place of an axis.

    >>> value_text(number_axis("depth", 1, 9, is_whole=True), 4.0)
    '4'
    """
    if place is None:
        return "-"
    if axis["scale"] == "category":
        return axis["labels"][int(place)]
    return f"{place:.0f}" if axis["is_whole"] else f"{place:.4g}"


def leaves(space: Mapping[str, Any], above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield path and value (or range) of each hyperparameter in nested mappings."""
    for name, spec in space.items():
        if isinstance(spec, Mapping) and spec.get("type") not in _TYPES:
            yield from leaves(spec, (*above, str(name)))
        else:
            yield (*above, str(name)), spec


def _value_at(sample: Any, path: Path) -> Any:
    for name in path:
        if not isinstance(sample, Mapping) or name not in sample:
            return _MISSING
        sample = sample[name]
    return sample


def _is_varied(spec: Any) -> bool:
    return isinstance(spec, Mapping) and spec["type"] != "const"


def _placed(name: str, spec: Any, values: Sequence[Any]) -> tuple[Axis, list[float | None]]:
    """Return the axis of a hyperparameter, and each value's place on it; None for _MISSING."""
    kind = spec["type"] if _is_varied(spec) else None
    allowed = spec.get("vals", []) if kind == "categorical" else []
    present = [value for value in values if value is not _MISSING]
    numbers = [float(value) for value in present if _is_number(value)]
    if kind == "categorical" or len(numbers) < len(present):
        texts = dict.fromkeys(map(_text, [*allowed, *present]))
        indexes = {text: float(index) for index, text in enumerate(texts)}
        axis = category_axis(name, [_label(text) for text in texts])
        return axis, [None if v is _MISSING else indexes[_text(v)] for v in values]
    ends = [end for end in _ends(spec) if math.isfinite(end)] if kind else []
    low, high = min([*ends, *numbers], default=0.0), max([*ends, *numbers], default=1.0)
    is_whole = kind != "double" and all(value.is_integer() for value in [low, high, *numbers])
    axis = number_axis(name, low, high, is_log=kind == "log", is_whole=is_whole)
    digits = 17 if is_whole else 6
    return axis, [None if v is _MISSING else float(f"{v:.{digits}g}") for v in values]


def _ends(spec: Mapping[str, Any]) -> list[float]:
    ends = [float(spec.get("minval", 0)), float(spec.get("maxval", 1))]
    if spec["type"] != "log":
        return ends
    try:
        return [float(spec.get("base", 10)) ** end for end in ends]
    except OverflowError:
        return []


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < _HUGE


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _label(text: str) -> str:
    """Return a text without its middle if it is long: long ones often differ at their end."""
    half = MAX_LABEL // 2
    return text if len(text) <= MAX_LABEL else f"{text[: half - 1]}…{text[-half:]}"
