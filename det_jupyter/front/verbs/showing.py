"""Verbs that show an experiment, its trials and reasons, wait for its end, explain keys."""

from __future__ import annotations

import time
from difflib import get_close_matches
from typing import Any

from det_jupyter.client import Comparison, Diagnosis, Experiment
from det_jupyter.client.client import Client
from det_jupyter.client.following.follow import follow_until
from det_jupyter.client.handle_text import (
    describe_trial,
    ranked,
    state_name,
    state_word,
    varying,
)
from det_jupyter.client.handles.reasons import is_queued, reason_text
from det_jupyter.client.tables import plain_table
from det_jupyter.config import FieldHelp, describe, known_keys
from det_jupyter.config.tree import all_paths
from det_jupyter.contract.messages import ExperimentView, SearchChangeView, State
from det_jupyter.contract.messages.leaving_words import leaving_sentence
from det_jupyter.contract.values.nested import flattened
from det_jupyter.contract.values.reader import Reader
from det_jupyter.contract.values.text import count, date
from det_jupyter.errors import Conflict, NotFound, UsageError
from det_jupyter.front.verbs.experiment_list import numbers_of
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.listings import Listing, cell_text, render


def show(call: Call) -> Experiment:
    """Return the handle on an experiment, which the front end displays."""
    return call.experiment(call.options.id)


def compare(call: Call) -> Comparison:
    """Return a comparison of experiments, or of trials of one."""
    first, *others = numbers_of(call)
    if call.options.trials is not None:
        if others:
            raise UsageError("compare: --trials takes one experiment, whose trials are compared")
        return call.experiment(first).compare_trials(*call.options.trials)
    return call.experiment(first).compare(*others)


def diagnose(call: Call) -> Diagnosis:
    """Run the bottleneck diagnosis of an experiment; see `Experiment.diagnose`."""
    options = call.options
    given = {name: getattr(options, name) for name in ("seconds", "rounds", "recipes")}
    chosen = {name: value for name, value in given.items() if value is not None}
    return call.experiment(options.id).diagnose(keep=options.keep, **chosen)


def list_trials(call: Call) -> str:
    """Return the trials of an experiment, best first, with the hyperparameters that differ."""
    return render(trials_listing(call.client.experiment(call.options.id)), call.options)


def trials_listing(view: ExperimentView) -> Listing:
    """Return the trials of an experiment, best first, with the hyperparameters that differ."""
    names = varying(view)
    has_verdicts = any(trial.verdict is not None for trial in view.trials)
    limited = ("verdict",) if has_verdicts else ()
    header = ("trial", "state", view.metric, "latest", "batches", *limited)
    rows, data = [], []
    for trial in ranked(view):
        hparams = dict(flattened(trial.hparams))
        values: list[Any] = [trial.best_metric, trial.latest_metric, trial.steps_completed]
        values += [trial.verdict and trial.verdict.kind] if has_verdicts else []
        values += [hparams.get(name) for name in names]
        rows.append((trial.id, describe_trial(trial), *values))
        data.append((trial.id, state_name(trial), *values))
    return Listing(
        title=f"{title(view)}: {describe_state(view)}",
        header=(*header, *(f"hparams.{name}" if name in header else name for name in names)),
        rows=rows,
        data=data,
        if_empty="It has no trials yet.",
    )


def title(view: ExperimentView) -> str:
    """Return the number and the name of an experiment."""
    return f"Experiment {view.id} “{view.name}”"


def describe_state(view: ExperimentView) -> str:
    """Return the state as text, with the reason why it ended, or an alarm of the only trial."""
    word = state_word(view)
    alarms = (trial.alarm.sentence for trial in view.trials if trial.alarm.kind)
    leaving = [trial.leaving for trial in view.trials if trial.leaving is not None]
    if leaving and view.state is not State.ACTIVE:
        more = f" (and {count(len(leaving) - 1, 'more trial')})" if len(leaving) > 1 else ""
        return leaving_sentence(leaving[0], time.time()) + more
    message = view.message or (next(alarms, "") if len(view.trials) == 1 else "")
    return f"{word}: {message}" if message else word


