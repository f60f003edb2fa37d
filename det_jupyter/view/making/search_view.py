"""Makes the view of a search from the wire types. Pure.

Trials whose metric is missing or NaN count as the worst: they are listed last, and named in a
remark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from det_jupyter.contract.messages import (
    BracketView,
    Curve,
    ExperimentView,
    ImportanceView,
    SearchView,
    State,
    TrialView,
)
from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.text import count, length, listed, number, one_line
from det_jupyter.view.making.axes import metric_axis
from det_jupyter.view.making.charts import (
    build_charts,
    is_searchers,
    last_values,
    no_metrics,
    rounded,
)
from det_jupyter.view.making.experiment_facts import (
    finite,
    makes_room_for,
    status_word,
    trial_status,
)
from det_jupyter.view.making.rungs import aim_of, place_rungs, trial_dots, trial_marks
from det_jupyter.view.making.space import place_trials
from det_jupyter.view.model.search_state import (
    Chosen,
    HparamShare,
    Importance,
    Improvement,
    Remark,
    SearchState,
    TrialCounts,
    TrialRow,
)
from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import TrialDetails

MAX_REMARKS = 4
MAX_NAMED = 5  # most trials that a remark names
_COUNTED: dict[Status, str] = {
    "completed": "done",
    "stopped": "done",
    "starting": "running",
    "error": "failed",
}


def is_search(experiment: ExperimentView) -> bool:
    """Return whether the experiment has, or may have, several trials."""
    planned = experiment.search.max_trials if experiment.search is not None else 0
    return max(len(experiment.trials), planned) > 1


def build_search(
    experiment: ExperimentView,
    curves: Sequence[Curve],
    chosen: TrialDetails | None,
    wait: Wait | None,
    steps_per_epoch: Mapping[int, float],
    importance: ImportanceView | None = None,
) -> SearchState:
    """Return the view of a search.

    Args:
        chosen: The trial whose details are shown.
        wait: Why no trial runs; None: a trial runs, or none is queued.
    """
    search = experiment.search or SearchView(name="", max_trials=len(experiment.trials))
    space = experiment.config.get("hyperparameters")
    axes, places = place_trials(
        space if isinstance(space, dict) else {}, [trial.hparams for trial in experiment.trials]
    )
    metric, direction = experiment.metric, experiment.direction
    names, last = last_values(curves, metric)
    rows = [
        _row(trial, values, last.get(trial.id, {}), names, search.brackets, experiment.state)
        for trial, values in zip(experiment.trials, places, strict=True)
    ]
    remarks = find_remarks(experiment, rows)
    improvements = _improvements(experiment, curves)
    brackets, rung_width = place_rungs(search.brackets)
    at_rungs = (value for row in rows for _, _, value in trial_dots(row))
    return SearchState(
        searcher=experiment.searcher_name or search.name,
        metric=metric,
        smaller_is_better=direction is Direction.MINIMIZE,
        max_trials=search.max_trials,
        divisor=search.divisor,
        counts=_counts(rows),
        axes=axes,
        best_axis=metric_axis(metric, (row["best"] for row in rows), direction),
        rung_axis=metric_axis(metric, at_rungs, direction),
        progress_axis=metric_axis(metric, (one["value"] for one in improvements), direction),
        metrics=[
            metric_axis(name, (row["metrics"][i] for row in rows), Direction.MAXIMIZE)
            for i, name in enumerate(names)
        ],
        brackets=brackets,
        rung_width=rung_width,
        rows=rows,
        importance=None if importance is None else _importance(importance),
        improvements=improvements,
        wait=wait,
        remarks=remarks[:MAX_REMARKS],
        num_more_remarks=max(0, len(remarks) - MAX_REMARKS),
        chosen=_chosen(chosen, curves, metric, steps_per_epoch),
    )


def _importance(found: ImportanceView) -> Importance:
    compared = f"Best quarter against all {found.num_trials} ended trials, by {found.metric}."
    return Importance(
        num_ended=found.num_ended,
        shares=[HparamShare(name=name, share=round(s, 4)) for name, s in found.shares.items()],
        sentence=found.sentence or compared,
    )


def _chosen(
    trial: TrialDetails | None,
    curves: Sequence[Curve],
    metric: str,
    steps_per_epoch: Mapping[int, float],
) -> Chosen | None:
    if trial is None:
        return None
    own = [curve for curve in curves if curve.trial_id == trial["id"]]
    charts, more_metrics = build_charts(own, metric, steps_per_epoch)
    return Chosen(
        trial=trial,
        charts=charts,
        more_metrics=more_metrics,
        no_metrics=no_metrics(charts, trial["status"]),
    )


def ranked(search: SearchState) -> list[TrialRow]:
    """Return the trials by the searcher metric: the best first, those without a metric last."""
    direction = Direction.of(smaller_is_better=search["smaller_is_better"])
    return sorted(search["rows"], key=lambda row: (direction.loss(row["best"]), row["id"]))


def search_summary(search: SearchState) -> list[str]:
    """Return a few words each on the number of trials in each state, and on the best trial."""
    counts = search["counts"]
    parts = [f"{counts['done']} of {count(search['max_trials'], 'trial')} done"]
    parts += [f"{num} {state}" for state, num in counts.items() if num and state != "done"]
    best = next((row for row in ranked(search) if row["best"] is not None), None)
    if best is None:
        return [*parts, f"no {search['metric']} yet"]
    return [*parts, f"best {search['metric']} {number(best['best'])} (trial {best['id']})"]


def _row(
    trial: TrialView,
    values: list[float | None],
    last: Mapping[str, float | None],
    metrics: Sequence[str],
    brackets: Sequence[BracketView],
    experiment_state: State,
) -> TrialRow:
    status = trial_status(trial, experiment_state)
    is_placed = trial.bracket is not None and trial.bracket < len(brackets)
    rungs = brackets[trial.bracket or 0].rungs if is_placed else []
    aim = aim_of(trial, rungs, status)
    allocation = trial.allocation
    return TrialRow(
        id=trial.id,
        status=status,
        status_word=status_word(trial, status),
        bracket=trial.bracket if is_placed else None,
        rungs=[rounded(finite(metric)) for metric in trial.rung_metrics[: len(rungs)]],
        aim=aim,
        marks=trial_marks(len(trial.rung_metrics), aim, len(rungs), status),
        best=rounded(finite(trial.best_metric)),
        latest=rounded(finite(trial.latest_metric)),
        steps_completed=trial.steps_completed,
        num_slots=len(allocation.slots) if allocation is not None else 0,
        values=values,
        metrics=[last.get(name) for name in metrics],
    )


def _counts(rows: Sequence[TrialRow]) -> TrialCounts:
    counts = TrialCounts(done=0, running=0, resting=0, waiting=0, failed=0, canceled=0)
    for row in rows:
        name = _COUNTED.get(row["status"], row["status"])
        counts[name if name in counts else "waiting"] += 1  # type: ignore[literal-required]
    return counts


def _improvements(experiment: ExperimentView, curves: Sequence[Curve]) -> list[Improvement]:
    """Return each value that was better than all earlier ones, with the time of its report."""
    metric, direction = experiment.metric, experiment.direction
    candidates = [
        (at, direction.loss(value), value, curve.trial_id)
        for curve in curves
        if is_searchers(curve, metric)
        for at, value in _records(curve, direction)
    ]
    improvements: list[Improvement] = []
    for at, _, value, trial_id in sorted(candidates):  # at equal times, the best comes first
        if not improvements or direction.is_better(value, improvements[-1]["value"]):
            after_s = round(max(0.0, at - experiment.created_at), 3)
            improvements.append(Improvement(after_s=after_s, value=value, trial_id=trial_id))
    return improvements


def _records(curve: Curve, direction: Direction) -> Iterator[tuple[float, float]]:
    """Yield time and value of each point of a curve that is better than all earlier ones."""
    best = None
    for at, value in zip(curve.times, curve.values, strict=True):
        if value is not None and direction.is_better(value, best):
            best = value
            yield at, value


def find_remarks(experiment: ExperimentView, rows: Sequence[TrialRow]) -> list[Remark]:
    """Return remarks on failed, preempted and metric-less trials, in this order.

    Trials with the same sentence share a remark.
    """
    metric = experiment.metric
    brackets = experiment.search.brackets if experiment.search is not None else []
    ids: dict[tuple[int, str], list[int]] = {}  # ids of trials, by kind and sentence
    for trial, row in zip(experiment.trials, rows, strict=True):
        why = trial.failure.error if trial.failure is not None else str(trial.divergence or "")
        if row["status"] == "error" and why:
            sentence = f"failed: {one_line(why)}"
            ids.setdefault((0, sentence), []).append(trial.id)
        elif (taker := makes_room_for(trial)) is not None:
            sentence = f"must make room for experiment {taker}"
            ids.setdefault((1, sentence), []).append(trial.id)
        elif row["status"] not in ("error", "canceled"):
            for where in _rungs_without_metric(row, brackets):
                sentence = f"reported no {metric}{where}: counted as the worst"
                ids.setdefault((2, sentence), []).append(trial.id)
    return [
        _remark(sentence, ids[kind, sentence], is_failure=kind == 0)
        for kind, sentence in sorted(ids, key=lambda key: key[0])
    ]


def _remark(sentence: str, trial_ids: list[int], *, is_failure: bool) -> Remark:
    names = listed(trial_ids, most=MAX_NAMED)
    who = f"trials {names}" if len(trial_ids) > 1 else f"trial {names}"
    named = trial_ids if len(trial_ids) <= MAX_NAMED + 1 else trial_ids[:MAX_NAMED]  # as `listed`
    return Remark(trial_ids=named, is_failure=is_failure, text=f"{who} {sentence}")


def _rungs_without_metric(row: TrialRow, brackets: Sequence[BracketView]) -> Iterator[str]:
    if row["bracket"] is None:
        if row["status"] == "completed" and row["best"] is None:
            yield ""
        return
    for metric, rung in zip(row["rungs"], brackets[row["bracket"]].rungs, strict=False):
        if metric is None:
            yield f" at {length(rung.length)}"
