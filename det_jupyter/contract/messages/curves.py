"""Builds curves from records of metrics, in the master and in the clients that follow it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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

    def select(self, indices: Sequence[int]) -> Curve:
        """Return a copy with the points at `indices` only."""
        return self.model_copy(
            update={
                "steps": [self.steps[i] for i in indices],
                "values": [self.values[i] for i in indices],
                "times": [self.times[i] for i in indices],
            }
        )

    def thinned(self, num_buckets: int) -> Curve:
        """Return a copy with both ends, and the lowest and the highest point of each bucket.

        The buckets are equal in steps, so a curve that is thinned repeatedly as it grows has the
        same resolution everywhere. A bucket without any value keeps one point: a gap stays a gap.
        """
        first, last = self.steps[0], self.steps[-1]
        kept: dict[int, tuple[int, int]] = {}  # bucket -> indices of its lowest and highest point
        for index, (step, value) in enumerate(zip(self.steps, self.values, strict=True)):
            bucket = (step - first) * num_buckets // (last - first + 1)
            low, high = kept.get(bucket, (index, index))
            if value is not None:
                known_low, known_high = self.values[low], self.values[high]
                low = index if known_low is None or value < known_low else low
                high = index if known_high is None or value > known_high else high
            kept[bucket] = (low, high)
        inner = {index for extremes in kept.values() for index in extremes}
        return self.select(sorted({0, *inner, len(self.steps) - 1}))


class Curves(dict[CurveKey, Curve]):
    """The curves of an experiment, to which records of metrics (as JSON) are added.

    A curve that becomes too long is thinned, so memory is bounded; its extremes are kept.
    """

    @classmethod
    def of(cls, curves: Iterable[Curve]) -> Curves:
        """Return these curves by key."""
        return cls((curve.key, curve) for curve in curves)

    def add(self, trial_id: int, record: dict[str, Any]) -> None:
        """Add the points of a record.

        What is reported again at a step replaces the value that the curve has there. Any other
        step before the last one is left out: it was thinned out.
        """
        steps_per_epoch = steps_per_epoch_of(record)
        for group, name, step, value in points_of(record):
            key = (trial_id, group, name)
            if key not in self:
                self[key] = Curve(
                    trial_id=trial_id, group=group, name=name, steps=[], values=[], times=[]
                )
            curve = self[key]
            if curve.steps_per_epoch is None and steps_per_epoch is not None:
                curve.steps_per_epoch = steps_per_epoch
            if curve.steps and step <= curve.steps[-1]:
                place = bisect_left(curve.steps, step)
                if curve.steps[place] == step:
                    curve.values[place], curve.times[place] = to_finite(value), record["at"]
            else:
                curve.steps.append(step)
                curve.values.append(to_finite(value))
                curve.times.append(record["at"])
                if len(curve.steps) > (limit := most_points(len(self))):
                    self[key] = curve.thinned(limit // 4)

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


def points_of(record: dict[str, Any]) -> Iterator[tuple[str, str, int, Any]]:
    """Yield group, name, step and value of each point."""
    if record["kind"] == "batch_metrics":
        for name, values in record["values"].items():
            for step, value in enumerate(values, start=record["first"]):
                yield BATCHES, name, step, value
    else:
        for name, value in record["metrics"].items():
            yield record["group"], name, record["steps_completed"], value
