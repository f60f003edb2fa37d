"""The results that a comparison lists: metrics, amounts of training, time and slots. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from det_jupyter.direction import Direction
from det_jupyter.view.build.charts import is_searchers
from det_jupyter.view.build.facts import (
    direction_of,
    finite,
    metric_of,
    searcher_of,
    steps_per_epoch,
)
from det_jupyter.view.model.comparison import Fact
from det_jupyter.wire import Curve, ExperimentView, TrialView
from det_jupyter.wire import steps_per_epoch as reported_epochs
from det_jupyter.words import date, duration, number, shortened

NOTHING = "-"
_MAX_VALUE = 60


class OneSide(Protocol):
    """An experiment or a trial that is compared."""

    @property
    def experiment(self) -> ExperimentView:
        """The experiment."""

    @property
    def trial(self) -> TrialView | None:
        """The trial whose curves are compared."""

    @property
    def is_trial(self) -> bool:
        """Whether the trial is compared, and not its experiment."""

    @property
    def curves(self) -> Sequence[Curve]:
        """The curves of the trial."""


def result_facts(compared: Sequence[OneSide], now: float) -> list[Fact]:
    """Return the lines of the results; a line without any value is left out."""
    metrics = dict.fromkeys(metric_of(one.experiment) for one in compared)
    rows: list[tuple[str, Callable[[OneSide], str]]] = [
        ("best at batch", _best_step),
        ("batches", _batches),
        ("epochs", _epochs),
        ("trials", _trials),
        ("slots per trial", _slots),
        ("time", lambda one: duration(elapsed_s(one, now))),
        ("slot-hours", lambda one: slot_hours_text(slot_seconds(one, now))),
        ("restarts", _restarts),
        ("seed", _seed),
        ("submitted", _submitted),
    ]
    facts = [_metric(metric, compared) for metric in metrics if metric]
    for name, text in rows:
        values = [text(one) for one in compared]
        if any(value != NOTHING for value in values):
            facts.append(Fact(name=name, values=values, best=[]))
    return facts


def _metric(metric: str, compared: Sequence[OneSide]) -> Fact:
    """Return the best values of a searcher's metric, with the places of the best of all."""
    judged = [metric_of(one.experiment) == metric for one in compared]
    bests = [
        best_metric(one) if is_it else None for one, is_it in zip(compared, judged, strict=True)
    ]
    directions = {
        direction_of(one.experiment) for one, is_it in zip(compared, judged, strict=True) if is_it
    }
    return Fact(
        name=f"best {metric}",
        values=[NOTHING if best is None else number(best) for best in bests],
        best=_places_of_best(bests, directions.pop()) if len(directions) == 1 else [],
    )


def _places_of_best(bests: Sequence[float | None], direction: Direction) -> list[int]:
    """Return where the best value is, which several may have; nowhere if only one has a value."""
    losses = [None if best is None else direction.loss(best) for best in bests]
    known = [loss for loss in losses if loss is not None]
    top = min(known) if len(known) > 1 else None
    return [place for place, loss in enumerate(losses) if loss is not None and loss == top]


def best_metric(one: OneSide) -> float | None:
    """Return the best value of the searcher's metric, None if there is none."""
    return None if one.trial is None else finite(one.trial.best_metric)


def _best_step(one: OneSide) -> str:
    best = best_metric(one)
    curve = next((c for c in one.curves if is_searchers(c, metric_of(one.experiment))), None)
    if best is None or curve is None:
        return NOTHING
    steps = [step for step, v in zip(curve.steps, curve.values, strict=True) if v == best]
    return str(steps[0]) if steps else NOTHING


def _batches(one: OneSide) -> str:
    return NOTHING if one.trial is None else f"{one.trial.steps_completed:,}"


def _epochs(one: OneSide) -> str:
    if one.trial is None:
        return NOTHING
    known = {**reported_epochs(one.curves), **steps_per_epoch(one.experiment)}
    per_epoch = known.get(one.trial.id)
    return NOTHING if per_epoch is None else f"{one.trial.steps_completed / per_epoch:.1f}"


def _trials(one: OneSide) -> str:
    if one.is_trial or len(one.experiment.trials) < 2:
        return NOTHING
    return f"{len(one.experiment.trials)} ({searcher_of(one.experiment).get('name', '')})"


def _slots(one: OneSide) -> str:
    resources = one.experiment.config.get("resources")
    slots = resources.get("slots_per_trial") if isinstance(resources, dict) else None
    return NOTHING if slots is None or one.is_trial else str(slots)


def _restarts(one: OneSide) -> str:
    restarts = sum(trial.restarts for trial in _trials_of(one))
    return str(restarts) if restarts else NOTHING


def _seed(one: OneSide) -> str:
    return NOTHING if one.trial is None else str(one.trial.seed)


def _submitted(one: OneSide) -> str:
    return NOTHING if one.is_trial else date(one.experiment.created_at)


def _trials_of(one: OneSide) -> Sequence[TrialView]:
    if one.is_trial:
        return [] if one.trial is None else [one.trial]
    return one.experiment.trials


def elapsed_s(one: OneSide, now: float) -> float:
    """Return the time from the submission, or from the trial's creation, to the end or now."""
    what = one.trial if one.is_trial and one.trial is not None else one.experiment
    return max(0.0, (now if what.ended_at is None else what.ended_at) - what.created_at)


def slot_seconds(one: OneSide, now: float) -> float:
    """Return slots times seconds of all runs, of those that run until now."""
    return sum(trial.slot_seconds + _held(trial, now) for trial in _trials_of(one))


def _held(trial: TrialView, now: float) -> float:
    run = trial.allocation
    if run is None or run.started_at is None:
        return 0.0
    return sum(slot.id >= 0 for slot in run.slots) * max(0.0, now - run.started_at)


def slot_hours_text(seconds: float) -> str:
    """Return slot-seconds in hours; nothing for what was not recorded.

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
