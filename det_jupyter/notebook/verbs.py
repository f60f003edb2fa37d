"""What `%det_experiment <verb>` does."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from det_jupyter.notebook import handles
from det_jupyter.wire import ExperimentView

_HEADER = ("id", "name", "state", "progress", "metric", "slots", "started", "notebook")


def run(options: argparse.Namespace) -> Any:
    """Carry out one parsed line; returns what the magic should return."""
    if options.verb == "list":
        print(_table([_row(view) for view in handles.client().experiments()]))
        return None
    if options.verb == "logs":
        _print_logs(options.id, options.rank, options.tail)
        return None
    experiment = handles.experiment(options.id)
    if options.verb == "show":
        return experiment
    view = handles.client().command(options.id, options.verb)
    print(f"Experiment {view.id} “{view.name}”: {describe_state(view)}")
    return None


def describe_state(view: ExperimentView) -> str:
    """Return the state in words: also what a paused or stopping experiment still waits for."""
    leaving = [t for t in view.trials if t.allocation is not None]
    if view.state == "PAUSED" and leaving:
        return "PAUSED; its ranks are saving their state"
    if view.state.startswith("STOPPING"):
        return f"{view.state}; its ranks are leaving" if leaving else str(view.state)
    return f"{view.state}: {view.message}" if view.message else str(view.state)


def _row(view: ExperimentView) -> tuple[str, ...]:
    best = [t.best_metric for t in view.trials if t.best_metric is not None]
    metric = f"{view.config['searcher']['metric']} {best[0]:.4g}" if best else "-"
    return (
        str(view.id),
        view.name,
        str(view.state),
        f"{view.progress:.0%}",
        metric,
        str(view.config["resources"]["slots_per_trial"]),
        datetime.fromtimestamp(view.created_at).strftime("%Y-%m-%d %H:%M:%S"),
        (view.notebook or "").rsplit("/", 1)[-1],
    )


def _table(rows: list[tuple[str, ...]]) -> str:
    if not rows:
        return "No experiments yet."
    cells = [_HEADER, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def _print_logs(experiment_id: int, rank: int | None, tail: int) -> None:
    trials = handles.experiment(experiment_id).trials
    lines = [line for trial in trials for line in trial.logs(rank=rank, tail=tail)]
    for line in lines:
        print(f"[rank={line.rank}] {line.text}")
    if not lines:
        who = "its ranks have" if rank is None else f"rank {rank} has"
        print(f"Experiment {experiment_id}: {who} printed nothing yet.")
