"""Records of metrics in, curves out: one fold for the master and for its followers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.json_numbers import to_finite

BATCHES = "batches"  # the group of per-batch training metrics
# Points that are kept of a curve, and of all curves of an experiment, unless that is too few.
_MOST_OF_CURVE = 8000
_MOST_POINTS = 400_000
_FEWEST_OF_CURVE = 200
CurveKey = tuple[int, str, str]  # trial, group, metric


class Curve(Wire):
    """One metric of one trial, as parallel lists.

    A value is None where it was not a finite number; `times` has when each point was reported.
    `steps_per_epoch` is None where the reports do not say it: batches alone do not.
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
        """What no other curve of the experiment has."""
        return self.trial_id, self.group, self.name

    def at_places(self, places: Sequence[int]) -> Curve:
        """Return the curve with these of its points alone."""
        return self.model_copy(
            update={
                "steps": [self.steps[i] for i in places],
                "values": [self.values[i] for i in places],
                "times": [self.times[i] for i in places],
            }
        )

    def thinned(self, num_stretches: int) -> Curve:
        """Return the curve with its ends, and of each stretch the lowest and the highest point.

        The stretches are equal in steps, so a curve that is thinned again and again, as it grows,
        is as fine everywhere. One without a value keeps a point: a gap stays a gap.
        """
        first, last = self.steps[0], self.steps[-1]
        kept: dict[int, tuple[int, int]] = {}  # stretch -> places of the lowest and the highest
        for place, (step, value) in enumerate(zip(self.steps, self.values, strict=True)):
            stretch = (step - first) * num_stretches // (last - first + 1)
            low, high = kept.get(stretch, (place, place))
            if value is not None:
                known_low, known_high = self.values[low], self.values[high]
                low = place if known_low is None or value < known_low else low
                high = place if known_high is None or value > known_high else high
            kept[stretch] = (low, high)
        inner = {place for places in kept.values() for place in places}
        return self.at_places(sorted({0, *inner, len(self.steps) - 1}))


class Curves(dict[CurveKey, Curve]):
    """The curves of an experiment, which grow by records of metrics (as JSON).

    They stay bounded: one that becomes too long is thinned, and all of its extremes stay.
    """

    @classmethod
    def of(cls, curves: Iterable[Curve]) -> Curves:
        """Return curves by key."""
        return cls((curve.key, curve) for curve in curves)

    def add(self, trial_id: int, record: dict[str, Any]) -> None:
        """Add the points of a record.

        A step that a curve has passed is left out: a follower had it with the curve already, or
        the next run repeated a validation that was due at the checkpoint.
        """
        steps_per_epoch = steps_per_epoch_of(record)
        for group, name, step, value in _points(record):
            key = (trial_id, group, name)
            if key not in self:
                self[key] = Curve(
                    trial_id=trial_id, group=group, name=name, steps=[], values=[], times=[]
                )
            curve = self[key]
            if curve.steps_per_epoch is None and steps_per_epoch is not None:
                curve.steps_per_epoch = steps_per_epoch
            if not curve.steps or step > curve.steps[-1]:
                curve.steps.append(step)
                curve.values.append(to_finite(value))
                curve.times.append(record["at"])
                if len(curve.steps) > (limit := most_points(len(self))):
                    self[key] = curve.thinned(limit // 4)

    def truncate(self, trial_id: int, steps_completed: int) -> None:
        """Drop the points of a trial after a step: it trains again from there."""
        for key, curve in self.items():
            if curve.trial_id == trial_id:
                kept = [i for i, step in enumerate(curve.steps) if step <= steps_completed]
                self[key] = curve.at_places(kept)


def most_points(num_curves: int) -> int:
    """Return how many points a copy of an experiment keeps of each of so many curves."""
    return min(_MOST_OF_CURVE, max(_FEWEST_OF_CURVE, _MOST_POINTS // max(1, num_curves)))


def steps_per_epoch(curves: Iterable[Curve]) -> dict[int, float]:
    """Return of each trial the steps of an epoch, where one of its curves has them."""
    return {c.trial_id: c.steps_per_epoch for c in curves if c.steps_per_epoch is not None}


def steps_per_epoch_of(record: dict[str, Any]) -> float | None:
    """Return the steps of an epoch, if the record says how many epochs its steps are."""
    epochs = (record.get("trained") or {}).get("epochs")
    return record["steps_completed"] / epochs if epochs else None


def _points(record: dict[str, Any]) -> Iterator[tuple[str, str, int, Any]]:
    """Yield group, name, step and value of each point."""
    if record["kind"] == "batch_metrics":
        for name, values in record["values"].items():
            for step, value in enumerate(values, start=record["first"]):
                yield BATCHES, name, step, value
    else:
        for name, value in record["metrics"].items():
            yield record["group"], name, record["steps_completed"], value
