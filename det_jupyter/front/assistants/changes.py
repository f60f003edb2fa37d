"""Changes that assistants ask for: what the user is asked, and submissions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from det_jupyter.client.handle_text import describe_trial, experiment_line
from det_jupyter.client.submitting.submission import Prepared, submit
from det_jupyter.contract.values.entrypoints import entrypoint_text
from det_jupyter.contract.values.sizes import sizes_of
from det_jupyter.contract.values.text import count, length, shortened
from det_jupyter.errors import Conflict
from det_jupyter.front.assistants.tool_calls import TEXT, call_of, line_of
from det_jupyter.front.assistants.tool_table import Tool
from det_jupyter.front.cli.create import prepare_line
from det_jupyter.front.verbs.disk_notes import room_notes
from det_jupyter.front.verbs.experiment_list import numbers_of
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.showing import title

_MOST_TARGETS = 10
_WIDTH = 1000
_OF_ENDED = ("fork", "continue")


@dataclass(frozen=True, slots=True)
class Question:
    """What the user is asked before a change.

    Args:
        tool: Name of the tool.
        title: One line.
        text: What would change, as lines.
    """

    tool: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.title}\n\n{self.text}"


def question_of(tool: Tool, values: Mapping[str, Any]) -> Question:
    """Return the question for a call; it is the same as long as nothing changes.

    Raises:
        DetError: The call would be refused: a value is wrong, or what it names does not exist.
    """
    call = call_of(tool, values)
    lines = [*_targets(tool, call), line_of(tool, values), tool.effect]
    title = f"An assistant asks to {tool.name.replace('_', ' ')}"
    return Question(tool.name, title, "\n".join(shortened(each, _WIDTH) for each in lines))


def _targets(tool: Tool, call: Call) -> list[str]:
    """Return lines about what a call would change."""
    if tool.name == "submit":
        return _submission(prepare_line(call), call.text)
    if tool.line.startswith("trial"):
        trial = call.client.trial(call.options.id)
        of = call.client.experiment(trial.experiment_id)
        lines = [f"Trial {trial.id} ({describe_trial(trial)}) of {title(of)}"]
        is_over = trial.state.is_terminal
    else:
        numbers = numbers_of(call) if "ids" in tool.chosen else [call.options.id]
        more = len(numbers) - _MOST_TARGETS
        views = [call.client.experiment(number) for number in numbers[:_MOST_TARGETS]]
        lines = [*map(experiment_line, views), *([f"… and {more} more"] if more > 0 else [])]
        is_over = more <= 0 and all(view.state.is_terminal for view in views)
    if is_over and tool.name not in _OF_ENDED:
        raise Conflict(f"{tool.name}: it is over, so nothing can be changed: {'; '.join(lines)}")
    return lines


def _submission(prepared: Prepared, text: str | None) -> list[str]:
    config = prepared.config
    searcher = config.to_document()["searcher"]
    most = searcher.get("max_trials")
    sizes = sizes_of(config.to_document())
    slots = f"{sizes} slots" if sizes.is_elastic else count(sizes.least, "slot")
    trains = f", {most} trials" if most else ""
    longest = f", to {length(searcher['max_length'])}" if searcher.get("max_length") else ""
    return [
        f"“{config.name}”: {entrypoint_text(config.entrypoint)}",
        f"{slots} a trial, {searcher['name']}{trains}{longest}",
        "the present folder as it is" if prepared.plan is None else f"files: {prepared.plan}",
        *([f"{TEXT}: given by the assistant"] if text is not None else []),
    ]


def submit_folder(call: Call) -> str:
    """Submit a configuration and a folder; return the number and notes."""
    prepared = prepare_line(call)
    experiment = submit(call.client, prepared)
    notes = [*prepared.notices, *room_notes(call.client, experiment.id, call.reader)]
    line = f"Created experiment {experiment.id}: {experiment_line(experiment.view)}."
    return "\n".join([line, *(f"Note: {note}" for note in notes)])
