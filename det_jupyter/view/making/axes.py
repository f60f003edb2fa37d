"""Makes the axes of pictures: their ends, their ticks, and which values they leave out. Pure.

The state of a search has its axes, and the values of its trials. The saved picture and the live
one (`labextension/src/search/`) place values on the same axes by one rule, `place_on` here and
`placeOn` in `labextension/src/model/scales.ts`. The state has no places of values: with each new
end of an axis, those of all trials would change.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from det_jupyter.contract.values.direction import Direction
from det_jupyter.view.model.search_state import Axis

_MOST_TICKS = 5
_MOST_POWERS = 8
_MOST_LABELS = 12
_MARGIN_STEPS = 50  # at most so many in a range that ends with round numbers
_HUGE = 8e307  # beyond, differences overflow


def place_on(axis: Axis, value: float) -> float:
    """Return where a value is on an axis, from 0 at its start to 1 at its end.

    Values beyond an end are placed at that end. On an axis without length, all are in the middle.
    """
    start, end = axis["start"], axis["end"]
    if axis["scale"] == "log":
        if value <= 0:
            return 0.0
        start, end, value = math.log(start), math.log(end), math.log(value)
    return min(1.0, max(0.0, (value - start) / (end - start))) if start != end else 0.5


def category_axis(name: str, labels: Sequence[str]) -> Axis:
    """Return an axis of indices of labels, each in the middle of a part of the same length."""
    every = math.ceil(len(labels) / _MOST_LABELS) or 1
    return Axis(
        name=name,
        scale="category",
        is_whole=True,
        start=-0.5,
        end=len(labels) - 0.5,
        labels=[*labels],
        ticks=[float(place) for place in range(0, len(labels), every)],
        tick_labels=[*labels[::every]],
    )


def number_axis(
    name: str, low: float, high: float, *, is_log: bool = False, is_whole: bool = False
) -> Axis:
    """Return an axis of numbers; a linear one if an end has no logarithm.

    Args:
        is_whole: Whether the values are integers.
    """
    low, high = max(low, -_HUGE), min(high, _HUGE)
    is_log = is_log and 0 < low < high
    values = _powers(low, high) if is_log else _ticks(low, high, is_whole=is_whole) or [low]
    shown = [float(f"{value:.3g}") for value in values] if is_log and not is_whole else values
    return Axis(
        name=name,
        scale="log" if is_log else "linear",
        is_whole=is_whole,
        start=low,
        end=high,
        labels=[],
        ticks=values,
        tick_labels=[tick_text(value) for value in shown],
    )


def metric_axis(name: str, values: Iterable[float | None], direction: Direction) -> Axis:
    """Return the axis of a metric, from the worst value to the best, with a margin.

    Values far worse than most are beyond its start. Otherwise one diverged trial would compress
    all others into a line. Without a value the axis has no ticks.
    """
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return {**number_axis(name, 0.0, 1.0), "ticks": [], "tick_labels": []}
    low, high = ordered[0], ordered[-1]
    first, third = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.75))
    reach = 4 * (third - first)
    if direction is Direction.MAXIMIZE:
        low = ordered[bisect_left(ordered, first - reach)] if reach > 0 else low
        return number_axis(name, *padded(low, high))
    high = ordered[bisect_right(ordered, third + reach) - 1] if reach > 0 else high
    axis = number_axis(name, *padded(low, high))
    return {**axis, "start": axis["end"], "end": axis["start"]}


def padded(low: float, high: float) -> tuple[float, float]:
    """Return a range with a margin on both sides, also if it has no width.

    The ends are round numbers, which seldom change while values come in.
    """
    pad = (high / 2 - low / 2) * 0.1 or abs(high) * 0.1 or 1.0
    low, high = max(low - pad, -_HUGE), min(high + pad, _HUGE)
    if not (step := _step((high - low) / _MARGIN_STEPS)):
        return low, high
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return _times(first, step), _times(last, step)


def _ticks(low: float, high: float, *, is_whole: bool = False) -> list[float]:
    """Return a few round numbers in the range; none if floats cannot resolve it."""
    rough = high / _MOST_TICKS - low / _MOST_TICKS
    step = _step(max(rough, 1.0) if is_whole and low < high else rough)
    if not step:
        return []
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_times(tick, step) for tick in range(first, last + 1)]


def _step(rough: float) -> float:
    """Return the next number that is 1, 2 or 5 times a power of ten; 0 if there is none."""
    if not rough > 1e-300:
        return 0.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= rough)


def _times(count: int, step: float) -> float:
    """Return the product without the error of binary fractions: 3 * 0.1 is 0.3."""
    return float(f"{count * step:.15g}")


def _powers(low: float, high: float) -> list[float]:
    """Return the powers of ten in the range; both ends if there are fewer than two."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = math.ceil((last - first + 1) / _MOST_POWERS) or 1
    powers = [float(f"1e{power}") for power in range(first, last + 1, every)]
    return powers if len(powers) > 1 else sorted({low, high})


def tick_text(value: float) -> str:
    """Return a number beside an axis: `0.25`, `5e-4`, `1e6`."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.9g}"
    mantissa, exponent = f"{value:.8e}".split("e")
    return f"{float(mantissa):.9g}e{int(exponent)}"
