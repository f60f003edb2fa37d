"""Formats numbers, times and sizes, and makes foreign text safe for a terminal.

`labextension/src/model/format.ts` formats numbers the same way; both pass one table of cases.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from signal import Signals
from typing import Any

# For `logging.basicConfig` in scripts; `output_lines` recognises the level in such lines.
LOG_FORMAT = "%(levelname)s: [%(process)s] %(name)s: %(message)s"

# Last sentence of alarms; views of a trial that has ended leave it out.
TRAINING_CONTINUES = "Training continues."

# Escape sequences; control characters, bidi marks, lone surrogates, which UTF-8 cannot encode, and
# U+FFFE and U+FFFF, which XML cannot contain.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
    "\ufffe\uffff]"
)
_DIGITS = re.compile(r"([0-9]{1,18})")
_LENGTHS = {"batches": "batch", "records": "record", "epochs": "epoch"}
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB")


def by_name(name: str) -> list[str | int]:
    """Return the key by which names are sorted: numbers in them count as numbers.

    >>> sorted(["node-10", "node-2", "box"], key=by_name)
    ['box', 'node-2', 'node-10']
    """
    return [int(part) if i % 2 else part for i, part in enumerate(_DIGITS.split(name))]


def class_name(kind: type) -> str:
    """Return the public name of a class, also where a private module of a package defines it.

    >>> import pathlib
    >>> class_name(pathlib.PosixPath)  # pathlib._local.PosixPath in Python 3.13
    'pathlib.PosixPath'
    """
    public = kind.__module__.partition("._")[0]
    is_public = getattr(sys.modules.get(public), kind.__qualname__, None) is kind
    return f"{public if is_public else kind.__module__}.{kind.__qualname__}"


def error_message(error: BaseException) -> str:
    """Return `str(error)`, also if the `__str__` of a user's class raises.

    >>> class Odd(Exception):
    ...     def __str__(self): raise ValueError
    >>> error_message(Odd()), error_message(OSError("gone"))
    ('<its __str__ raised ValueError>', 'gone')
    """
    try:
        return str(error)
    except BaseException as failure:  # an interrupt too: the first error is what is reported
        return f"<its __str__ raised {type(failure).__name__}>"


def error_text(error: BaseException) -> str:
    """Return the type and the message of an error, also if its `__str__` raises.

    >>> error_text(OSError("gone")), error_text(KeyError())
    ('OSError: gone', 'KeyError')
    """
    kind, text = type(error).__name__, error_message(error)
    return f"{kind}: {text}" if text else kind


def error_line(error: BaseException) -> str:
    """Return the first line of `error_text(error)`."""
    return error_text(error).partition("\n")[0]


def printable(text: str) -> str:
    """Return `text` without escape sequences; other control characters become U+FFFD.

    >>> printable("\\x1b[31mred\\x1b[0m"), ascii(printable("a\\x07\\u061c\\r\\nb"))
    ('red', "'a\\\\ufffd\\\\ufffd\\\\nb'")
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def signal_name(number: int) -> str:
    """Return the name of a signal.

    >>> signal_name(9), signal_name(40)  # a real-time signal has no name
    ('SIGKILL', 'signal 40')
    """
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def number(value: float | None) -> str:
    """Return a metric with four significant digits; `NaN` if it is None or not finite.

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


def hparam_text(value: Any) -> str:
    """Return the value of a hyperparameter as text, a float with four significant digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Return a duration as H:MM:SS, with days if there are any.

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
    """Return `amount` with the noun, in the plural unless it is 1.

    >>> [count(amount, "slot") for amount in (0, 1, 1200)]
    ['0 slots', '1 slot', '1,200 slots']
    """
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def ranks_text(ranks: Iterable[int]) -> str:
    """Return ranks in words; if there are many, only the first ones.

    >>> ranks_text([1]), ranks_text([3, 0, 2]), ranks_text(range(5))
    ('rank 1', 'ranks 0, 2 and 3', 'ranks 0 to 4')
    >>> ranks_text(range(0, 40, 2))
    'ranks 0, 2, 4, 6, 8, 10, 12 and 13 more'
    """
    numbers = sorted(ranks)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 3 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    return f"ranks {listed(numbers, most=7)}"


