"""Curves as stored, to charts as drawn: which go together, in what order, with how many points.

Curves of one metric name share a chart; a validation metric `validation_x` (or `val_x`) joins the
training metric `x`, because the two are read against each other. The metric of every single batch
takes the place of its own average over batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from det_jupyter.notebook.view.model import Chart, Series
from det_jupyter.wire import Curve

MAX_CHARTS = 6
MAX_SERIES = 8  # per chart: four colours, each solid and dashed
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
        kept.update(_landmarks(values, range(start, stop)))
    order = sorted(kept)
    return [steps[i] for i in order], [values[i] for i in order]


def _landmarks(values: Sequence[float | None], bucket: range) -> Iterable[int]:
    finite = [(value, i) for i in bucket if (value := values[i]) is not None]
    if finite:
        yield min(finite)[1]
        yield max(finite)[1]
    if len(finite) < len(bucket):
        yield next(i for i in bucket if values[i] is None)


def _rounded(value: float | None) -> float | None:
    """Six digits are more than a screen shows, and a third of the bytes."""
    return None if value is None else float(f"{value:.6g}")


def _series(curve: Curve, label: str, limit: int) -> Series:
    whole = [v if v is not None and math.isfinite(v) else None for v in curve.values]
    steps, values = downsample(curve.steps, whole, limit)
    finite = [value for value in whole if value is not None]
    return Series(
        label=label,
        kind="line" if curve.group == "batches" else "points",
        steps=steps,
        values=[_rounded(value) for value in values],
        last=_rounded(whole[-1]),
        lowest=_rounded(min(finite, default=None)),
        highest=_rounded(max(finite, default=None)),
    )


def _without_averages(curves: Sequence[Curve]) -> list[Curve]:
    by_batch = {(c.trial_id, c.name) for c in curves if c.group == "batches"}
    return [
        curve
        for curve in curves
        if curve.steps and not (curve.group == "training" and (curve.trial_id, curve.name) in by_batch)
    ]


def _titles(curves: Sequence[Curve]) -> list[str]:
    """Return the chart of each curve."""
    training = {curve.name for curve in curves if curve.group in _TRAINING_GROUPS}
    validation = {curve.name for curve in curves if curve.group == "validation"}

    def title(curve: Curve) -> str:
        if curve.group == "validation":
            for prefix in _VALIDATION_PREFIXES:
                rest = curve.name.removeprefix(prefix)
                if rest != curve.name and rest in training and rest not in validation:
                    return rest
        return curve.name

    return [title(curve) for curve in curves]


def _label(curve: Curve, num_trials: int) -> str:
    group = "training" if curve.group in _TRAINING_GROUPS else curve.group
    return group if num_trials == 1 else f"trial {curve.trial_id} · {group}"


def build_charts(curves: Sequence[Curve], searcher_metric: str) -> tuple[list[Chart], list[str]]:
    """Return the charts to draw and the names of the metrics for which there was no room.

    The first training metric (`loss` before others) comes first, then the searcher's metric,
    then the rest as they were first reported.
    """
    curves = _without_averages(curves)
    charts: dict[str, list[Curve]] = {}
    for curve, title in zip(curves, _titles(curves), strict=True):
        charts.setdefault(title, []).append(curve)
    titles = _in_order(charts, searcher_metric)
    shown, more = titles[:MAX_CHARTS], titles[MAX_CHARTS:]
    num_trials = len({curve.trial_id for curve in curves})
    num_series = sum(min(MAX_SERIES, len(charts[title])) for title in shown)
    limit = max(20, min(MAX_POINTS, TOTAL_POINTS // max(1, num_series)))
    return [_chart(title, charts[title], num_trials, limit) for title in shown], more


def _in_order(charts: dict[str, list[Curve]], searcher_metric: str) -> list[str]:
    def is_searchers(title: str) -> bool:
        return any(c.group == "validation" and c.name == searcher_metric for c in charts[title])

    training = [t for t, curves in charts.items() if any(c.group in _TRAINING_GROUPS for c in curves)]
    first = "loss" if "loss" in training else next(iter(training), None)
    return sorted(charts, key=lambda title: (title != first, not is_searchers(title)))


def _chart(title: str, curves: list[Curve], num_trials: int, limit: int) -> Chart:
    """The newest trials are shown: they are the ones still moving."""
    newest = sorted(curves, key=lambda curve: curve.trial_id)[-MAX_SERIES:]
    return Chart(
        title=title,
        series=[_series(curve, _label(curve, num_trials), limit) for curve in newest],
        hidden=len(curves) - len(newest),
    )
