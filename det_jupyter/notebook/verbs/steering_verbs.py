"""What `%det_experiment set`, `archive`, `delete`, `continue`, `fork` and `why` do."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence

from IPython.core.error import StdinNotImplementedError, UsageError

from det_jupyter.client import Checkpoint
from det_jupyter.client.asking import ask_for
from det_jupyter.client.reasons import is_queued, reason_text
from det_jupyter.errors import ConfigError
from det_jupyter.notebook.handles import handles
from det_jupyter.notebook.handles.handles import NotebookExperiment
from det_jupyter.notebook.submit.overrides import read_overrides
from det_jupyter.verbs.tables import counted
from det_jupyter.wire import ChangeResources, ExperimentView
from det_jupyter.words import size

_DONE = {"archive": "hidden from lists", "unarchive": "shown in lists again"}
_MOST_CHECKPOINTS = 20


def archive(options: argparse.Namespace) -> None:
    """Hide an experiment from lists, or show it again."""
    view = handles.client().order(options.id, options.verb)
    print(f"{_title(view)}: {_DONE[options.verb]}.")


def set_resources(options: argparse.Namespace) -> None:
    """Change what an experiment may have."""
    change = ask_for(
        ChangeResources,
        priority=options.priority,
        weight=options.weight,
        max_slots=options.max_slots,
        resource_pool=options.pool,
    )
    if change == ChangeResources():
        raise UsageError(
            "%det_experiment set: nothing to change; give --priority, --weight, --max-slots "
            "or --pool"
        )
    print(describe_place(handles.client().change_resources(options.id, change)))


def describe_place(view: ExperimentView) -> str:
    """Return where an experiment waits or runs, and how urgent it is."""
    most = "no limit of slots" if view.max_slots is None else f"at most {view.max_slots} slots"
    weight = "" if view.weight == 1 else f", weight {view.weight:g}"
    pool = f", pool {view.pool}" if view.pool else ""
    return f"{_title(view)}: priority {view.priority}{weight}, {most}{pool}."


def delete(options: argparse.Namespace) -> None:
    """Delete an experiment, after asking."""
    client = handles.client()
    view = client.experiment(options.id)
    checkpoints = [c for c in client.checkpoints(options.id) if c.state == "COMPLETED"]
    size_text = size(sum(checkpoint.size_bytes for checkpoint in checkpoints))
    what = (
        f"experiment {view.id} “{view.name}” with {counted(len(view.trials), 'trial')}, "
        f"{counted(len(checkpoints), 'checkpoint')} ({size_text}), all metrics and logs"
    )
    if not options.yes and not _is_sure(f"Delete {what}?", "delete"):
        print(f"Nothing is deleted; {_title(view)} stays.")
        return
    client.order(options.id, "delete")
    print(f"Deleting {what}.")


def set_retention(options: argparse.Namespace) -> None:
    """Delete the checkpoints that are not to be kept, after asking."""
    experiment = handles.experiment(options.id)
    policy = {
        "save_experiment_best": options.save_experiment_best,
        "save_trial_best": options.save_trial_best,
        "save_trial_latest": options.save_trial_latest,
    }
    doomed = experiment.set_retention(**policy, dry_run=True)
    for checkpoint in doomed[:_MOST_CHECKPOINTS]:
        print(f"  {checkpoint!r}")
    if (more := len(doomed) - _MOST_CHECKPOINTS) > 0:
        print(f"  … and {more:,} more")
    question = f"Delete {_amount(doomed)} of experiment {options.id}?"
    if doomed and not options.yes and not _is_sure(question, "retention"):
        print("Nothing is deleted, and the policy stays as it is.")
        return
    before = [c for c in experiment.checkpoints() if c.view.state == "COMPLETED"]
    deleted = experiment.set_retention(**policy)
    print(_describe_retention(options, before, deleted))


def _amount(checkpoints: Sequence[Checkpoint]) -> str:
    num_bytes = sum(checkpoint.view.size_bytes for checkpoint in checkpoints)
    return f"{counted(len(checkpoints), 'checkpoint')} ({size(num_bytes)})"


def _describe_retention(
    options: argparse.Namespace, before: Sequence[Checkpoint], deleted: Sequence[Checkpoint]
) -> str:
    gone = {checkpoint.uuid for checkpoint in deleted}
    stay = [c for c in before if c.uuid not in gone and c.path.is_dir()]
    per_trial = options.save_trial_best + options.save_trial_latest
    of_trials = Counter(checkpoint.view.trial_id for checkpoint in stay)
    most_kept = options.save_experiment_best + sum(min(n, per_trial) for n in of_trials.values())
    are_in_use = len(stay) > most_kept
    if deleted:
        rest = "; others that would go are in use and stay for now" if are_in_use else ""
        return f"Deleted {_amount(deleted)} of experiment {options.id}{rest}."
    why = f"the policy keeps {counted(len(stay), 'checkpoint')}" if stay else "none is left"
    if are_in_use:
        why = "those that would go are in use and stay for now"
    return f"Nothing of experiment {options.id} was to be deleted; {why}."


def _is_sure(question: str, verb: str) -> bool:
    try:
        return input(f"{question} It cannot be undone. [y/N] ").strip().lower() in ("y", "yes")
    except (StdinNotImplementedError, EOFError):
        raise UsageError(
            f"%det_experiment {verb}: there is nobody to ask here; add --yes if you are sure"
        ) from None


def go_on(options: argparse.Namespace, cell: str | None) -> NotebookExperiment:
    """Go on with an experiment that is over, under its own number."""
    experiment = handles.experiment(options.id)
    experiment.continue_(read_overrides(options.overrides, cell))
    return experiment


def fork(options: argparse.Namespace, cell: str | None) -> NotebookExperiment:
    """Submit an experiment anew, with changes."""
    config = read_overrides(options.overrides, cell)
    parent = handles.experiment(options.id)
    child = parent.fork(
        config,
        trial=options.trial,
        checkpoint=options.checkpoint,
        queue_anyway=options.queue_anyway,
    )
    print(f"Experiment {child.id} is a fork of experiment {options.id}.")
    return child


def print_why(*, experiment_id: int | None = None, trial_id: int | None = None) -> None:
    """Print why a trial, or the next trial of an experiment, does not run."""
    if trial_id is not None:
        print(reason_text(handles.client().reason(trial_id)))
        return
    if experiment_id is None:
        raise ConfigError(["why: give the number of a trial or of an experiment"])
    experiment = handles.experiment(experiment_id)
    print(experiment.why())
    waiting = sum(is_queued(trial) for trial in experiment.view.trials)
    if waiting > 1:
        others = counted(waiting - 1, "more trial")
        verb = "waits" if waiting == 2 else "wait"
        print(f"{others} of experiment {experiment_id} {verb}; %det queue lists all that do.")


def _title(view: ExperimentView) -> str:
    return f"Experiment {view.id} “{view.name}”"


VERBS: dict[str, Callable[[argparse.Namespace], None]] = {
    "archive": archive,
    "unarchive": archive,
    "set": set_resources,
    "retention": set_retention,
    "delete": delete,
}
