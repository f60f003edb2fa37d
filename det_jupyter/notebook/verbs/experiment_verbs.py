"""What `%det_experiment <verb>` does."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from det_jupyter.client.ranking import describe_trial, flattened, ranked, varying
from det_jupyter.notebook.handles import handles
from det_jupyter.notebook.verbs import steering_verbs
from det_jupyter.verbs.cluster_tables import MOST_ROWS
from det_jupyter.verbs.explain import explain
from det_jupyter.verbs.tables import length_text, plain_table, shown
from det_jupyter.wire import ExperimentView

_HEADER = ("id", "name", "state", "progress", "metric", "slots", "started", "notebook")


def run(options: argparse.Namespace, cell: str | None = None) -> Any:
    """Carry out one parsed line, with the cell below it; returns what the magic should return."""
    match options.verb:
        case "list" | "ls":
            print(_listing(handles.client().experiments(), with_archived=options.all))
        case "set" | "archive" | "unarchive" | "retention" | "delete":
            steering_verbs.VERBS[options.verb](options)
        case "continue":
            return steering_verbs.go_on(options, cell)
        case "fork":
            return steering_verbs.fork(options, cell)
        case "why":
            steering_verbs.print_why(experiment_id=options.id)
        case "logs":
            _print_logs(options.id, options.rank, options.tail)
        case "trials":
            print(trials_table(handles.client().experiment(options.id)))
        case "config":
            _print_config(options.id)
        case "change":
            _change(options)
        case "?":
            print(explain(options.path))
        case "show":
            return handles.experiment(options.id)
        case _:
            view = handles.client().command(options.id, options.verb)
            print(f"Experiment {view.id} “{view.name}”: {describe_state(view)}")
    return None


def describe_state(view: ExperimentView) -> str:
    """Return the state in words: also what a paused or stopping experiment still waits for."""
    leaving = [t for t in view.trials if t.allocation is not None]
    if view.state == "PAUSED" and leaving:
        return "PAUSED; its ranks were asked to save their state and leave"
    if view.state == "STOPPING_KILLED" and leaving:
        return "STOPPING_KILLED; its ranks are being killed"
    if view.state.startswith("STOPPING"):
        return f"{view.state}; its ranks are leaving" if leaving else str(view.state)
    return f"{view.state}: {view.message}" if view.message else str(view.state)


def _row(view: ExperimentView) -> tuple[str, ...]:
    best = next((trial.best_metric for trial in ranked(view)), None)
    metric = "-" if best is None else f"{view.config['searcher']['metric']} {best:.4g}"
    return (
        str(view.id),
        view.name,
        f"{view.state} (archived)" if view.is_archived else str(view.state),
        f"{view.progress:.0%}",
        metric,
        str(view.config["resources"]["slots_per_trial"]),
        datetime.fromtimestamp(view.created_at).strftime("%Y-%m-%d %H:%M:%S"),
        (view.notebook or "").rsplit("/", 1)[-1],
    )


def _listing(views: Sequence[ExperimentView], *, with_archived: bool) -> str:
    """Return the experiments as a table: of many, the newest."""
    if not views:
        return "No experiments yet."
    chosen = [view for view in views if with_archived or not view.is_archived]
    front = chosen if with_archived else chosen[-MOST_ROWS:]
    notes = []
    if hidden := len(views) - len(chosen):
        notes.append(f"{hidden:,} archived")
    if older := len(chosen) - len(front):
        notes.append(f"{older:,} older")
    table = plain_table(_HEADER, [_row(view) for view in front]) if front else ""
    note = f"Not listed: {', '.join(notes)}; %det_experiment list -a lists all." if notes else ""
    return "\n".join(text for text in (table, note) if text)


def trials_table(view: ExperimentView) -> str:
    """Return the trials of an experiment, best first, with the hyperparameters that differ."""
    metric = view.config["searcher"]["metric"]
    names = varying(view)
    header = ("trial", "state", metric, "latest", "batches", *names)
    rows = []
    for trial in ranked(view):
        hparams = dict(flattened(trial.hparams))
        values = [trial.best_metric, trial.latest_metric, trial.steps_completed]
        values += [hparams.get(name) for name in names]
        rows.append((str(trial.id), describe_trial(trial), *map(shown, values)))
    title = f"Experiment {view.id} “{view.name}”: {describe_state(view)}"
    return f"{title}\n{plain_table(header, rows)}" if rows else f"{title}; no trials yet"


def _print_config(experiment_id: int) -> None:
    effective = handles.client().effective_config(experiment_id)
    print(effective.yaml, end="")
    for notice in effective.notices:
        print(f"Note: {notice}")


def _change(options: argparse.Namespace) -> None:
    experiment = handles.experiment(options.id)
    experiment.change_search(
        max_trials=options.max_trials,
        max_length=options.max_length,
        max_concurrent_trials=options.max_concurrent,
        hyperparameters=options.hyperparameters,
    )
    view = experiment.view
    print(f"Experiment {view.id} “{view.name}”: {_describe_search(view)}")


def _describe_search(view: ExperimentView) -> str:
    searcher = view.config["searcher"]
    words = []
    if "max_trials" in searcher:
        words.append(f"{searcher['max_trials']} trials")
    if searcher.get("max_length") is not None:
        words.append(f"to {length_text(searcher['max_length'])}")
    if "max_concurrent_trials" in searcher:
        words.append(f"{searcher['max_concurrent_trials'] or 'all'} at once")
    return f"{searcher['name']}, {', '.join(words)}"


def _print_logs(experiment_id: int, rank: int | None, tail: int) -> None:
    trials = handles.experiment(experiment_id).trials
    lines = [line for trial in trials for line in trial.logs(rank=rank, tail=tail)]
    for line in lines:
        print(f"[rank={line.rank}] {line.text}")
    if not lines:
        who = "its ranks have" if rank is None else f"rank {rank} has"
        print(f"Experiment {experiment_id}: {who} printed nothing yet.")
