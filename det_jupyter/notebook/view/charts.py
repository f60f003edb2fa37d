"""Curves as stored, to charts as drawn: which go together, in what order, with how many points.

While there is one trial, curves of one metric share a chart, and a validation metric
`validation_x` (or `val_x`) joins the training metric `x`: they are read against each other. Of
several trials, those are read against each other, so each chart has one metric of one group. The
metric of every single batch takes the place of its own average over batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from det_jupyter.notebook.view.model import Chart, Series
from det_jupyter.wire import Curve

MAX_CHARTS = 6
NUM_LOOKS = 8  # four colours, each solid and dashed; and as many trials in one chart
MAX_POINTS = 400  # per curve
TOTAL_POINTS = 8000  # of a whole state: it crosses the network at every update
_VALIDATION_PREFIXES = ("validation_", "val_")
_TRAINING_GROUPS = ("batches", "training")


def downsample(
    steps: Sequence[int], values: Sequence[float | None], limit: int
) -> tuple[list[int], list[float | None]]:
    """Return at most `limit` points of a curve that still look like it.

    Every bucket of neighbours keeps its lowest, its highest and its first non-finite point, so no
    spike and no gap is lost; the first and the last point always stay.
    """
    if len(steps) <= limit:
        return list(steps), list(values)
    last = len(steps) - 1
    per_bucket = 3 if None in values else 2
    num_buckets = max(1, (limit - 2) // per_bucket)
    kept = {0, last}
    for bucket in range(num_buckets):
        start = 1 + bucket * (last - 1) // num_buckets
        stop = 1 + (bucket + 1) * (last - 1) // num_buckets
        kept.update(start + offset for offset in _landmarks(values[start:stop]))
    order = sorted(kept)
    return [steps[i] for i in order], [values[i] for i in order]


def _landmarks(bucket: Sequence[float | None]) -> Iterator[int]:
    finite = _finite(bucket)
    if finite:
        yield bucket.index(min(finite))
        yield bucket.index(max(finite))
    if len(finite) < len(bucket):
        yield bucket.index(None)


def _finite(values: Sequence[float | None]) -> Sequence[float]:
    if None not in values:  # nearly always: a copy of a long curve costs more than a look
        return cast("Sequence[float]", values)
    return [value for value in values if value is not None]


def _rounded(value: float | None) -> float | None:
    """Six digits are more than a screen shows, and a third of the bytes."""
    return None if value is None else float(f"{value:.6g}")


def _series(curve: Curve, *, label: str, look: int, limit: int) -> Series:
    steps, values = downsample(curve.steps, curve.values, limit)
    finite = _finite(curve.values)
    return Series(
        label=label,
        kind="line" if curve.group == "batches" else "points",
        look=look,
        steps=steps,
        values=[_rounded(value) for value in values],
        last=_rounded(curve.values[-1]),
        lowest=_rounded(min(finite, default=None)),
        highest=_rounded(max(finite, default=None)),
    )


def _without_averages(curves: Sequence[Curve]) -> list[Curve]:
    by_batch = {(c.trial_id, c.name) for c in curves if c.group == "batches"}
    return [
        curve
        for curve in curves
        if curve.steps
        and not (curve.group == "training" and (curve.trial_id, curve.name) in by_batch)
    ]


def _titles(curves: Sequence[Curve], *, together: bool) -> list[str]:
    """Return the chart of each curve; `together` puts training and validation into one."""
    names = {
        group: {curve.name for curve in curves if _group(curve) == group}
        for group in map(_group, curves)
    }
    training, validation = names.get("training", set()), names.get("validation", set())

    def title(curve: Curve) -> str:
        group = _group(curve)
        if not together:
            is_unique = sum(curve.name in members for members in names.values()) == 1
            return curve.name if is_unique else f"{curve.name} ({group})"
        if group == "validation":
            for prefix in _VALIDATION_PREFIXES:
                rest = curve.name.removeprefix(prefix)
                if rest != curve.name and rest in training and rest not in validation:
                    return rest
        return curve.name

    return [title(curve) for curve in curves]


@dataclass(frozen=True, slots=True)
class _Looks:
    """Names the curves and tells them apart: by group while there is one trial, else by trial.

    Both lists only ever grow at their end, so a curve keeps its look.
    """

    groups: list[str]
    trial_ids: list[int]

    @classmethod
    def of(cls, curves: Sequence[Curve]) -> _Looks:
        groups = dict.fromkeys(["training", "validation", *map(_group, curves)])
        return cls(list(groups), sorted({curve.trial_id for curve in curves}))

    @property
    def is_single(self) -> bool:
        return len(self.trial_ids) == 1

    def label(self, curve: Curve) -> str:
        return _group(curve) if self.is_single else f"trial {curve.trial_id}"

    def look(self, curve: Curve) -> int:
        if self.is_single:
            return self.groups.index(_group(curve)) % NUM_LOOKS
        return self.trial_ids.index(curve.trial_id) % NUM_LOOKS


def _group(curve: Curve) -> str:
    return "training" if curve.group in _TRAINING_GROUPS else curve.group


def build_charts(curves: Sequence[Curve], searcher_metric: str) -> tuple[list[Chart], list[str]]:
    """Return the charts to draw and the names of the metrics for which there was no room.

    The first training metric (`loss` before others) comes first, then the searcher's metric,
    then the rest as they were first reported. The newest trials are drawn: they still move.
    """
    curves = _without_averages(curves)
    looks = _Looks.of(curves)
    charts: dict[str, list[Curve]] = {}
    for curve, title in zip(curves, _titles(curves, together=looks.is_single), strict=True):
        charts.setdefault(title, []).append(curve)
    titles = _in_order(charts, searcher_metric)
    shown, more = titles[:MAX_CHARTS], titles[MAX_CHARTS:]
    newest = {title: _newest(charts[title]) for title in shown}
    limit = max(20, min(MAX_POINTS, TOTAL_POINTS // max(1, sum(map(len, newest.values())))))
    return [
        Chart(
            title=title,
            series=[
                _series(curve, label=looks.label(curve), look=looks.look(curve), limit=limit)
                for curve in drawn
            ],
            hidden=len(charts[title]) - len(drawn),
        )
        for title, drawn in newest.items()
    ], more


def _newest(curves: Sequence[Curve]) -> list[Curve]:
    trial_ids = sorted({curve.trial_id for curve in curves})[-NUM_LOOKS:]
    shown = [curve for curve in curves if curve.trial_id in trial_ids]
    return sorted(shown, key=lambda curve: curve.trial_id)


def _in_order(charts: dict[str, list[Curve]], searcher_metric: str) -> list[str]:
    def is_searchers(title: str) -> bool:
        return any(c.group == "validation" and c.name == searcher_metric for c in charts[title])

    training = {
        curve.name: title
        for title, curves in reversed(charts.items())
        for curve in curves
        if _group(curve) == "training"
    }
    first = training.get("loss", next(reversed(training.values()), None))
    return sorted(charts, key=lambda title: (title != first, not is_searchers(title)))
