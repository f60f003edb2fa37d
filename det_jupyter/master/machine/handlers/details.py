"""How an experiment is described: its name, description and labels, in any state."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from det_jupyter.contract.messages import ChangeDetails
from det_jupyter.contract.schema.fields import Title
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.master.machine.model.turn import Turn

_MOST_LABELS = 100
_TITLE: TypeAdapter[str] = TypeAdapter(Title)


def on_change_details(turn: Turn, event: ChangeDetails) -> None:
    """Change name, description or labels; what is refused changes nothing."""
    experiment = turn.state.experiment(event.experiment_id)
    if not event.given():
        raise ConfigError(["nothing to change: give a name, a description or labels"])
    before = experiment.config.get("labels") or []
    removed = set(event.remove_labels)
    labels = [
        label for label in dict.fromkeys([*before, *event.add_labels]) if label not in removed
    ]
    if problems := _find_problems(event, len(labels)):
        raise ConfigError(problems)
    changed = event.model_dump(include={"name", "description"}, exclude_none=True)
    if labels != before:
        changed["labels"] = labels
    experiment.reconfigure(experiment.config | changed, changed)
    turn.touch(experiment)


def _find_problems(change: ChangeDetails, num_labels: int) -> list[Problem]:
    problems = []
    if change.name is not None:
        try:
            _TITLE.validate_python(change.name)
        except ValidationError as error:
            problems.append(
                Problem("name", f"got {change.name!r:.60}, {error.errors()[0]['msg']}")
            )
    both = [label for label in change.add_labels if label in change.remove_labels]
    problems += [
        Problem("labels", f"{label!r} is both to add and to remove; give it once")
        for label in both
    ]
    problems += [
        Problem("labels", f"got {label!r}, expected one line of printable text")
        for label in change.add_labels
        if not label.strip() or not label.isprintable()
    ]
    if num_labels > _MOST_LABELS:
        problems.append(
            Problem("labels", f"{num_labels} with those it has, expected at most {_MOST_LABELS}")
        )
    return problems
