"""The preview of a search in words and as a plain table."""

from __future__ import annotations

from datetime import datetime, timedelta

from det_jupyter.verbs.tables import plain_table
from det_jupyter.wire import PreviewView
from det_jupyter.words import count, lasting, length, unit_of


def render_text(view: PreviewView, at: float) -> str:
    """Return the preview as lines of text.

    Args:
        view: What the master reckoned.
        at: The present time, to which the duration is added.
    """
    return "\n".join([title(view), "", _table(view), "", *sentences(view, at)])


def title(view: PreviewView) -> str:
    """Return the search in one line."""
    return f"{view.searcher}: {count(view.num_trials, 'trial')}, judged by {view.metric}"


def header(view: PreviewView) -> tuple[str, ...]:
    """Return the headings of the table: one column for each bracket, if there are several."""
    brackets = [f"bracket {number}" for number in range(1, len(view.brackets) + 1)]
    return ("train for", "trials that end there", *(brackets if len(brackets) > 1 else []))


def rows(view: PreviewView) -> list[tuple[str, ...]]:
    """Return a row for each length."""
    found = []
    for planned in view.trials:
        counts = [planned.num_trials]
        if len(view.brackets) > 1:
            counts += [
                sum(p.num_trials for p in bracket.trials if p.length == planned.length)
                for bracket in view.brackets
            ]
        found.append((length(planned.length), *(f"{number:,}" for number in counts)))
    return found


def _table(view: PreviewView) -> str:
    return plain_table(header(view), rows(view))


def sentences(view: PreviewView, at: float) -> list[str]:
    """Return what it comes to: training in all, and time."""
    return [_training(view), _time(view, at)]


def _training(view: PreviewView) -> str:
    text = f"Training in all: {amount(view.expected, view.unit)}"
    if view.least != view.most:
        text += f" (least {view.least:,.0f}, most {view.most:,.0f})"
    if view.expected < view.full:
        share = view.expected / view.full
        text += f"; {share:.0%} of training every trial to the end"
    return f"{text}."


def amount(value: float, unit: str) -> str:
    """Return an amount of training that may be reckoned, so without a fraction."""
    return length({unit: round(value)})


def _time(view: PreviewView, at: float) -> str:
    if view.pace is None or view.seconds is None:
        return f"How long it takes is not known: {view.no_pace}."
    end = datetime.fromtimestamp(at) + timedelta(seconds=view.seconds)
    is_today = end.date() == datetime.fromtimestamp(at).date()
    when = f"{end:%H:%M}" if is_today else f"{end:%Y-%m-%d %H:%M}"
    return (
        f"On {count(view.slots, 'slot')}, {count(view.concurrent, 'trial')} at once: "
        f"about {lasting(view.seconds)}, done about {when} "
        f"({view.pace.seconds_per_unit:.3g} s a {unit_of(view.pace.unit)}, {view.pace.source})."
    )
