"""Makes the charts of a search, which compare trials: one for each metric of each group. Pure.

The best trials and the chosen one have colours. Some others are drawn faintly behind them for
comparison. The rest is left out and counted, because a thousand curves cannot be read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from det_jupyter.contract.messages import Curve
from det_jupyter.view.making.charts import (
    NO_EPOCHS,
    Timelines,
    has_metric,
    in_order,
    names_by_group,
    rounded,
    series_of,
    title_among,
    without_averages,
)
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.model.search_state import SearchState
from det_jupyter.view.model.trial_state import Chart, ChartSeries

MAX_CHARTS = 4
NUM_BEST = 4  # number of trials whose curves have a colour of their own
NUM_FAINT = 20
MAX_POINTS = 100  # per curve
MAX_FAINT_POINTS = 24


def compare_trials(
    curves: Sequence[Curve],
    search: SearchState,
    chosen_id: int | None,
    steps_per_epoch: Mapping[int, float] = NO_EPOCHS,
) -> tuple[list[Chart], list[str]]:
    """Return the charts of a search, and the names of the metrics beyond `MAX_CHARTS`.

    The chart of the searcher metric comes first.
    """
    looks, faint = choose_trials(search, chosen_id)
    names = names_by_group([curve for curve in curves if curve.steps])
    drawn = without_averages([c for c in curves if c.trial_id in looks | faint])
    charts = by_title(drawn, names, search["metric"])
    titles, timelines = list(charts), Timelines(drawn, steps_per_epoch)
    return [
        Chart(
            title=title,
            series=_series(charts[title], looks, timelines),
            hidden=len(search["rows"]) - len(charts[title]),
        )
        for title in titles[:MAX_CHARTS]
    ], titles[MAX_CHARTS:]


def by_title(
    curves: Sequence[Curve], names: dict[str, set[str]], metric: str
) -> dict[str, list[Curve]]:
    """Return the curves of each chart, the chart of the searcher metric first."""
    charts: dict[str, list[Curve]] = {}
    for curve in curves:
        charts.setdefault(title_among(curve, names), []).append(curve)
    titles = in_order(charts, metric)
    titles.sort(key=lambda title: not has_metric(charts[title], metric))
    return {title: charts[title] for title in titles}


def choose_trials(
    search: SearchState, chosen_id: int | None
) -> tuple[dict[int, int], dict[int, None]]:
    """Return the looks of trials with a colour, and the ids of the faint ones.

    A trial's look is derived from its id, so it seldom changes when other trials become better.
    """
    order = ranked(search)
    best = [row["id"] for row in order if row["best"] is not None][:NUM_BEST]
    looks: dict[int, int] = {}
    for trial_id in sorted(best):
        wanted = trial_id % NUM_BEST
        free = [(wanted + shift) % NUM_BEST for shift in range(NUM_BEST)]
        looks[trial_id] = next(look for look in free if look not in looks.values())
    if chosen_id is not None:
        looks.setdefault(chosen_id, NUM_BEST)
    active_first = sorted(order, key=lambda row: not row["num_slots"])
    others = [row["id"] for row in active_first if row["id"] not in looks]
    return looks, dict.fromkeys(others[:NUM_FAINT])


def _series(
    curves: Sequence[Curve], looks: dict[int, int], timelines: Timelines
) -> list[ChartSeries]:
    """Return the curves, the faint ones first, so that they are drawn behind the others."""
    faint = [_faint(curve, timelines) for curve in curves if curve.trial_id not in looks]
    clear = [curve for curve in curves if curve.trial_id in looks]
    return faint + [
        series_of(
            c, label=_label(c), look=looks[c.trial_id], limit=MAX_POINTS, timelines=timelines
        )
        for c in sorted(clear, key=lambda curve: looks[curve.trial_id])
    ]


def _label(curve: Curve) -> str:
    return f"trial {curve.trial_id}"


def _faint(curve: Curve, timelines: Timelines) -> ChartSeries:
    """Return a faint curve: means of neighbouring points, as extremes would hide curves."""
    stride = -(-len(curve.steps) // MAX_FAINT_POINTS)
    places = range(0, len(curve.steps), stride)
    ends = [min(i + stride, len(curve.steps)) - 1 for i in places]
    series = series_of(curve, label=_label(curve), look=0, limit=MAX_POINTS, timelines=timelines)
    return ChartSeries(
        **{
            **series,
            "is_faint": True,
            "steps": [curve.steps[end] for end in ends],
            "seconds": timelines.seconds(curve, ends),
            "values": [rounded(_mean(curve.values[i : i + stride])) for i in places],
        }
    )


def _mean(values: Collection[float | None]) -> float | None:
    finite = [value for value in values if value is not None]
    return sum(value / len(finite) for value in finite) if finite else None
