"""Makes the charts of one trial: groups, orders and thins its curves. Pure.

Curves of one metric share a chart; a validation metric `validation_x` (or `val_x`) is in the chart
of the training metric `x`. Per-batch metrics replace their averages over batches.
`search_charts.py` does the same for several trials.

Ranks report many batches at once, so many points have the time of one report. The points are
spread evenly over the time since the report before (`Timelines`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from det_jupyter.contract.messages import Curve
from det_jupyter.contract.messages import steps_per_epoch as reported_epochs
from det_jupyter.contract.messages.curves import finite_values, landmarks
from det_jupyter.view.model.status_looks import ENDED, Status
from det_jupyter.view.model.trial_state import Chart, ChartSeries

MAX_CHARTS = 6
NUM_LOOKS = 8  # four colours, each solid and dashed
MAX_METRICS = 12  # columns with metrics in the table of a search
MAX_POINTS = 400  # per curve
TOTAL_POINTS = 8000  # points of all curves of a state, which is sent at every update
NO_EPOCHS: Mapping[int, float] = MappingProxyType({})
_VALIDATION_PREFIXES = ("validation_", "val_")
_TRAINING_GROUPS = ("batches", "training")


class Timelines:
    """The start times and epoch lengths of the trials whose curves are drawn together.

    If the configuration does not define an epoch, the reported epoch length is used; a single
    epoch may then be one batch longer.
    """

    def __init__(self, curves: Sequence[Curve], steps_per_epoch: Mapping[int, float]) -> None:
        self.steps_per_epoch = {**reported_epochs(curves), **steps_per_epoch}
        self._starts: dict[int, float] = {}
        for curve in curves:
            if curve.times:
                first = measured_at(curve.times, 0)
                self._starts[curve.trial_id] = min(first, self._starts.get(curve.trial_id, first))

    def seconds(self, curve: Curve, places: Iterable[int]) -> list[float]:
        """Return the times of points since the trial's first point, in seconds to 0.01 s."""
        start = self._starts.get(curve.trial_id, 0.0)
        return [round(max(0.0, measured_at(curve.times, i) - start), 2) for i in places]


def measured_at(times: Sequence[float], place: int) -> float:
    """Return the estimated time of a point, from the times at which points were reported.

    >>> [measured_at([10.0, 10.0, 12.0, 12.0], place) for place in range(4)]
    [9.0, 10.0, 11.0, 12.0]
    >>> [measured_at([13.0, 12.0], place) for place in range(2)]  # the first was reported again
    [13.0, 12.0]
    """
    time = times[place]
    first, end = bisect_left(times, time), bisect_right(times, time)
    if not first <= place < end:  # times do not ascend
        return time
    if first > 0:
        stride = (time - times[first - 1]) / (end - first)
    elif end < len(times):  # the first report is assumed to have the pace of the second
        stride = (times[end] - time) / max(1, bisect_right(times, times[end]) - end)
    else:
        stride = 0.0
    return time - stride * (end - 1 - place)


def rounded(value: float | None) -> float | None:
    """Return the value rounded to six digits, which take a third of the bytes."""
    return None if value is None else float(f"{value:.6g}")


def series_of(
    curve: Curve, *, label: str, look: int, limit: int, timelines: Timelines
) -> ChartSeries:
    places = landmarks(curve.values, limit)
    finite = finite_values(curve.values)
    return ChartSeries(
        trial_id=curve.trial_id,
        label=label,
        kind="line" if curve.group == "batches" else "points",
        look=look,
        is_faint=False,
        steps=[curve.steps[i] for i in places],
        values=[rounded(curve.values[i]) for i in places],
        seconds=timelines.seconds(curve, places),
        steps_per_epoch=timelines.steps_per_epoch.get(curve.trial_id),
        last=rounded(curve.values[-1]),
        lowest=rounded(min(finite, default=None)),
        highest=rounded(max(finite, default=None)),
    )


