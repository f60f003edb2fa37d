"""Verbs that change an experiment (details, share, search, checkpoints) or a trial."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from det_jupyter.client import Checkpoint, Experiment, Trial
from det_jupyter.client.handle_text import describe_trial
from det_jupyter.client.requests import make_request
from det_jupyter.client.submitting.drafts import read_file
from det_jupyter.contract.messages import ChangeDetails, ChangeResources, ExperimentView, KillTrial
from det_jupyter.contract.values.text import count, length, size
from det_jupyter.errors import UsageError
from det_jupyter.front.verbs.grammar import Call, usage_errors
from det_jupyter.front.verbs.lifecycle import confirm
from det_jupyter.front.verbs.showing import title
from det_jupyter.front.verbs.yaml_input import read_overrides

_MOST_CHECKPOINTS = 20


def set_values(call: Call) -> str:
    """Change name, description, priority, weight, slot limit or pool of an experiment."""
    given = call.options
    with usage_errors(given):
        details = make_request(
            ChangeDetails,
            experiment_id=given.id,
            name=given.title,
            description=given.description,
        )
        change = make_request(
            ChangeResources,
            experiment_id=given.id,
            priority=given.priority,
            weight=given.weight,
            max_slots=given.max_slots,
            resource_pool=given.pool,
        )
    if not change.given() and not details.given():
        raise UsageError(
            f"{given.words}: nothing to change; give --name, --description, --priority, --weight, "
            "--max-slots or --pool"
        )
    lines = []
    if details.given():
        lines.append(_change_details(call, details))
    if change.given():
        lines.append(describe_place(call.client.change(change)))
    return "\n".join(lines)


def set_value(call: Call) -> str:
    """Change the property of an experiment that the verb is named for."""
    given = call.options
    name = given.verb.name.replace("-", "_")
    if name in ("name", "description"):
        with usage_errors(given):
            details = make_request(ChangeDetails, experiment_id=given.id, **{name: given.value})
        return _change_details(call, details)
    with usage_errors(given):
        change = make_request(ChangeResources, experiment_id=given.id, **{name: given.value})
    return describe_place(call.client.change(change))


def change_labels(call: Call) -> str:
    """Add labels to an experiment, or remove them."""
    with usage_errors(call.options):
        labels = {f"{call.options.verb.name}_labels": call.options.labels}
        change = make_request(ChangeDetails, experiment_id=call.options.id, **labels)
    return _change_details(call, change)


def _change_details(call: Call, change: ChangeDetails) -> str:
    view = call.client.change(change)
    done = []
    if change.name is not None:
        done.append(f"renamed to “{view.name}”")
    if change.description is not None:
        done.append("description changed")
    if change.add_labels or change.remove_labels:
        done.append(f"labels {', '.join(view.labels)}" if view.labels else "no labels")
    return f"Experiment {view.id}: {', '.join(done)}."


def describe_place(view: ExperimentView) -> str:
    """Return a line with an experiment's priority, weight, slot limit and pool."""
    most = "no limit of slots" if view.max_slots is None else f"at most {view.max_slots} slots"
    weight = "" if view.weight == 1 else f", weight {view.weight:g}"
    pool = f", pool {view.pool}" if view.pool else ""
    return f"{title(view)}: priority {view.priority}{weight}, {most}{pool}."


def _values(call: Call, names: Sequence[str], options: str) -> dict[str, Any]:
    """Return the values of these options; a UsageError if none is given."""
    values = {name: getattr(call.options, name) for name in names}
    if all(value is None for value in values.values()):
        raise UsageError(f"{call.options.words}: nothing to change; give {options}")
    return values


def change_search(call: Call) -> str:
    """Change the limits of a running search."""
    experiment = call.experiment(call.options.id)
    names = ("max_trials", "max_length", "max_concurrent_trials", "hyperparameters")
    options = "--max-trials, --max-length, --max-concurrent or --hyperparameters"
    values = _values(call, names, options)
    experiment.change_search(**values)
    view = experiment.view
    return f"{title(view)}: {_describe_search(view)}"


def _describe_search(view: ExperimentView) -> str:
    searcher = view.config["searcher"]
    words = []
    if "max_trials" in searcher:
        words.append(f"{searcher['max_trials']} trials")
    if searcher.get("max_length") is not None:
        words.append(f"to {length(searcher['max_length'])}")
    if "max_concurrent_trials" in searcher:
        words.append(f"{searcher['max_concurrent_trials'] or 'all'} at once")
    return f"{searcher['name']}, {', '.join(words)}"


