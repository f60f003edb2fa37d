"""Numbers as people read them; `labextension/src/format.ts` writes the same, by one table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from det_jupyter.words import printable

_LENGTHS = {"batches": "batch", "records": "record", "epochs": "epoch"}


def number(value: float | None) -> str:
    """Return a metric in four digits, `NaN` for what was not finite.

    >>> [number(v) for v in (0.98123, 12.3456, 1234.6, 0, 0.0000123, 1.5e9, None)]
    ['0.9812', '12.35', '1235', '0', '1.23e-5', '1.50e+9', 'NaN']
    """
    if value is None or not math.isfinite(value):
        return "NaN"
    size = abs(value)
    if size == 0:
        return "0"
    if not 1e-3 <= size < 1e6:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa}e{int(exponent):+d}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}"


def duration(seconds: float) -> str:
    """Return a span of time as a clock shows it.

    >>> [duration(s) for s in (0.4, 75, 3723, 200000)]
    ['0:00', '1:15', '1:02:03', '2 d 7:33:20']
    """
    minutes, second = divmod(int(max(0, seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02d}"
    clock = f"{hour}:{minute:02d}:{second:02d}"
    return f"{days} d {clock}" if days else clock


def percent(fraction: float) -> str:
    """Return a fraction in whole percent, rounded down, so that 100 % means done.

    >>> [percent(f) for f in (0, 0.29, 0.999, 1)]
    ['0 %', '29 %', '99 %', '100 %']
    """
    return f"{math.floor(fraction * 100 + 1e-6)} %"


def count(amount: int, noun: str) -> str:
    """Return `1 rank`, `2 ranks`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"


def length(amounts: Mapping[str, float]) -> str:
    """Return an amount of training with its unit.

    >>> [length(a) for a in ({"epochs": 4.0}, {"epochs": 1}, {"wall_s": 2.5})]
    ['4 epochs', '1 epoch', '2.5 wall_s']
    """
    return " ".join(
        f"{amount:g} {_LENGTHS.get(unit, unit) if amount == 1 else unit}"
        for unit, amount in amounts.items()
    )


def clock(at: float) -> str:
    """Return the time of day, local to the reader's kernel."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def moment(at: float, now: float) -> str:
    """Return the time of day to the minute, with the date if it is not that of `now`."""
    there, here = datetime.fromtimestamp(at), datetime.fromtimestamp(now)
    return there.strftime("%H:%M" if there.date() == here.date() else "%b %d %H:%M")


def named(experiment_id: int, name: str) -> str:
    """Return an experiment's number and name.

    >>> named(3, "resnet"), named(4, "")
    ('experiment 3 “resnet”', 'experiment 4')
    """
    return (
        f"experiment {experiment_id} “{shortened(name)}”"
        if name
        else (f"experiment {experiment_id}")
    )


def one_line(text: str) -> str:
    """Return `text` printable and on one line."""
    return printable(" ".join(text.split()))


def shortened(text: str, limit: int = 40) -> str:
    """Return `text` on one line, no longer than `limit`.

    >>> shortened("a very long name", 7), shortened("two\\nlines")
    ('a very…', 'two lines')
    """
    text = one_line(text)
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