def without_averages(curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves that have points, without averages of metrics reported for each batch."""
    by_batch = {(c.trial_id, c.name) for c in curves if c.group == "batches"}
    return [
        curve
        for curve in curves
        if curve.steps
        and not (curve.group == "training" and (curve.trial_id, curve.name) in by_batch)
    ]


def group_of(curve: Curve) -> str:
    return "training" if curve.group in _TRAINING_GROUPS else curve.group


def names_by_group(curves: Sequence[Curve]) -> dict[str, set[str]]:
    names: dict[str, set[str]] = {}
    for curve in curves:
        names.setdefault(group_of(curve), set()).add(curve.name)
    return names


def title_among(curve: Curve, names: Mapping[str, set[str]]) -> str:
    """Return the name of a curve's metric, with its group if several groups have the metric."""
    is_unique = sum(curve.name in members for members in names.values()) == 1
    return curve.name if is_unique else f"{curve.name} ({group_of(curve)})"


def in_order(charts: dict[str, list[Curve]], searcher_metric: str) -> list[str]:
    """Return the titles in order: a training metric, the searcher metric, then the others.

    The training metric is `loss` if it exists, else the first that was reported. The others keep
    their order.
    """
    training = {
        curve.name: title
        for title, curves in reversed(charts.items())
        for curve in curves
        if group_of(curve) == "training"
    }
    first = training.get("loss", next(reversed(training.values()), None))
    return sorted(charts, key=lambda t: (t != first, not has_metric(charts[t], searcher_metric)))


def has_metric(curves: Sequence[Curve], searcher_metric: str) -> bool:
    return any(is_searchers(curve, searcher_metric) for curve in curves)


def is_searchers(curve: Curve, metric: str) -> bool:
    return curve.group == "validation" and curve.name == metric


def last_values(
    curves: Sequence[Curve], searcher_metric: str
) -> tuple[list[str], dict[int, dict[str, float | None]]]:
    """Return the names of metrics besides the searcher metric, and their last values by trial."""
    curves = [c for c in without_averages(curves) if not is_searchers(c, searcher_metric)]
    names = names_by_group(curves)
    values: dict[int, dict[str, float | None]] = {}
    found: dict[str, None] = {}
    for curve in curves:
        title = title_among(curve, names)
        found[title] = None
        values.setdefault(curve.trial_id, {})[title] = rounded(curve.values[-1])
    return list(found)[:MAX_METRICS], values


def build_charts(
    curves: Sequence[Curve], searcher_metric: str, steps_per_epoch: Mapping[int, float] = NO_EPOCHS
) -> tuple[list[Chart], list[str]]:
    """Return the charts of one trial, and the names of the metrics beyond `MAX_CHARTS`."""
    curves = without_averages(curves)
    timelines = Timelines(curves, steps_per_epoch)
    # New groups are appended, so that a curve keeps its look.
    looks = list(dict.fromkeys(["training", "validation", *map(group_of, curves)]))
    charts: dict[str, list[Curve]] = {}
    for curve, title in zip(curves, _titles(curves), strict=True):
        charts.setdefault(title, []).append(curve)
    titles = in_order(charts, searcher_metric)
    shown, more = titles[:MAX_CHARTS], titles[MAX_CHARTS:]
    num_curves = sum(len(charts[title]) for title in shown)
    limit = max(20, min(MAX_POINTS, TOTAL_POINTS // max(1, num_curves)))
    return [
        Chart(
            title=title,
            series=[
                series_of(
                    curve,
                    label=group_of(curve),
                    look=looks.index(group_of(curve)) % NUM_LOOKS,
                    limit=limit,
                    timelines=timelines,
                )
                for curve in charts[title]
            ],
            hidden=0,
        )
        for title in shown
    ], more


def no_metrics(charts: Sequence[Chart], status: Status) -> str:
    """Return why there are no charts; "" if there are some."""
    if charts:
        return ""
    if status in ENDED:
        return "No metrics were reported."
    if status in ("running", "starting"):
        return "No metrics yet: the first appear after the first training step."
    return "No metrics yet: the trial is not running."


def _titles(curves: Sequence[Curve]) -> list[str]:
    """Return the title of each curve's chart, which training and validation may share."""
    names = names_by_group(curves)
    training, validation = names.get("training", set()), names.get("validation", set())

    def title(curve: Curve) -> str:
        if group_of(curve) == "validation":
            for prefix in _VALIDATION_PREFIXES:
                rest = curve.name.removeprefix(prefix)
                if rest != curve.name and rest in training and rest not in validation:
                    return rest
        return curve.name

    return [title(curve) for curve in curves]
