"""Makes the rows of results in a comparison: metrics, amounts of training, time, slots. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.messages import Curve, ExperimentView, TrialView
from det_jupyter.contract.messages import steps_per_epoch as reported_epochs
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.text import date, duration, number, shortened
from det_jupyter.view.making.charts import is_searchers
from det_jupyter.view.making.experiment_facts import (
    finite,
    steps_per_epoch,
)
from det_jupyter.view.model.comparison import Fact

NOTHING = "-"
_MAX_VALUE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An experiment, or one trial of a search, with the data that a comparison needs.

    Args:
        trial: The trial whose curves and hyperparameters are compared; None: there is none yet.
        is_trial: Whether only the trial is compared, not the experiment.
        curves: The curves of the trial.
        code: The captured source; empty for trials of one search, which have the same source.
    """

    experiment: ExperimentView
    trial: TrialView | None
    is_trial: bool
    curves: Sequence[Curve]
    code: Mapping[str, str]

    @property
    def id(self) -> int:
        """The id of the trial or experiment."""
        return self.trial.id if self.is_trial and self.trial is not None else self.experiment.id

    @property
    def label(self) -> str:
        """`trial 3`, or an experiment's id and name."""
        return f"trial {self.id}" if self.is_trial else f"{self.id} {self.experiment.name}"


def result_facts(compared: Sequence[Compared], now: float) -> list[Fact]:
    """Return the rows of results, without rows that have no value."""
    metrics = dict.fromkeys(one.experiment.metric for one in compared)
    texts = [_texts(one, now) for one in compared]
    rows = {name: [each[name] or NOTHING for each in texts] for name in texts[0]}
    return [_metric(metric, compared) for metric in metrics if metric] + [
        Fact(name=name, values=values, best=[])
        for name, values in rows.items()
        if any(value != NOTHING for value in values)
    ]


def _texts(one: Compared, now: float) -> dict[str, str]:
    """Return the values of one side by the name of the row; "" if there is none."""
    trial, experiment = one.trial, one.experiment
    steps = 0 if trial is None else trial.steps_completed
    epochs = {**reported_epochs(one.curves), **steps_per_epoch(experiment)}
    per_epoch = None if trial is None else epochs.get(trial.id)
    num = 1 if one.is_trial else len(experiment.trials)
    restarts = sum(trial.restarts for trial in _trials_of(one))
    recoveries = sum(trial.num_recoveries for trial in _trials_of(one))
    return {
        "best at batch": _best_step(one),
        "batches": "" if trial is None else f"{steps:,}",
        "epochs": "" if per_epoch is None else f"{steps / per_epoch:.1f}",
        "trials": f"{num} ({experiment.searcher_name})" if num > 1 else "",
        "slots per trial": "" if one.is_trial else str(experiment.sizes),
        "elapsed": duration(elapsed_s(one, now)),
        "slot-hours": slot_hours_text(slot_seconds(one, now)),
        "restarts": str(restarts) if restarts else "",
        "recoveries": str(recoveries) if recoveries else "",
        "seed": "" if trial is None else str(trial.seed),
        "submitted": "" if one.is_trial else date(experiment.created_at),
    }


def _metric(metric: str, compared: Sequence[Compared]) -> Fact:
    """Return the row of a searcher metric, with the best value marked."""
    judged = [one for one in compared if one.experiment.metric == metric]
    bests = [best_metric(one) if one in judged else None for one in compared]
    directions = {one.experiment.direction for one in judged}
    return Fact(
        name=f"best {metric}",
        values=[NOTHING if best is None else number(best) for best in bests],
        best=_best_indices(bests, directions.pop()) if len(directions) == 1 else [],
    )


def _best_indices(bests: Sequence[float | None], direction: Direction) -> list[int]:
    """Return the indices of the best value; empty if fewer than two sides have values."""
    losses = [None if best is None else direction.loss(best) for best in bests]
    known = [loss for loss in losses if loss is not None]
    top = min(known) if len(known) > 1 else None
    return [place for place, loss in enumerate(losses) if loss is not None and loss == top]


def best_metric(one: Compared) -> float | None:
    """Return the best value of the searcher metric, None if there is none."""
    return None if one.trial is None else finite(one.trial.best_metric)


def _best_step(one: Compared) -> str:
    best = best_metric(one)
    curve = next((c for c in one.curves if is_searchers(c, one.experiment.metric)), None)
    if best is None or curve is None:
        return ""
    steps = (step for step, v in zip(curve.steps, curve.values, strict=True) if v == best)
    return str(next(steps, ""))


def _trials_of(one: Compared) -> Sequence[TrialView]:
    if one.is_trial:
        return [] if one.trial is None else [one.trial]
    return one.experiment.trials


def elapsed_s(one: Compared, now: float) -> float:
    """Return the seconds in which the compared trials held slots, without waits and pauses."""
    if one.is_trial and one.trial is not None:
        run = one.trial.allocation
        since = None if run is None else run.started_at
        return one.trial.held_s + seconds_since(since, now)
    return one.experiment.held_s + seconds_since(one.experiment.held_since, now)


def seconds_since(since: float | None, now: float) -> float:
    """Return the seconds from `since` to `now`; 0 if `since` is None."""
    return 0.0 if since is None else max(0.0, now - since)


def slot_seconds(one: Compared, now: float) -> float:
    """Return the slot-seconds of all runs; runs that have not ended count until now."""
    return sum(trial.slot_seconds + _held(trial, now) for trial in _trials_of(one))


def _held(trial: TrialView, now: float) -> float:
    run = trial.allocation
    if run is None or run.started_at is None:
        return 0.0
    return sum(slot.id >= 0 for slot in run.slots) * seconds_since(run.started_at, now)


def slot_hours_text(seconds: float) -> str:
    """Return slot-seconds as text, in hours; "-" if none were recorded.

    >>> [slot_hours_text(s) for s in (0, 7.2, 5400, 7_200_000)]
    ['-', '0.002', '1.5', '2,000']
    """
    if not seconds:
        return NOTHING
    hours = seconds / 3600
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2g}"


def value_text(value: Any) -> str:
    """Return a value of a configuration as a cell of a table.

    >>> [value_text(v) for v in (None, 0.1, True, "adam", {"type": "int"})]
    ['-', '0.1', 'true', 'adam', '{"type": "int"}']
    """
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return shortened(text, _MAX_VALUE)
