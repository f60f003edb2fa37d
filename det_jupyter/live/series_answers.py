"""Measured numbers over time, for the live view (labextension/src/series/)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from det_jupyter.bounds import Whole
from det_jupyter.client import Client
from det_jupyter.client.asking import ask_for
from det_jupyter.wire import SeriesPage, SeriesQuery, Wire

_MAX_POINTS = 16_000  # of an answer, some 45 characters each: Jupyter drops more than 1 MB/s
_MIN_COLUMNS = 20


class _Which(Wire):
    trial_id: Whole | None = None
    agent_id: str | None = None
    trial_ids: list[Whole] = []
    query: dict[str, Any] = {}


def series_answer(
    client: Client, experiment_id: int, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a page of series, or one for each of several trials, by trial.

    What is asked for is `trial_id`, `agent_id`, or `trial_ids`.
    """
    which = ask_for(
        _Which, **{name: question[name] for name in _Which.model_fields & question.keys()}
    )
    query = ask_for(SeriesQuery, **which.query)
    if which.agent_id is not None:
        return {"page": _fitting(partial(client.agent_series, which.agent_id), query)}
    if which.trial_id is not None:
        return {"page": _fitting(partial(client.series, which.trial_id), query)}
    most = _MAX_POINTS // max(1, len(which.trial_ids))
    return {
        "pages": {
            str(trial_id): _fitting(partial(client.series, trial_id), query, most)
            for trial_id in which.trial_ids
        }
    }


def _fitting(
    fetch: Callable[[SeriesQuery], SeriesPage], query: SeriesQuery, most: int = _MAX_POINTS
) -> dict[str, Any]:
    """Return a page that a message can carry: with fewer columns, and then with fewer series.

    `left_out` counts the series that it lacks.
    """
    page = fetch(query)
    num_points = sum(len(one.x) for one in page.series)
    if num_points > most:
        longest = max(len(one.x) for one in page.series)
        columns = max(_MIN_COLUMNS, longest * most // num_points)
        page = fetch(query.model_copy(update={"columns": min(columns, query.columns)}))
    kept, room = [], most
    for one in page.series:
        room -= max(1, len(one.x))
        if room >= 0:
            kept.append(one)
    left_out = len(page.series) - len(kept)
    return {**page.model_copy(update={"series": kept}).model_dump(), "left_out": left_out}