def show_config(call: Call) -> str:
    """Return the configuration of an experiment as YAML, with the notices about it."""
    effective = call.client.effective_config(call.options.id)
    notices = [f"Note: {notice}" for notice in effective.notices]
    changes = call.client.experiment(call.options.id).search_changes
    history = [describe_change(change) for change in changes]
    return "\n".join([effective.yaml.rstrip("\n"), *notices, *history])


def describe_change(change: SearchChangeView) -> str:
    """Return one change of a search as text: when, and the values before and after."""
    parts = [
        f"{name} {cell_text(change.before.get(name))} → {cell_text(value)}"
        for name, value in change.after.items()
    ]
    return f"Changed {date(change.at)}: {', '.join(parts)}"


def why(call: Call) -> str:
    """Return why the next trial of an experiment does not run."""
    return _why(call.experiment(call.options.id), call.reader)


def why_trial(call: Call) -> str:
    """Return why a trial, or the next trial of an experiment, does not run."""
    if call.options.trial is not None:
        return reason_text(call.client.reason(call.options.trial), call.reader)
    return _why(call.experiment(call.options.experiment), call.reader)


def verdict(call: Call) -> str:
    """Return what limits the training of an experiment."""
    return str(call.experiment(call.options.id).verdict)


def _why(experiment: Experiment, reader: Reader) -> str:
    text = reason_text(experiment.why(), reader)
    waiting = sum(is_queued(trial) for trial in experiment.view.trials)
    if waiting < 2:
        return text
    verb = "waits" if waiting == 2 else "wait"
    others = count(waiting - 1, "more trial")
    listing = f"`{reader.det} queue` lists all that do"
    return f"{text}\n{others} of experiment {experiment.id} {verb}; {listing}."


def explain_key(call: Call) -> str:
    """Return what a key of the configuration means."""
    return explain(call.options.path, call.reader)


def wait(call: Call) -> str:
    """Wait until an experiment has ended; raise if it did not complete."""
    call.client.experiment(call.options.id)  # raises if it does not exist
    return describe_end(wait_until_ended(call.client, call.options.id))


def wait_until_ended(client: Client, experiment_id: int) -> ExperimentView:
    """Block until an experiment has ended, also while it is paused; return its view."""
    follow_until(client, experiment_id)
    return client.experiment(experiment_id)


def describe_end(view: ExperimentView) -> str:
    """Return a line about a completed experiment.

    Raises:
        Conflict: It did not complete; the message has its state and the reason.
    """
    text = f"{title(view)}: {describe_state(view)}"
    if view.state is not State.COMPLETED:
        raise Conflict(text)
    return text


def explain(path: str, reader: Reader) -> str:
    """Return the help on a key of the configuration, with the keys below it; "": on all keys."""
    lines = []
    if path:
        found = describe(path)
        if found is None:
            raise NotFound(_unknown(path, reader))
        kind = found.type
        if found.is_required:
            kind += ", required"
        elif found.default is not None:
            kind += f", default {_default(found)}"
        lines = [f"{found.path}  ({kind})", found.text, found.note]
    keys = known_keys(path)
    rows = [(name, field.type, _default(field), field.text) for name, field in keys.items()]
    if rows:
        lines.append(plain_table(("key", "type", "default", "meaning"), rows))
    return "\n".join(line for line in lines if line)


def _default(field: FieldHelp) -> str:
    return "required" if field.is_required else cell_text(field.default)


def _unknown(path: str, reader: Reader) -> str:
    paths = list(all_paths())
    last = path.rpartition(".")[2]
    near = [known for known in paths if known.rpartition(".")[2] == last]
    near = near or get_close_matches(path, paths, n=3)
    if near:
        hint = f"did you mean {' or '.join(near[:3])}?"
    else:
        hint = f"`{reader.experiment} ?` lists all keys"
    return f"there is no key {path}; {hint}"
