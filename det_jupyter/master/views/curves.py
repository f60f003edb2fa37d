"""Turns stored metrics records into curves, thinned on request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from det_jupyter.records import to_finite
from det_jupyter.wire import Curve

BATCHES = "batches"  # the group of per-batch training metrics


def to_curves(
    records: Iterable[tuple[int, dict[str, Any]]], *, max_points: int | None = None
) -> list[Curve]:
    """Return every metric of every trial.

    Args:
        records: Trial and metrics record (as JSON), in the order in which they were written.
        max_points: Thin each curve to about so many points; its extremes stay.
    """
    curves: dict[tuple[int, str, str], Curve] = {}
    for trial_id, record in records:
        for group, name, step, value in _points(record):
            key = (trial_id, group, name)
            if key not in curves:
                curves[key] = Curve(trial_id=trial_id, group=group, name=name, steps=[], values=[])
            curve = curves[key]
            if curve.steps and step <= curve.steps[-1]:
                continue  # a validation that was due at a checkpoint is done anew by the next run
            curve.steps.append(step)
            curve.values.append(value)
    ordered = [curves[key] for key in sorted(curves)]
    return ordered if max_points is None else [thinned(curve, max_points) for curve in ordered]


def _points(record: dict[str, Any]) -> Iterator[tuple[str, str, int, float | None]]:
    if record["kind"] == "batch_metrics":
        for name, values in record["values"].items():
            for step, value in enumerate(values, start=record["first"]):
                yield BATCHES, name, step, to_finite(value)
    else:
        for name, value in record["metrics"].items():
            yield record["group"], name, record["steps_completed"], to_finite(value)


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
    return curve.model_copy(
        update={
            "steps": [curve.steps[i] for i in kept],
            "values": [curve.values[i] for i in kept],
        }
    )


def _extremes(values: list[float | None], begin: int, end: int) -> list[int]:
    known = [(value, i) for i in range(begin, end) if (value := values[i]) is not None]
    if not known:
        return [begin]  # a gap stays a gap
    return sorted({min(known)[1], max(known)[1]})
