"""Formats the view as plain text, for terminals and notebooks that run without a front end."""

from __future__ import annotations

from det_jupyter.contract.values.reader import NOTEBOOK, Reader
from det_jupyter.contract.values.text import one_line, percent, printable, shortened
from det_jupyter.view.forms import text_lines
from det_jupyter.view.forms.rungs_svg import rung_sentences
from det_jupyter.view.forms.verdict_card import verdict_lines
from det_jupyter.view.model.search_state import SearchState
from det_jupyter.view.model.slots_and_queue import Wait
from det_jupyter.view.model.trial_state import Failure, TrialDetails
from det_jupyter.view.model.view_state import ViewState

_BAR_WIDTH = 30
_NAME_WIDTH = 40


def render_plain(state: ViewState, reader: Reader = NOTEBOOK) -> str:
    """Return the experiment as several lines of text, with commands in the form of `reader`."""
    summary = one_line(text_lines.summary(state))
    text = [
        f"{one_line(state['name'])} (experiment {state['id']}): {state['status_word'].lower()}",
        f"{_bar(state['progress'])} {percent(state['progress'])} · {summary}",
    ]
    if state["labels"]:
        text.append(f"labels: {one_line(', '.join(state['labels']))}")
    text += _lines(state["description"], state["message"])
    text += [f"! {one_line(alarm)}" for alarm in state["alarms"]]
    for trial in state["trials"]:
        text += _trial(trial, state["id"], reader)
    text += _wait(state["search"] and state["search"]["wait"], "", state["id"], reader)
    text += _lines(text_lines.slots_line(state))
    text += _metrics(state) if state["search"] is None else _search(state["search"])
    text += _lines(text_lines.left_out(state), text_lines.checkpoints_line(state["checkpoints"]))
    text += [f"Note: {one_line(notice)}" for notice in state["notices"]]
    return "\n".join(text)


def _lines(*texts: str) -> list[str]:
    return [one_line(text) for text in texts if text]


def _bar(fraction: float) -> str:
    full = int(fraction * _BAR_WIDTH)
    return "█" * full + "░" * (_BAR_WIDTH - full)


def _search(search: SearchState) -> list[str]:
    text = _lines(*text_lines.remark_lines(search), *rung_sentences(search))
    head, rows = text_lines.trial_rows(search)
    if not rows:
        return [*text, "No trials yet."]
    table = [[shortened(cell, _NAME_WIDTH) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    text += ["  ".join(map(str.rjust, row, widths)) for row in table]
    return text + _lines(text_lines.left_out_note(search), text_lines.importance_line(search))


def _wait(wait: Wait | None, indent: str, experiment_id: int, reader: Reader) -> list[str]:
    if wait is None:
        return []
    text = [f"{indent}waiting: {one_line(wait['sentence'])}"]
    if wait["expected"]:
        text.append(f"{indent}{one_line(wait['expected'])}")
    for remedy in wait["remedies"]:
        # The commands in a state are for notebooks.
        is_known = reader is NOTEBOOK and remedy["command"]
        command = f": {one_line(remedy['command'])}" if is_known else ""
        text.append(f"{indent}- {one_line(remedy['sentence'])}{command}")
    if reader is not NOTEBOOK and any(remedy["command"] for remedy in wait["remedies"]):
        text.append(f"{indent}`{reader.experiment} why {experiment_id}` has the commands")
    return text


def _trial(trial: TrialDetails, experiment_id: int, reader: Reader) -> list[str]:
    text = [text_lines.trial_title(trial)]
    if trial["makes_room"]:
        text.append(f"  {one_line(trial['makes_room'])}")
    text += _wait(trial["wait"], "  ", experiment_id, reader)
    for rank in trial["ranks"]:
        device = f", {rank['device']}" if rank["device"] else ""
        place = f"{rank['slot']}{device}, pid {rank['pid']}"
        text.append(f"  rank {rank['rank']}: {one_line(place)}, {rank['status']}")
    if trial["verdict"] is not None:
        text += [f"  {line}" for line in verdict_lines(trial["verdict"])]
    if trial["failure"] is not None:
        text += _failure(trial["failure"])
        text.append(f"  logs: {text_lines.logs_line(experiment_id, trial, reader)}")
    return text


def _failure(failure: Failure) -> list[str]:
    text = [f"  {text_lines.failure_title(failure)}: {one_line(failure['error'])}"]
    if failure["where"]:
        text.append(f"  at {one_line(failure['where'])}")
    return text + [f"  | {line}" for line in printable(failure["traceback"]).splitlines()]


def _metrics(state: ViewState) -> list[str]:
    rows = text_lines.metric_rows(state)
    if not rows:
        return [state["no_metrics"]]
    table = [
        [shortened(name, _NAME_WIDTH), *row] for name, *row in [text_lines.METRIC_HEAD, *rows]
    ]
    width = max(len(name) for name, *_ in table)
    return [f"{name:<{width}}" + "".join(f"  {n:>10}" for n in row) for name, *row in table]
