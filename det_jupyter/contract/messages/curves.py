"""Curves of metrics: built from records, and thinned. The only place that thins them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, cast

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.json_numbers import to_finite

BATCHES = "batches"  # the group of per-batch training metrics
# Most points kept of one curve, and of all curves of an experiment together. Each curve may have
# _FEWEST_OF_CURVE points in any case, even if that exceeds the second limit.
_MOST_OF_CURVE = 8000
_MOST_POINTS = 400_000
_FEWEST_OF_CURVE = 200
CurveKey = tuple[int, str, str]  # trial, group, metric


class Curve(Wire):
    """One metric of one trial, as parallel lists.

    A value is None where it was not a finite number; `times` are those of the reports, UTC
    seconds. `steps_per_epoch` is None if the reports do not contain epochs, as those of batches do
    not.
    """

    trial_id: int
    group: str  # training, training batches ("batches"), validation, or the user's
    name: str
    steps: list[int]
    values: list[float | None]
    times: list[float]
    steps_per_epoch: float | None = None

    @property
    def key(self) -> CurveKey:
        """Trial, group and name: unique within the experiment."""
        return self.trial_id, self.group, self.name

    def put(self, step: int, value: float | None, at: float) -> None:
        """Add a point, or replace the one that the curve has at this step.

        A point at any other step before the last one is dropped: the curve was thinned there.
        """
        if not self.steps or step > self.steps[-1]:
            self.steps.append(step)
            self.values.append(value)
            self.times.append(at)
        elif self.steps[place := bisect_left(self.steps, step)] == step:
            self.values[place], self.times[place] = value, at

    def select(self, indices: Sequence[int]) -> Curve:
        """Return a copy with the points at `indices` only."""
        return self.model_copy(
            update={
                "steps": [self.steps[i] for i in indices],
                "values": [self.values[i] for i in indices],
                "times": [self.times[i] for i in indices],
            }
        )

    def thinned(self, limit: int) -> Curve:
        """Return a copy with at most `limit` points, its landmarks in equal stretches of steps.

        A curve that is thinned repeatedly as it grows then has the same resolution everywhere.
        """
        return self.select(landmarks(self.values, limit, self.steps))


class Curves(dict[CurveKey, Curve]):
    """The curves of an experiment, to which records of metrics (as JSON) are added.

    A curve that becomes too long is thinned, so memory is bounded; its extremes are kept.
    """

    @classmethod
    def of(cls, curves: Iterable[Curve]) -> Curves:
        """Return these curves by key."""
        return cls((curve.key, curve) for curve in curves)

    def add(self, trial_id: int, record: dict[str, Any]) -> None:
        """Add the points of a record."""
        steps_per_epoch = steps_per_epoch_of(record)
        for group, name, first, values in metrics_in(record):
            key = (trial_id, group, name)
            if key not in self:
                self[key] = Curve(
                    trial_id=trial_id, group=group, name=name, steps=[], values=[], times=[]
                )
            curve = self[key]
            if curve.steps_per_epoch is None and steps_per_epoch is not None:
                curve.steps_per_epoch = steps_per_epoch
            for step, value in enumerate(values, start=first):
                curve.put(step, to_finite(value), record["at"])
            if len(curve.steps) > (limit := most_points(len(self))):
                self[key] = curve.thinned(limit // 2)

    def truncate(self, trial_id: int, steps_completed: int) -> None:
        """Delete the points of a trial after a step, at which it restarts."""
        for key, curve in self.items():
            if curve.trial_id == trial_id:
                kept = [i for i, step in enumerate(curve.steps) if step <= steps_completed]
                self[key] = curve.select(kept)


def most_points(num_curves: int) -> int:
    """Return the largest number of points of a curve, if there are `num_curves`."""
    return min(_MOST_OF_CURVE, max(_FEWEST_OF_CURVE, _MOST_POINTS // max(1, num_curves)))


def steps_per_epoch(curves: Iterable[Curve]) -> dict[int, float]:
    """Return the steps per epoch by trial id, for trials with a curve that has them."""
    return {c.trial_id: c.steps_per_epoch for c in curves if c.steps_per_epoch is not None}


def steps_per_epoch_of(record: dict[str, Any]) -> float | None:
    """Return the steps per epoch, if the record contains the number of epochs."""
    epochs = (record.get("trained") or {}).get("epochs")
    return record["steps_completed"] / epochs if epochs else None


def metrics_in(record: dict[str, Any]) -> Iterator[tuple[str, str, int, list[Any]]]:
    """Yield group, name, first step and the values from there on, of each metric of a record."""
    if record["kind"] == "batch_metrics":
        for name, values in record["values"].items():
            if values:
                yield BATCHES, name, record["first"], values
    else:
        for name, value in record["metrics"].items():
            yield record["group"], name, record["steps_completed"], [value]


def extremes(values: Sequence[float | None]) -> Iterator[int]:
    """Yield the indices of the lowest, the highest and the first non-finite value."""
    finite = finite_values(values)
    if finite:
        yield values.index(min(finite))
        yield values.index(max(finite))
    if len(finite) < len(values):
        yield values.index(None)


def finite_values(values: Sequence[float | None]) -> Sequence[float]:
    """Return the values without None."""
    if None not in values:  # usual, and cheaper than a copy
        return cast("Sequence[float]", values)
    return [value for value in values if value is not None]


def landmarks(
    values: Sequence[Any],
    limit: int,
    steps: Sequence[int] | None = None,
    extremes_of: Callable[[Any], Iterable[int]] = extremes,
) -> Sequence[int]:
    """Return the indices of at most `limit` points that keep the shape of a curve.

    Every stretch keeps its lowest, its highest and its first non-finite point, so that no spike
    and no gap is lost; the first and the last point are always kept.

    Args:
        values: The values of the curve.
        limit: At least 5.
        steps: The steps of the points, for stretches of equal numbers of steps; else the stretches
            have equal numbers of points.
        extremes_of: Returns the indices that a stretch keeps; needed if `values` is no list.
    """
    if len(values) <= limit:
        return range(len(values))
    x: Sequence[int] = range(len(values)) if steps is None else steps
    last = len(values) - 1
    kept = set[int]()
    for most_of_stretch in (2, 3):  # 3 if too many have gaps
        num_stretches = max(1, (limit - 2) // most_of_stretch)
        width = (x[last] - x[0]) / num_stretches
        ends = [bisect_left(x, x[0] + i * width, 1, last) for i in range(1, num_stretches + 1)]
        kept = {0, last}
        for start, end in pairwise([1, *ends]):
            if start < end:
                kept.update(start + offset for offset in extremes_of(values[start:end]))
        if len(kept) <= limit:
            break
    return sorted(kept)
