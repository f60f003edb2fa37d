"""Verbs that describe experiments and trials in tables: properties, and workloads.

A workload is a batch at which a trial reported, validated or saved a checkpoint. The columns are
those of Determined's command; in the text form the reasons of failures are below the tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from det_jupyter.client.handle_text import state_name
from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    State,
    TrackerState,
    TrialView,
)
from det_jupyter.contract.values.text import date, one_line, size
from det_jupyter.errors import DetError
from det_jupyter.front.verbs.experiment_list import numbers_of
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, page_of, render

_EXPERIMENT = ("Experiment ID", "State", "Progress", "Started", "Ended", "Name", "Description",
               "Archived", "Resource Pool", "Labels", "Checkpoints",
               "Checkpoint Size")  # fmt: skip
_TRIAL = ("Trial ID", "Experiment ID", "State", "Started", "Ended", "H-Params")
_TRACKER = ("Experiment ID", "Tracker", "State", "Records Behind", "Since", "Problem",
            "Next Attempt")  # fmt: skip
_WORKLOAD = ("Trial ID", "# of Batches", "State", "Report Time", "Checkpoint", "Checkpoint Time",
             "Validation", "Validation Time")  # fmt: skip
_ROWS = ("Trial ID", "State", "H-Params", "Started", "Ended", "# of Batches")
_PREFIXES = {"training": "Training Metric: ", "validation": "Validation Metric: "}

Table = tuple[str, list[dict[str, Any]]]  # title and rows


def describe(call: Call) -> str:
    """Return tables of experiments: themselves, their trials and their workloads."""
    views = [call.client.experiment(number) for number in numbers_of(call)]
    tables: list[Table] = [
        ("Experiment", [_experiment_row(call, view) for view in views]),
        ("Trials", [_trial_row(trial) for view in views for trial in view.trials]),
        ("Workloads", [row for view in views for row in _workloads_of(call, view)]),
    ]
    headers: list[Sequence[str]] = [_EXPERIMENT, _TRIAL, _WORKLOAD]
    if trackers := [_tracker_row(view, each) for view in views for each in view.trackers]:
        tables.append(("Trackers", trackers))
        headers.append(_TRACKER)
    reasons = [line for view in views for line in _reasons(view)]
    return _written(call, tables, headers, reasons)


def describe_trial(call: Call) -> str:
    """Return tables of a trial: itself, its workloads and, on request, its last metrics."""
    trial = call.client.trial(call.options.id)
    view = call.client.experiment(trial.experiment_id)
    given, rows = call.options, _workloads_of(call, view, [trial])
    tables: list[Table] = [
        ("Trial", [_trial_row(trial)]),
        ("Workloads", rows[given.offset :][: page_of(given)]),
    ]
    headers: tuple[Sequence[str], ...] = (_TRIAL, _WORKLOAD)
    if given.metrics_summary:
        curves = [c for c in call.client.curves(view.id) if c.trial_id == trial.id]
        tables.append(("Metrics", [_last_row(curve) for curve in curves if curve.values]))
        headers = (*headers, ("Group", "Metric", "# of Batches", "Last", "Min", "Max"))
    return _written(call, tables, headers, _failures([trial]))


def list_trials(call: Call) -> str:
    """Return a row for each trial of an experiment, oldest first."""
    view = call.client.experiment(call.options.id)
    rows = [_trial_row(t) | {"# of Batches": t.steps_completed} for t in view.trials]
    listing = _listing(rows, _ROWS, is_whole=True, if_empty="It has no trials yet.")
    data = [list(row.values()) for row in _chosen(rows, _ROWS)]
    return render(replace(listing, data=data), call.options)


def _chosen(rows: Sequence[dict[str, Any]], header: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: row.get(name) for name in header} for row in rows]


def _experiment_row(call: Call, view: ExperimentView) -> dict[str, Any]:
    stored = [each for each in call.client.checkpoints(view.id) if each.state != "DELETED"]
    num_bytes = sum(each.size_bytes for each in stored)
    is_data = call.options.json or call.options.csv or call.options.outdir
    return {
        "Experiment ID": view.id,
        "State": state_name(view),
        "Progress": round(view.progress, 4),
        "Started": date(view.created_at),
        "Ended": _when(view.ended_at),
        "Name": view.name,
        "Description": view.description,
        "Archived": view.is_archived,
        "Resource Pool": view.pool,
        "Labels": view.labels,
        "Checkpoints": len(stored),
        "Checkpoint Size": num_bytes if is_data else size(num_bytes),
    }


def _trial_row(trial: TrialView) -> dict[str, Any]:
    return {
        "Trial ID": trial.id,
        "Experiment ID": trial.experiment_id,
        "State": state_name(trial),
        "Started": date(trial.created_at),
        "Ended": _when(trial.ended_at),
        "H-Params": trial.hparams,
    }


def _tracker_row(view: ExperimentView, tracker: TrackerState) -> dict[str, Any]:
    return {
        "Experiment ID": view.id,
        "Tracker": tracker.label,
        "State": "caught up" if tracker.is_current else "behind",
        "Records Behind": tracker.behind,
        "Since": _when(tracker.since),
        "Problem": tracker.problem or tracker.remark,
        "Next Attempt": _when(tracker.next_at),
    }


def _when(at: float | None) -> str | None:
    return None if at is None else date(at)


def _last_row(curve: Curve) -> dict[str, Any]:
    known = [value for value in curve.values if value is not None]
    return {
        "Group": curve.group,
        "Metric": curve.name,
        "# of Batches": curve.steps[-1],
        "Last": curve.values[-1],
        "Min": min(known, default=None),
        "Max": max(known, default=None),
    }


def _workloads_of(
    call: Call, view: ExperimentView, trials: Sequence[TrialView] | None = None
) -> list[dict[str, Any]]:
    client, chosen = call.client, view.trials if trials is None else trials
    numbers = {trial.id for trial in chosen}
    curves = [
        curve
        for curve in client.curves(view.id)
        if curve.group in _PREFIXES and curve.trial_id in numbers
    ]
    saved = [c for c in client.checkpoints(view.id) if c.trial_id in numbers]
    return workloads(chosen, curves, saved, with_metrics=call.options.metrics)


def workloads(
    trials: Sequence[TrialView],
    curves: Iterable[Curve],
    checkpoints: Iterable[CheckpointView],
    *,
    with_metrics: bool,
) -> list[dict[str, Any]]:
    """Return a row for each batch at which a trial reported metrics or saved a checkpoint."""
    rows: dict[tuple[int, int], dict[str, Any]] = {}
    times: dict[tuple[int, int], float] = {}

    def row_at(trial_id: int, steps: int, at: float) -> dict[str, Any]:
        key = trial_id, steps
        times[key] = max(at, times.get(key, 0.0))
        return rows.setdefault(key, {"Trial ID": trial_id, "# of Batches": steps})

    for curve in curves:
        for steps, value, at in zip(curve.steps, curve.values, curve.times, strict=True):
            row = row_at(curve.trial_id, steps, at)
            if curve.group == "validation":
                row |= {"Validation": "COMPLETED", "Validation Time": date(at)}
            if with_metrics:
                row[f"{_PREFIXES[curve.group]}{curve.name}"] = value
    for saved in checkpoints:
        row = row_at(saved.trial_id, saved.steps_completed, saved.created_at)
        row |= {"Checkpoint": saved.state, "Checkpoint Time": date(saved.created_at)}
    order = {trial.id: index for index, trial in enumerate(trials)}
    ordered = sorted(rows, key=lambda key: (order[key[0]], key[1]))
    return [rows[key] | {"State": "COMPLETED", "Report Time": date(times[key])} for key in ordered]


def _reasons(view: ExperimentView) -> list[str]:
    """Return lines about why an experiment and its trials failed."""
    own = [f"Experiment {view.id}: {one_line(view.message)}"] if view.message else []
    return [*own, *([] if own and len(view.trials) == 1 else _failures(view.trials))]


def _failures(trials: Iterable[TrialView]) -> list[str]:
    """Return a line for each trial with its error, alarm or last recovery, if it has one."""
    texts = {trial.id: _news_of(trial) for trial in trials}
    return [f"Trial {number}: {one_line(text)}" for number, text in texts.items() if text]


def _news_of(trial: TrialView) -> str:
    if trial.failure is not None and trial.state is State.ERROR:
        return trial.failure.error
    recovered = trial.recoveries[-1].sentence if trial.recoveries else ""
    return trial.alarm.sentence or recovered


def _written(
    call: Call,
    tables: Sequence[Table],
    headers: Sequence[Sequence[str]],
    reasons: Sequence[str],
) -> str:
    """Return the tables in the requested form; with `--outdir`, the files written."""
    given = call.options
    prefixes = tuple(_PREFIXES.values())
    whole = []
    for (title, rows), header in zip(tables, headers, strict=True):
        metrics = {name for row in rows for name in row if name.startswith(prefixes)}
        whole.append((title, rows, [*header, *sorted(metrics)]))
    if given.json:
        document = {title.lower(): _chosen(rows, header) for title, rows, header in whole}
        return json.dumps(document, indent=2, ensure_ascii=False)
    is_whole = given.csv or given.outdir is not None
    listings = [
        (title, _listing(rows, header, is_whole=is_whole)) for title, rows, header in whole
    ]
    if given.outdir is not None:
        return "\n".join(_write(given.outdir, title, listing) for title, listing in listings)
    if given.csv:
        return "\n".join(f"{title}:\n{listing.csv()}" for title, listing in listings).rstrip("\n")
    parts = [f"{title}:\n{listing.text(None)}" for title, listing in listings]
    return "\n\n".join([*parts, *(["\n".join(reasons)] if reasons else [])])


def _listing(
    rows: Sequence[dict[str, Any]],
    header: Sequence[str],
    *,
    is_whole: bool,
    if_empty: str = "(none)",
) -> Listing:
    cells = [[_cell(name, row.get(name), is_whole=is_whole) for name in header] for row in rows]
    return Listing(header=header, rows=cells, if_empty=if_empty)


def _cell(name: str, value: Any, *, is_whole: bool) -> Any:
    """Return a cell: mappings as JSON; unless `is_whole`, progress in percent."""
    match value:
        case dict():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return ", ".join(map(str, value)) or None
        case float() if name == "Progress" and not is_whole:
            return f"{value:.0%}"
        case "":
            return None
    return value


def _write(folder: str, title: str, listing: Listing) -> str:
    name = title.lower() if title.endswith("s") else f"{title.lower()}s"
    path = Path(folder).expanduser() / f"{name}.csv"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(listing.csv(), encoding="utf-8")
    except OSError as error:
        raise DetError(f"{path}: cannot be written: {error.strerror}") from None
    return f"Wrote {path}"
