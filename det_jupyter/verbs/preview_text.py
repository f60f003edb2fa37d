"""The preview of a search in words and as a plain table."""

from __future__ import annotations

from datetime import datetime, timedelta

from det_jupyter.verbs.tables import length_text, plain_table
from det_jupyter.wire import PreviewView

_TRAINING_UNITS = {"batches": "batch", "records": "record", "epochs": "epoch"}


def render_text(view: PreviewView, at: float) -> str:
    """Return the preview as lines of text.

    Args:
        view: What the master reckoned.
        at: The present time, to which the duration is added.
    """
    return "\n".join([title(view), "", _table(view), "", *sentences(view, at)])


def title(view: PreviewView) -> str:
    """Return the search in one line."""
    trials = "1 trial" if view.num_trials == 1 else f"{view.num_trials:,} trials"
    return f"{view.searcher}: {trials}, judged by {view.metric}"


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
        found.append((length_text(planned.length), *(f"{count:,}" for count in counts)))
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
    return length_text({unit: round(value)})


def _time(view: PreviewView, at: float) -> str:
    if view.pace is None or view.seconds is None:
        return f"How long it takes is not known: {view.no_pace}."
    end = datetime.fromtimestamp(at) + timedelta(seconds=view.seconds)
    is_today = end.date() == datetime.fromtimestamp(at).date()
    when = f"{end:%H:%M}" if is_today else f"{end:%Y-%m-%d %H:%M}"
    unit = _TRAINING_UNITS.get(view.pace.unit, view.pace.unit)
    return (
        f"On {_counted(view.slots, 'slot')}, {_counted(view.concurrent, 'trial')} at once: "
        f"about {duration(view.seconds)}, done about {when} "
        f"({view.pace.seconds_per_unit:.3g} s a {unit}, {view.pace.source})."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time span in words.

    >>> [duration(s) for s in (0.4, 42, 150, 9000, 400_000)]
    ['1 s', '42 s', '2.5 min', '2.5 hours', '4.6 days']
    """
    for limit, size, word in ((90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "hours")):
        if seconds < limit:
            value = seconds / size
            return f"{max(1, round(value))} s" if word == "s" else f"{value:.1f} {word}"
    return f"{seconds / 86_400:.1f} days"
