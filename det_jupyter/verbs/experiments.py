"""The verbs that show experiments: their list, their trials, configuration and reasons."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.client.ranking import describe_trial, flattened, ranked, varying
from det_jupyter.client.reasons import is_queued, reason_text
from det_jupyter.errors import NotFound, UsageError
from det_jupyter.verbs.cluster_tables import MOST_ROWS
from det_jupyter.verbs.explain import explain
from det_jupyter.verbs.grammar import Call
from det_jupyter.verbs.tables import plain_table, shown
from det_jupyter.wire import ExperimentView, SearchChangeView
from det_jupyter.words import count, date

_HEADER = ("id", "name", "state", "progress", "metric", "slots", "started", "notebook")
_MOST_NAMED = 5  # experiments, by their numbers


def show(call: Call) -> Experiment:
    """Return the handle on an experiment, which shows itself."""
    return call.experiment(call.options.id)


def compare(call: Call) -> Comparison:
    """Return how experiments, or trials of one, differ; it shows itself."""
    first, *others = call.options.ids
    if call.options.trials is not None:
        if others:
            raise UsageError("compare: --trials takes one experiment, whose trials are compared")
        return call.experiment(first).compare_trials(*call.options.trials)
    return call.experiment(first).compare(*others)


def list_experiments(call: Call) -> str:
    """Return the experiments as a table: of many, the newest."""
    views = call.client.experiments()
    if not views:
        return "No experiments yet."
    chosen = [view for view in views if call.options.all or not view.is_archived]
    front = chosen if call.options.all else chosen[-MOST_ROWS:]
    notes = []
    if hidden := len(views) - len(chosen):
        notes.append(f"{hidden:,} archived")
    if older := len(chosen) - len(front):
        notes.append(f"{older:,} older")
    table = plain_table(_HEADER, [_row(view) for view in front]) if front else ""
    note = f"Not listed: {', '.join(notes)}; %det_experiment list -a lists all." if notes else ""
    return "\n".join(text for text in (table, note) if text)


def _row(view: ExperimentView) -> tuple[str, ...]:
    best = next((trial.best_metric for trial in ranked(view)), None)
    metric = "-" if best is None else f"{view.metric} {best:.4g}"
    return (
        str(view.id),
        view.name,
        f"{view.state} (archived)" if view.is_archived else str(view.state),
        f"{view.progress:.0%}",
        metric,
        str(view.config["resources"]["slots_per_trial"]),
        date(view.created_at),
        (view.notebook or "").rsplit("/", 1)[-1],
    )


def list_trials(call: Call) -> str:
    """Return the trials of an experiment, best first, with the hyperparameters that differ."""
    return trials_table(call.client.experiment(call.options.id))


def trials_table(view: ExperimentView) -> str:
    """Return the trials of an experiment, best first, with the hyperparameters that differ."""
    names = varying(view)
    header = ("trial", "state", view.metric, "latest", "batches", *names)
    rows = []
    for trial in ranked(view):
        hparams = dict(flattened(trial.hparams))
        values = [trial.best_metric, trial.latest_metric, trial.steps_completed]
        values += [hparams.get(name) for name in names]
        rows.append((str(trial.id), describe_trial(trial), *map(shown, values)))
    heading = f"{title(view)}: {describe_state(view)}"
    return f"{heading}\n{plain_table(header, rows)}" if rows else f"{heading}; no trials yet"


def title(view: ExperimentView) -> str:
    """Return the number and the name of an experiment."""
    return f"Experiment {view.id} “{view.name}”"


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


def show_config(call: Call) -> str:
    """Return the configuration of an experiment as YAML, with the notices about it."""
    effective = call.client.effective_config(call.options.id)
    notices = [f"Note: {notice}" for notice in effective.notices]
    changes = call.client.experiment(call.options.id).search_changes
    history = [describe_change(change) for change in changes]
    return "\n".join([effective.yaml.rstrip("\n"), *notices, *history])


def describe_change(change: SearchChangeView) -> str:
    """Return when a search was changed, and what in it."""
    parts = [
        f"{name} {shown(change.before.get(name))} → {shown(value)}"
        for name, value in change.after.items()
    ]
    return f"Changed {date(change.at)}: {', '.join(parts)}"


def why(call: Call) -> str:
    """Return why the next trial of an experiment does not run."""
    return _why(call.experiment(call.options.id))


def why_trial(call: Call) -> str:
    """Return why a trial, or the next trial of an experiment, does not run."""
    if call.options.trial is not None:
        return reason_text(call.client.reason(call.options.trial))
    return _why(call.experiment(call.options.experiment))


def _why(experiment: Experiment) -> str:
    text = str(experiment.why())
    waiting = sum(is_queued(trial) for trial in experiment.view.trials)
    if waiting < 2:
        return text
    verb = "waits" if waiting == 2 else "wait"
    others = count(waiting - 1, "more trial")
    return f"{text}\n{others} of experiment {experiment.id} {verb}; %det queue lists all that do."


def explain_key(call: Call) -> str:
    """Return what a key of the configuration means."""
    return explain(call.options.path)


def with_existing(error: NotFound, client: Client) -> NotFound:
    """Return an error about a number that is none, with the numbers that there are."""
    problem = str(error).partition(";")[0]
    if problem.startswith("there is no trial"):
        hint = "%det task list shows those that run or wait, %det_experiment trials ID all"
    elif problem.startswith("there is no experiment"):
        hint = _existing(client.experiments())
    else:
        return error
    return NotFound(f"{problem}; {hint}")


def _existing(views: Sequence[ExperimentView]) -> str:
    numbers = [str(view.id) for view in views]
    if not numbers:
        return "there are none yet"
    front = "there are: " if len(numbers) <= _MOST_NAMED else "the newest are: "
    return front + ", ".join(numbers[-_MOST_NAMED:])
