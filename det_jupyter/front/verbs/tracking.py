"""The verb about trackers: sends an experiment to them, also one that has ended."""

from __future__ import annotations

import time
from collections.abc import Sequence

from det_jupyter.client.imports.unmanaged import take_in
from det_jupyter.client.requests import make_request
from det_jupyter.client.submitting.environment import tracker_variables
from det_jupyter.contract.messages import SendTo, TrackerState
from det_jupyter.errors import DetError
from det_jupyter.front.verbs.arguments import yaml_value
from det_jupyter.front.verbs.grammar import Call

_POLL_S = 0.5


def sync(call: Call) -> str:
    """Send an experiment to trackers; return a line for each when all have received it.

    With `--stop`, stop sending it there. With a folder, take in its runs.

    Raises:
        DetError: Sending to a tracker failed; it is tried again.
    """
    if isinstance(call.options.id, str):
        return _take_in(call)
    number, asked_at = call.options.id, time.time()
    request = request_of(call.options.to).model_copy(update={"variables": tracker_variables()})
    if call.options.stop:
        left = call.client.send_to(number, request.model_copy(update={"is_over": True}))
        return f"Experiment {number} is sent to {_labels(left) or 'no tracker'} from now on."
    states = call.client.send_to(number, request)
    numbers = {each.id for each in states}
    last_seq = max((each.last_seq for each in states), default=0)  # what is reported later waits
    while any(not each.has(last_seq) and not _has_failed(each, asked_at) for each in states):
        time.sleep(_POLL_S)
        states = [each for each in call.client.trackers(number) if each.id in numbers]
    lines = "\n".join(each.sentence for each in states)
    if any(_has_failed(each, asked_at) for each in states):
        raise DetError(f"{lines}\nThe same command with --stop ends the attempts.")
    return lines


def _take_in(call: Call) -> str:
    lines, are_all_whole = [], True
    for taken in take_in(call.options.id):
        number, problem = taken.experiment_id, taken.problem
        are_all_whole &= not problem
        if number is None:
            lines.append(f"{taken.folder}: {problem}")
            continue
        has = f"has not all of this run: {problem}" if problem else "has this run"
        show = call.reader.fill(f"`{{det}} experiment show {number}` shows it")
        lines.append(f"{taken.folder}: experiment {number} {has}; {show}.")
    if not are_all_whole:
        raise DetError("\n".join(lines))
    return "\n".join(lines)


def _labels(states: Sequence[TrackerState]) -> str:
    return ", ".join(each.label for each in states)


def _has_failed(state: TrackerState, since: float) -> bool:
    """Return whether an attempt since then has failed."""
    return bool(state.problem) and state.next_at is not None and state.next_at > since


def request_of(to: str | None) -> SendTo:
    """Return the request for what `--to` names.

    >>> request_of("http://localhost:5000").tracker
    {'type': 'mlflow', 'tracking_uri': 'http://localhost:5000'}
    >>> request_of("{type: wandb, mode: offline}").tracker, request_of("mine").name
    ({'type': 'wandb', 'mode': 'offline'}, 'mine')
    """
    if to is None:
        return SendTo()
    if "://" in to and not to.lstrip().startswith("{"):
        return SendTo(tracker={"type": "mlflow", "tracking_uri": to})
    entry = yaml_value(to)
    return make_request(SendTo, tracker=entry) if isinstance(entry, dict) else SendTo(name=to)
