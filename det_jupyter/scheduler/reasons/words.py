"""Numbers, names, times and lists as a reason's sentence says them.

Names come from people and processes: each is put on one line and shortened, never obeyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from itertools import pairwise

from det_jupyter.wire import Estimate
from det_jupyter.words import moment

_NAME = 32  # characters of a name that a sentence shows
_PIECES = 6  # of a list of numbers
_SOON_S = 60.0


def shown(name: str, most: int = _NAME) -> str:
    """Return a name on one line and not too long, without anything that a terminal would obey.

    >>> shown("two\\nlines"), shown("a" * 40, 8)
    ('two lines', 'aaaaaaa…')
    """
    line = "".join(char if char.isprintable() else " " for char in name)
    line = " ".join(line.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


def file_of(path: str) -> str:
    """Return a file's name without its folders."""
    return shown(path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path)


def listed(items: Sequence[str], *, most: int = 3, last: str = "and") -> str:
    """Return items as one enumerates them, the front only of a long list.

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a', 'a and b', 'a, b, c and 3 more')
    """
    if len(items) > most + 1:  # “and 1 more” is no shorter than naming it
        items = [*items[:most], f"{len(items) - most} more"]
        last = "and"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def experiments(ids: Sequence[int], *, last: str = "and") -> str:
    """Return `experiment 3`, `experiments 3 and 4`.

    >>> experiments([3]), experiments([3, 4], last="or")
    ('experiment 3', 'experiments 3 or 4')
    """
    noun = "experiment" if len(ids) == 1 else "experiments"
    return f"{noun} {listed([str(i) for i in ids], last=last)}"


def numbers(values: Sequence[int]) -> str:
    """Return ascending numbers with runs and steps folded.

    >>> numbers([1, 2, 3, 4, 8]), numbers([1, 2]), numbers([*range(1, 9), *range(16, 81, 8)])
    ('1 to 4, 8', '1, 2', '1 to 8, then 16 to 80 in steps of 8')
    """
    runs = _runs(values)
    if len(runs) <= _PIECES:
        return ", ".join(_run(first, last) for first, last in runs)
    rest = [first for first, last in runs[1:] if first == last]
    steps = {b - a for a, b in pairwise(rest)}
    if len(rest) == len(runs) - 1 and len(steps) == 1:
        step = steps.pop()
        return f"{_run(*runs[0])}, then {rest[0]} to {rest[-1]} in steps of {step}"
    front = ", ".join(_run(first, last) for first, last in runs[: _PIECES - 2])
    return f"{front}, … {_run(*runs[-1])}"


def _runs(values: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    return [pair for run in runs for pair in _split_short(*run)]


def _split_short(first: int, last: int) -> list[tuple[int, int]]:
    return [(first, first), (last, last)] if last == first + 1 else [(first, last)]


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def about(estimate: Estimate, now: float, zone: tzinfo | None) -> str:
    """Return when something is expected: `about 14:20 (14:10 to 14:40)`."""
    if estimate.latest is not None and estimate.latest - now <= _SOON_S:
        return "within a minute"
    at = moment(estimate.at, now, zone)
    first = moment(estimate.earliest, now, zone)
    if estimate.latest is None:
        return f"about {at}" if first == at else f"about {at} ({first} or later)"
    last = moment(estimate.latest, now, zone)
    return f"about {at}" if first == last else f"about {at} ({first} to {last})"
