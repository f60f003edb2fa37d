"""Words of reasons and remedies: nouns and verbs that agree in number, lists, times, names.

Names come from users and processes: each is put on one line and shortened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from itertools import groupby, pairwise

from det_jupyter.contract.messages import DeviceProcess, Estimate
from det_jupyter.contract.values.text import listed, rough_duration, short_time, shortened, size

_PIECES = 6  # pieces of a list of numbers
_SOON_S = 60.0
_PLURALS = {"is": "are", "has": "have", "process": "processes"}


def file_of(path: str) -> str:
    """Return a file's name without its folders."""
    return shortened(path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path)


def noun(number: int, word: str) -> str:
    """Return a noun, in the plural unless the number is 1.

    >>> noun(1, "agent"), noun(2, "agent"), noun(2, "process")
    ('agent', 'agents', 'processes')
    """
    return word if number == 1 else _PLURALS.get(word, f"{word}s")


def verb(number: int, word: str) -> str:
    """Return a verb in the third person, in the plural from 2 on; 0 is singular.

    >>> verb(1, "holds"), verb(2, "holds"), verb(2, "is"), verb(0, "is")
    ('holds', 'hold', 'are', 'is')
    """
    return word if number < 2 else _PLURALS.get(word, word.removesuffix("s"))


def count_clause(number: int, of: str, what: str) -> str:
    """Return the clause "NUMBER OF is (are) WHAT", with "none" for 0.

    >>> count_clause(2, "of 8", "free"), count_clause(0, "of these", "idle")
    ('2 of 8 are free', 'none of these is idle')
    """
    return f"{number or 'none'} {of} {verb(number, 'is')} {what}"


def named(word: str, names: Sequence[object], *, most: int = 3) -> str:
    """Return a noun, singular or plural, with the names or numbers of the things.

    >>> named("experiment", [3]), named("agent", ["left", "right"])
    ('experiment 3', 'agents left and right')
    """
    return f"{noun(len(names), word)} {listed(names, most=most)}"


def numbers(values: Sequence[int]) -> str:
    """Return ascending numbers with runs and steps folded.

    >>> numbers([1, 2, 3, 4, 8]), numbers([1, 2]), numbers([*range(1, 9), *range(16, 81, 8)])
    ('1 to 4, 8', '1, 2', '1 to 8, then 16 to 80 in steps of 8')
    """
    runs = [*_runs(values)]
    if len(runs) <= _PIECES:
        return ", ".join(_run(first, last) for first, last in runs)
    rest = [first for first, last in runs[1:] if first == last]
    steps = {b - a for a, b in pairwise(rest)}
    if len(rest) == len(runs) - 1 and len(steps) == 1:
        step = steps.pop()
        return f"{_run(*runs[0])}, then {rest[0]} to {rest[-1]} in steps of {step}"
    front = ", ".join(_run(first, last) for first, last in runs[: _PIECES - 2])
    return f"{front}, … {_run(*runs[-1])}"


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run; two neighbours are two numbers."""
    for _, run in groupby(enumerate(values), key=lambda pair: pair[1] - pair[0]):
        found = [value for _, value in run]
        if len(found) == 2:
            yield from ((value, value) for value in found)
        else:
            yield found[0], found[-1]


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def about(estimate: Estimate, now: float, zone: tzinfo | None) -> str:
    """Return when something is expected: `about 14:20 (14:10 to 14:40)`."""
    if estimate.latest is not None and estimate.latest - now <= _SOON_S:
        return "within a minute"
    at = short_time(estimate.at, now, zone)
    first = short_time(estimate.earliest, now, zone)
    last = "" if estimate.latest is None else short_time(estimate.latest, now, zone)
    if first == (last or at):
        return f"about {at}"
    return f"about {at} ({first} to {last})" if last else f"about {at} ({first} or later)"


def process_text(process: DeviceProcess, now: float) -> str:
    """Describe a process that uses a device: `python train.py (pid 71, 12 GB, idle for 2 h)`."""
    if process.claim:
        return f"the trial that has had a slot{_for(process.since, now)}"
    name = shortened(process.command) or "a process"
    if process.notebook:
        name = f"the kernel of {file_of(process.notebook)}"
    facts = [f"pid {process.pid}"]
    if process.user:
        facts.append(shortened(process.user))
    if process.memory_bytes:
        facts.append(size(process.memory_bytes))
    if process.idle_since is not None:
        facts.append(f"idle for {rough_duration(now - process.idle_since)}")
    return f"{name} ({', '.join(facts)})"


def claims_text(
    occupied: Mapping[int, Sequence[DeviceProcess]],
    now: float,
    *,
    own_user: str = "",
    where: str = "",
) -> list[str]:
    """Describe the slots that other masters have claimed: whose trial has had them, for how long.

    Args:
        occupied: By slot, the processes and claims on it.
        now: UTC seconds.
        own_user: The user of this master.
        where: Behind the numbers of the slots: ` of agent box`.
    """
    found: dict[tuple[str, str], dict[int, float | None]] = {}
    for slot, users in sorted(occupied.items()):
        for one in users:
            if one.claim:
                found.setdefault((one.claim, one.user), {})[slot] = one.since
    texts = []
    for (claim, user), slots in found.items():
        which = f"{noun(len(slots), 'slot')} {numbers(list(slots))}{where}"
        who = shortened(user) or "another user"
        who = "another master of yours" if user and user == own_user else who
        num = len(set(slots.values()))
        first = min((since for since in slots.values() if since is not None), default=None)
        if claim == "held":
            trials = f"{who}’s {noun(num, 'trial')} {verb(num, 'has')}"
            texts.append(f"{trials} had {which}{_for(first, now, 'up to ' * (num > 1))}")
        else:
            waits = f", who has waited{_for(first, now)}" if first is not None else ""
            texts.append(f"{which} {verb(len(slots), 'is')} kept for {who}{waits}")
    return texts


def _for(since: float | None, now: float, most: str = "") -> str:
    return "" if since is None else f" for {most}{rough_duration(max(0.0, now - since))}"