def set_retention(call: Call) -> str:
    """Delete the checkpoints that a policy does not keep, after confirmation."""
    given, experiment = call.options, call.experiment(call.options.id)
    names = ("save_experiment_best", "save_trial_best", "save_trial_latest")
    policy = {name: getattr(given, name) for name in names}
    to_delete = experiment.set_retention(**policy, dry_run=True)
    for checkpoint in to_delete[:_MOST_CHECKPOINTS]:
        print(f"  {checkpoint!r}")
    if (more := len(to_delete) - _MOST_CHECKPOINTS) > 0:
        print(f"  … and {more:,} more")
    if to_delete and not confirm(f"Delete {_amount(to_delete)} of experiment {given.id}?", given):
        return "Nothing is deleted, and the policy stays as it is."
    before = [c for c in experiment.checkpoints() if c.view.state == "COMPLETED"]
    deleted = experiment.set_retention(**policy)
    return _describe_retention(given, before, deleted)


def _amount(checkpoints: Sequence[Checkpoint]) -> str:
    num_bytes = sum(checkpoint.view.size_bytes for checkpoint in checkpoints)
    return f"{count(len(checkpoints), 'checkpoint')} ({size(num_bytes)})"


def _describe_retention(
    given: argparse.Namespace, before: Sequence[Checkpoint], deleted: Sequence[Checkpoint]
) -> str:
    """Return what was deleted, or why nothing was.

    `before` are the checkpoints before the request, `deleted` those that the master deletes.
    """
    deleted_uuids = {checkpoint.uuid for checkpoint in deleted}
    stay = [c for c in before if c.uuid not in deleted_uuids and c.files]
    per_trial = given.save_trial_best + given.save_trial_latest
    of_trials = Counter(checkpoint.view.trial_id for checkpoint in stay)
    most_kept = given.save_experiment_best + sum(min(n, per_trial) for n in of_trials.values())
    are_in_use = len(stay) > most_kept
    if deleted:
        rest = (
            "; others that would go are in use or registered, and stay for now"
            if are_in_use
            else ""
        )
        return f"Deleted {_amount(deleted)} of experiment {given.id}{rest}."
    reason = f"the policy keeps {count(len(stay), 'checkpoint')}" if stay else "none is left"
    if are_in_use:
        reason = "those that would go are in use or registered, and stay for now"
    return f"Nothing of experiment {given.id} was to be deleted; {reason}."


def continue_experiment(call: Call) -> Experiment:
    """Continue an experiment that has ended, under its own number."""
    experiment = call.experiment(call.options.id)
    experiment.continue_(_overrides(call))
    return experiment


def _overrides(call: Call) -> dict[str, Any]:
    """Return the changes of a configuration from the cell or file, and from `--config`."""
    given = call.options
    if given.config_file is None:
        return read_overrides(given.overrides, call.text)
    if call.text is not None:
        raise UsageError(f"{given.words}: give either --config-file, or YAML below the line")
    return read_overrides(given.overrides, read_file(Path(given.config_file)))


def fork(call: Call) -> Experiment:
    """Submit a new experiment with the code of another one, and changes."""
    given = call.options
    config = _overrides(call)
    child = call.experiment(given.id).fork(
        config, trial=given.trial, checkpoint=given.checkpoint, queue_anyway=given.queue_anyway
    )
    print(f"Experiment {child.id} is a fork of experiment {given.id}.")
    return child


def profile(call: Call) -> str:
    """Record some batches with torch.profiler."""
    given = call.options
    traces = Trial(call.client, given.id, call.experiment).profile(
        steps=given.steps, ranks=given.ranks, with_stack=given.with_stack
    )
    return repr(traces)


def change(call: Call) -> str:
    """Change a trial while it trains."""
    given = call.options
    names = ("lr", "lr_factor", "optimizer", "min_validation_period", "priority")
    options = "--lr, --lr-factor, --min-validation-period or --priority"
    values = _values(call, names, options)
    made = Trial(call.client, given.id, call.experiment).change(**values)
    changes = [] if made is None else [repr(made)]
    if given.priority is not None:
        changes.append(f"priority {given.priority} of its experiment")
    return f"Trial {given.id}: {'; '.join(changes)}."


def kill(call: Call) -> str:
    """End a trial now; its experiment goes on."""
    view = call.client.change(KillTrial(trial_id=call.options.id))
    return f"Trial {view.id} of experiment {view.experiment_id}: {describe_trial(view)}."
