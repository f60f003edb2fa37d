"""What hyperparameters do to the metrics of a search: values to plot, and importance. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.view.build.charts import (
    is_searchers,
    names_by_group,
    rounded,
    title_among,
    without_averages,
)
from det_jupyter.view.model.experiment import Importance, Share
from det_jupyter.wire import Curve, ImportanceView

MAX_METRICS = 12  # of rows: they are sent for each trial


def last_values(
    curves: Sequence[Curve], searcher_metric: str
) -> tuple[list[str], dict[int, dict[str, float | None]]]:
    """Return the metrics besides the searcher's, and the last value of each for each trial."""
    curves = [c for c in without_averages(curves) if not is_searchers(c, searcher_metric)]
    names = names_by_group(curves)
    values: dict[int, dict[str, float | None]] = {}
    found: dict[str, None] = {}
    for curve in curves:
        title = title_among(curve, names)
        found[title] = None
        values.setdefault(curve.trial_id, {})[title] = rounded(curve.values[-1])
    return list(found)[:MAX_METRICS], values


def build_importance(found: ImportanceView) -> Importance:
    """Return what the view shows of the importance of hyperparameters."""
    compared = f"Best quarter against all {found.num_trials} ended trials, by {found.metric}."
    return Importance(
        shares=[Share(name=name, share=round(s, 4)) for name, s in found.shares.items()],
        sentence=found.sentence or compared,
    )