def listed(items: Iterable[object], *, most: int | None = None, last: str = "and") -> str:
    """Return an enumeration of items; of more than `most`, the first ones.

    >>> listed("a"), listed("ab"), listed([8, 16], last="or"), listed("abcdef", most=3)
    ('a', 'a and b', '8 or 16', 'a, b, c and 3 more')
    """
    words = [str(item) for item in items]
    if most is not None and len(words) > most + 1:  # “and 1 more” is no shorter than naming it
        words = [*words[:most], f"{len(words) - most} more"]
        last = "and"
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def length(amounts: Mapping[str, float]) -> str:
    """Return an amount of training with its unit.

    >>> [length(a) for a in ({"epochs": 4.0}, {"batches": 2000}, {"epochs": 1}, {"wall_s": 2.5})]
    ['4 epochs', '2,000 batches', '1 epoch', '2.5 wall_s']
    """
    parts = []
    for unit, amount in amounts.items():
        digits = f"{amount:,.0f}" if amount == int(amount) else f"{amount:,.4g}"
        parts.append(f"{digits} {singular_unit(unit) if amount == 1 else unit}")
    return " ".join(parts)


def singular_unit(units: str) -> str:
    """Return the singular of a unit of training: `batch` for `batches`."""
    return _LENGTHS.get(units, units)


def rough_duration(seconds: float) -> str:
    """Return a duration rounded to two digits, in seconds, minutes, hours or days.

    >>> [rough_duration(s) for s in (0.4, 42, 150, 600, 9000, 400_000)]
    ['0 s', '42 s', '2.5 min', '10 min', '2.5 h', '4.6 days']
    """
    if seconds < 90:
        return f"{max(0, seconds):.0f} s"
    value, unit = seconds / 86_400, "days"
    if seconds < 172_800:
        value, unit = (seconds / 60, "min") if seconds < 5400 else (seconds / 3600, "h")
    return f"{value:,.0f} {unit}" if value >= 9.95 else f"{value:.2g} {unit}"


def clock(at: float) -> str:
    """Return the time of day, in the local time zone."""
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")


def short_time(at: float, now: float, zone: tzinfo | None = None) -> str:
    """Return the time of day to the minute, with the date if it is not that of `now`.

    >>> from datetime import UTC
    >>> short_time(50520, 54000, UTC), short_time(50520 - 86400, 54000, UTC)
    ('14:02', 'Dec 31, 14:02')
    """
    there, here = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(now, zone)
    if there.date() == here.date():
        return f"{there:%H:%M}"
    year = "" if abs(at - now) < 300 * 86400 else f" {there.year}"
    return f"{there:%b} {there.day}{year}, {there:%H:%M}"


def date(at: float) -> str:
    """Return the date and the time of day, in the local time zone."""
    return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")


def experiment_title(experiment_id: int, name: str) -> str:
    """Return an experiment's number and name.

    >>> experiment_title(3, "resnet"), experiment_title(4, "")
    ('experiment 3 “resnet”', 'experiment 4')
    """
    known = f"experiment {experiment_id}"
    return f"{known} “{shortened(name)}”" if name else known


def one_line(text: str) -> str:
    """Return `text` as printable text on one line; white space becomes single spaces."""
    return printable(" ".join(text.split()))


def shortened(text: str, limit: int = 40) -> str:
    """Return `text` on one line, cut to `limit` characters.

    >>> shortened("a very long name", 7), shortened("two\\nlines")
    ('a very…', 'two lines')
    """
    text = one_line(text)
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def brief(seconds: float) -> str:
    """Return a short time with three digits in ms, or a longer one roughly.

    >>> [brief(value) for value in (0.000_123, 0.0123, 1, 1.234, 90)]
    ['0.123 ms', '12.3 ms', '1.0 s', '1.2 s', '1.5 min']
    """
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    return f"{seconds:.1f} s" if seconds < 90 else rough_duration(seconds)


def size(num_bytes: float) -> str:
    """Return a number of bytes with a decimal unit (1 kB is 1000 bytes).

    >>> [size(n) for n in (0, 999, 1500, 12_345_678)]
    ['0 B', '999 B', '1.5 kB', '12 MB']
    """
    unit = 0
    while num_bytes >= 999.5 and unit < len(_SIZES) - 1:
        num_bytes /= 1000
        unit += 1
    decimals = 1 if unit and num_bytes < 9.95 else 0
    return f"{num_bytes:.{decimals}f} {_SIZES[unit]}"


def capitalized(text: str) -> str:
    """Return a text with a capital, unless it begins with an address or a key.

    >>> capitalized("trial 3 failed"), capitalized("s3://models: no such bucket")
    ('Trial 3 failed', 's3://models: no such bucket')
    """
    return text[:1].upper() + text[1:] if text.partition(" ")[0].isalpha() else text
