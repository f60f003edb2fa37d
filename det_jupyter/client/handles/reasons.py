"""Formats why a trial does not run, and what limits one that runs; carries out remedies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import ranked
from det_jupyter.client.requests import make_request
from det_jupyter.contract.messages import (
    Activate,
    AllocationState,
    ChangeResources,
    ExperimentView,
    MoveInQueue,
    Pause,
    Reason,
    Remedy,
    SwitchSlots,
    TrialView,
    Verdict,
)
from det_jupyter.contract.messages.resources import command_lines
from det_jupyter.contract.values.reader import NOTEBOOK, Reader
from det_jupyter.diagnosis.sentences import TOO_EARLY
from det_jupyter.errors import Conflict, DetError, MasterUnreachable, NotFound
from det_jupyter.view.forms.news import plain_sentence
from det_jupyter.view.forms.verdict_card import verdict_html, verdict_lines
from det_jupyter.view.making.trial_view import build_verdict
from det_jupyter.view.model.slots_and_queue import Wait


class ShownReason(Reason):
    """A reason that prints as text and displays as HTML."""

    def __repr__(self) -> str:
        return reason_text(self, NOTEBOOK)

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return reason_page(self)


def reason_text(reason: Reason, reader: Reader) -> str:
    """Return a reason as text, with its remedies and the commands for them below."""
    lines = [f"Trial {reason.trial_id}: {reason.sentence}"]
    if expected := _expected(reason):
        lines.append(f"  {expected}")
    if reason.remedies:
        lines.append(f"  {_heading(reason)}")
    for remedy in reason.remedies:
        lines.append(f"    • {remedy.text}")
        lines += [f"        {line}" for line in command_lines(remedy, reader)]
    return "\n".join(lines)


def waiting_text(client: Client, wait: Wait | None, reader: Reader) -> str:
    """Return `wait` with its remedies as commands of `reader`; "" if the trial waits no more.

    The remedies are left out if the master does not answer.
    """
    if wait is None:
        return ""
    try:
        reason = client.reason(wait["trial_id"])
    except MasterUnreachable:
        return f"Trial {wait['trial_id']}: {plain_sentence(wait)}"
    except DetError:  # such as of a deleted trial
        return ""
    return "" if reason.position is None else reason_text(reason, reader)


def reason_page(reason: Reason) -> str:
    """Return a reason as HTML that needs neither script nor style sheet."""
    parts = [f"<p><b>Trial {reason.trial_id}</b>: {escape(reason.sentence)}</p>"]
    if expected := _expected(reason):
        parts.append(f"<p>{escape(expected)}</p>")
    if reason.remedies:
        items = "".join(
            f"<li>{escape(remedy.text)}"
            + "".join(
                f"<br><code>{escape(line)}</code>" for line in command_lines(remedy, NOTEBOOK)
            )
            + "</li>"
            for remedy in reason.remedies
        )
        parts.append(f"<p>{_heading(reason)}</p><ul>{items}</ul>")
    return f"<div>{''.join(parts)}</div>"


def _heading(reason: Reason) -> str:
    """Return the heading above the remedies."""
    if reason.cause == "hangs":
        return "What would help:"
    return "What would end it now:" if reason.cause == "leaving" else "What would start it:"


def _expected(reason: Reason) -> str:
    """Return the basis of the estimated start, or why there is no estimate."""
    if reason.expected is not None:
        return f"The time is estimated {reason.expected.basis}."
    return f"When it starts is not known: {reason.why_unknown}." if reason.why_unknown else ""


def experiment_reason(client: Client, view: ExperimentView) -> ShownReason:
    """Return why an experiment's next trial does not run; see `Experiment.why`."""
    if not view.trials:
        raise NotFound(f"experiment {view.id} has no trial yet")
    return ShownReason(**dict(client.reason(next_trial(view.trials).id)))


def next_trial(trials: Sequence[TrialView]) -> TrialView:
    """Return the trial whose reason is the experiment's: the first that waits for slots.

    If none waits, one whose ranks were asked to leave; then one that has not ended, preferably not
    resting; if all have ended, the last.
    """
    open_trials = [trial for trial in trials if not trial.state.is_terminal]
    waiting = (trial for trial in open_trials if is_queued(trial))
    active_first = sorted(open_trials, key=lambda trial: (trial.leaving is None, trial.is_resting))
    return next(waiting, next(iter(active_first), trials[-1]))


def is_queued(trial: TrialView) -> bool:
    """Return whether a trial waits for slots."""
    return trial.allocation is not None and trial.allocation.state is AllocationState.QUEUED


def carry_out(client: Client, remedy: Remedy) -> None:
    """Carry out a remedy for each of its targets.

    Raises:
        Conflict: It cannot be done by a request, only by the user.
    """
    target: Any
    for target in remedy.target:
        values: dict[str, Any] = dict(remedy.values)
        match remedy.verb:
            case "pause_at_once":
                client.change(Pause(experiment_id=target, at_once=True))
            case "pause" | "activate":
                kind = Pause if remedy.verb == "pause" else Activate
                client.change(kind(experiment_id=target))
            case "set":
                if "pool" in values:
                    values["resource_pool"] = values.pop("pool")
                client.change(make_request(ChangeResources, experiment_id=target, **values))
            case "move":
                client.change(make_request(MoveInQueue, experiment_id=target, **values))
            case "enable_slots":
                slots = values["slot_ids"]
                client.change(
                    make_request(SwitchSlots, agent_id=target, slots=slots, enabled=True)
                )
            case _:
                raise Conflict(f"{remedy.text}: this has to be typed, or done by hand")


class ShownVerdict(Verdict):
    """A verdict that prints as text and displays as HTML."""

    def __repr__(self) -> str:
        return "\n".join(verdict_lines(build_verdict(self)))

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return verdict_html(build_verdict(self))


def shown_verdict(verdict: Verdict | None, config: Mapping[str, Any]) -> ShownVerdict:
    """Return a trial's verdict for display; without one, a verdict that says why."""
    if verdict is not None:
        return ShownVerdict(**dict(verdict))
    is_off = (config.get("profiling") or {}).get("enabled") is False
    sentence = (
        "Not measured: profiling.enabled is false."
        if is_off
        else TOO_EARLY.format(missing="no times of its ranks")
    )
    return ShownVerdict(kind="unknown", sentence=sentence, at=0.0, batches=0)


def experiment_verdict(view: ExperimentView) -> ShownVerdict:
    """Return the verdict of the best trial that has a known one; see `Experiment.verdict`."""
    trials = ranked(view)
    if not trials:
        raise NotFound(f"experiment {view.id} has no trial yet")
    verdicts = (trial.verdict for trial in trials)
    known = next((v for v in verdicts if v is not None and v.kind != "unknown"), None)
    return shown_verdict(known or trials[0].verdict, view.config)
