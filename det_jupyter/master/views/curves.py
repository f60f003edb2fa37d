"""Turns stored metrics records into curves, thinned on request. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from det_jupyter.wire import Curve, Curves


def to_curves(
    records: Iterable[tuple[int, dict[str, Any]]], *, max_points: int | None = None
) -> list[Curve]:
    """Return every metric of every trial.

    Args:
        records: Trial and metrics record (as JSON), in the order in which they were written.
        max_points: Thin each curve to about this many points; its extremes stay.
    """
    curves = Curves()
    for trial_id, record in records:
        curves.add(trial_id, record)
    ordered = [curves[key] for key in sorted(curves)]
    return ordered if max_points is None else [thinned(curve, max_points) for curve in ordered]


def thinned(curve: Curve, max_points: int) -> Curve:
    """Return the curve with the first and last point, and of each stretch the lowest and highest.

    Args:
        curve: Any curve.
        max_points: At least 4.
    """
    num_points = len(curve.steps)
    if num_points <= max_points:
        return curve
    num_stretches = (max_points - 2) // 2
    inner = num_points - 2
    bounds = [1 + inner * i // num_stretches for i in range(num_stretches + 1)]
    kept = [0]
    for begin, end in pairwise(bounds):
        kept += _extremes(curve.values, begin, end)
    kept.append(num_points - 1)
    return curve.at_places(kept)


def _extremes(values: list[float | None], begin: int, end: int) -> list[int]:
    known = [(value, i) for i in range(begin, end) if (value := values[i]) is not None]
    if not known:
        return [begin]  # a gap stays a gap
    return sorted({min(known)[1], max(known)[1]})
