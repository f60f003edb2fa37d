"""Finds problems of stored experiments, as sentences. Pure.

    inconsistencies   of one experiment, disturbed in any way: doubled or missing rows, missing
                      or torn lines of a rank, checkpoints without files
    differences       from an undisturbed experiment: every value, and checkpoints bit by bit
    leftovers         files and processes below a home when all experiments are over

An experiment that a user has killed, canceled or changed is judged only by the first and the last:
it has trained up to some batch, and each batch before it once.

Values of an elastic trial, which are rounded otherwise with each number of ranks, may differ by
_ROUNDING; nothing is compared of the ranks' own states.

Of a trial that has recovered, what the killed ranks had not written may be missing: times of their
last batches, their part of the metrics of a batch that was saved, and the checkpoint before that
batch. Batches of a window that are trained again may be timed twice (docs/recovery.md).

Lines of ranks are compared by their batch. A killed run has printed lines of batches that the next
run trains again, and both must have printed the same. The batches of each run are consecutive, and
a run begins at the latest after the last batch of earlier runs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

from det_jupyter.contract.messages import State
from det_jupyter.pytorch.checkpoints.compare import compare
from tests.soak.collected import Interval, Saved, StoredExperiment, StoredHome, StoredTrial

Row = tuple[int, Any]

_LINE = re.compile(r"batch (\d+): loss \S+")
_TORN = re.compile(r"batch \d")
_SHOWN = 6  # most numbers in a sentence
_IGNORED = ("pause_s",)  # hyperparameters without an effect on the result
# A checkpoint that was saved before a validation, and again when the trial was preempted after it.
_SAVED_AGAIN = "validation_due"
_AFTER_ALL = "failed after its last batch: "  # a rank was killed when all was saved
_ROUNDING = 1e-9
_OF_ALL_RANKS = ("models.", "optimizers.")  # names of values that do not depend on their number


def differences(found: StoredExperiment, expected: StoredExperiment) -> list[str]:
    """Return all differences from the undisturbed experiment."""
    told = []
    message = "" if found.message.startswith(_AFTER_ALL) else found.message
    if (found.state, message) != (expected.state, expected.message):
        told.append(f"it is {found.state} {found.message!r}, not {expected.state}")
    told += _missing("trials", found.trials, expected.trials)
    for index in sorted(found.trials.keys() & expected.trials.keys()):
        one, other = found.trials[index], expected.trials[index]
        told += [f"trial {index}: {line}" for line in _differences(one, other)]
    return told + inconsistencies(found)


def _differences(found: StoredTrial, expected: StoredTrial) -> Iterator[str]:
    rounding = _ROUNDING if expected.is_elastic else 0.0
    for name, value in expected.shown.items():
        if not _is_same(_comparable(found.shown[name]), _comparable(value), rounding):
            yield f"its {name} is {found.shown[name]!r}, not {value!r}"
    validations = [_once(trial.validations, trial.cuts) for trial in (found, expected)]
    rows = {
        "metrics of batches": (found.batches, expected.batches),
        "averages": (found.averages, expected.averages),
        "validations": validations,
        "timed batches": (found.timed, _if_there(found, expected.timed)),
    }
    partial = _partial_rows(found, expected)
    for what, (one, other) in rows.items():
        yield from _row_differences(what, one, other, rounding, partial.get(what, set()))
    ranks = {rank for _, rank in expected.lines}
    for rank in sorted(ranks | {rank for _, rank in found.lines}):
        lines = _lines_of(rank, found)
        yield from _row_differences(f"lines of rank {rank}", lines, _lines_of(rank, expected))
    yield from _missing("timings of ranks", found.intervals, expected.intervals)
    for rank in sorted(found.intervals.keys() & expected.intervals.keys()):
        there, whole = (
            set(_steps(_valid(trial.intervals[rank], trial.cuts))) for trial in (found, expected)
        )
        if found.num_recoveries:
            whole &= there
        yield from _missing(f"batches in the timings of rank {rank}", there, whole)
    yield from _missing_checkpoints(found, expected)
    yield from _checkpoint_differences(found.kept(), expected.kept(), rounding)


def _if_there(found: StoredTrial, timed: Sequence[Row]) -> Sequence[Row]:
    """Return the batches that have to be timed: if the trial has recovered, those that are."""
    there = {step for step, _ in found.timed}
    return [row for row in timed if row[0] in there or not found.num_recoveries]


def _partial_rows(found: StoredTrial, expected: StoredTrial) -> dict[str, set[int]]:
    """Return the rows that may lack the part of a rank that was killed.

    It is the last batch before a checkpoint of survivors, and the report with its metrics.
    """
    saved, planned = ({one.steps_completed for one in each.saved} for each in (found, expected))
    batches = saved - planned if found.num_recoveries else set()
    reports = sorted({step for step, _ in expected.averages})
    return {
        "metrics of batches": batches,
        "averages": {next(step for step in reports if step >= batch) for batch in batches},
    }


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: one for name, one in value.items() if name not in _IGNORED}
    if isinstance(value, tuple):  # fewer steps give a slightly different fraction
        return tuple(round(one, 9) for one in value)
    return value


def _is_same(one: Any, other: Any, rounding: float) -> bool:
    """Return whether two values of JSON are equal; numbers may differ by `rounding`."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(
            _is_same(one[name], other[name], rounding) for name in one
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _is_same(each, twin, rounding) for each, twin in zip(one, other, strict=True)
        )
    if rounding and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=rounding, abs_tol=rounding)
    return bool(one == other)


def _once(validations: Sequence[Row], cuts: Sequence[tuple[int, int]]) -> list[Row]:
    """Return the rows without equal ones that a run has repeated at its first step.

    A checkpoint before a validation records that the validation is due. If a run is killed between
    the validation and the next checkpoint, it has stored the row, and so does the next run; curves
    show one.
    """
    begins = {steps for _, steps in cuts}
    kept: list[Row] = []
    for row in validations:
        if row[0] not in begins or row not in kept:
            kept.append(row)
    return kept


def _row_differences(
    what: str,
    found: Sequence[Row],
    expected: Sequence[Row],
    rounding: float = 0.0,
    partial: Set[int] = frozenset(),
) -> Iterator[str]:
    """Yield the rows that are missing, unexpected or different; rows of a step by order."""
    one, other = _by_step(found), _by_step(expected)
    yield from _missing(what, one, other)
    both = (one.keys() & other.keys()) - partial
    if changed := [step for step in both if not _is_same(one[step], other[step], rounding)]:
        yield f"{what}: changed at {_some(changed)}"


def _by_step(rows: Iterable[Row]) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for step, value in rows:
        found.setdefault(step, []).append(value)
    return found


def _missing(what: str, found: Iterable[int], expected: Iterable[int]) -> list[str]:
    one, other = set(found), set(expected)
    kinds = {"lost": other - one, "not in the undisturbed run": one - other}
    return [f"{what}: {kind}: {_some(steps)}" for kind, steps in kinds.items() if steps]


def _some(numbers: Iterable[int]) -> str:
    found = sorted(numbers)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(map(str, found[:_SHOWN])) + more


def _checkpoint_differences(
    found: Sequence[Saved], expected: Sequence[Saved], rounding: float
) -> Iterator[str]:
    """Yield the differences of each checkpoint at whose batch the undisturbed run has one too."""
    for other in expected:
        there = [one for one in found if one.is_on_disk]
        same = [one for one in there if one.steps_completed == other.steps_completed]
        ignored = {_SAVED_AGAIN} if len(same) > 1 else set()
        for one in same:
            values = [
                {
                    name: value
                    for name, value in saved.values.items()
                    if name not in ignored and (not rounding or name.startswith(_OF_ALL_RANKS))
                }
                for saved in (one, other)
            ]
            for difference in compare(*values):
                if rounding and (difference.largest or 1.0) <= rounding:
                    continue
                yield f"checkpoint of batch {one.steps_completed}, and undisturbed: {difference}"


def _missing_checkpoints(found: StoredTrial, expected: StoredTrial) -> Iterator[str]:
    steps, usual = ({one.steps_completed for one in trial.kept()} for trial in (found, expected))
    if found.num_recoveries:  # saved by survivors while that of an earlier batch was written
        usual -= {max((one for one in usual if one < step), default=0) for step in steps - usual}
    if lost := usual - steps:
        yield f"checkpoints: lost: {_some(lost)}"


def inconsistencies(found: StoredExperiment) -> list[str]:
    """Return the problems of an experiment that may have been disturbed in any way."""
    return [
        f"trial {index}: {line}"
        for index, trial in sorted(found.trials.items())
        for line in _inconsistencies(trial)
    ]


def _inconsistencies(trial: StoredTrial) -> Iterator[str]:
    yield from _gaps("metrics of batches", [step for step, _ in trial.batches])
    yield from _doubled("averages", [(step, row[0]) for step, row in trial.averages])
    validations = _once(trial.validations, trial.cuts)
    yield from _doubled("validations", [step for step, _ in validations])
    if not trial.num_recoveries:
        yield from _gaps("timed batches", [step for step, _ in trial.timed])
        for rank, intervals in sorted(trial.intervals.items()):
            steps = _steps(_valid(intervals, trial.cuts))
            yield from _gaps(f"batches in the timings of rank {rank}", steps)
    for rank in sorted({rank for _, rank in trial.lines}):
        yield from _line_problems(rank, trial)
    for one in trial.saved:
        what = f"checkpoint {one.uuid} of batch {one.steps_completed}"
        if one.state == "COMPLETED" and not one.is_on_disk:
            yield f"{what}: its files are gone"
        elif one.state == "COMPLETED" and not one.values:
            yield f"{what}: it is empty"
        elif one.state == "DELETED" and one.is_on_disk:
            yield f"{what}: it is deleted, and its files are there"
        yield from (f"{what}: {line}" for line in one.wrong)


def _gaps(what: str, steps: Sequence[int]) -> Iterator[str]:
    """Yield the problems of numbers that should be 1, 2, 3 ..."""
    yield from _doubled(what, steps)
    if lost := set(range(1, max(steps, default=0) + 1)) - set(steps):
        yield f"{what}: a gap at {_some(lost)}"
    if list(steps) != sorted(steps):
        yield f"{what}: not in their order"


def _doubled(what: str, keys: Sequence[Any]) -> Iterator[str]:
    if doubled := [key for key, count in Counter(keys).items() if count > 1]:
        yield f"{what}: doubled: {', '.join(map(str, doubled[:_SHOWN]))}"


def _valid(intervals: Sequence[Interval], cuts: Sequence[tuple[int, int]]) -> list[Interval]:
    """Return the intervals that are valid: without those that were trained again."""

    def is_valid(interval: Interval) -> bool:
        again = [steps for last_run, steps in cuts if interval.run <= last_run]
        return not again or interval.first <= min(again)

    return sorted(filter(is_valid, intervals), key=lambda each: (each.run, each.first))


def _steps(intervals: Iterable[Interval]) -> list[int]:
    return [each.first + index for each in intervals for index in range(each.num)]


def _lines_of(rank: int, trial: StoredTrial) -> list[Row]:
    """Return the lines of a rank by batch; equal lines of several runs count once."""
    found = {
        (int(match[1]), line)
        for (_, own), lines in trial.lines.items()
        if own == rank
        for line in lines
        if (match := _LINE.fullmatch(line))
    }
    return sorted(found)


def _line_problems(rank: int, trial: StoredTrial) -> Iterator[str]:
    printed = 0  # the last batch that any run has printed so far
    own = sorted((run, lines) for (run, of), lines in trial.lines.items() if of == rank)
    for run, lines in own:
        steps = [int(match[1]) for line in lines if (match := _LINE.fullmatch(line))]
        torn = [line for line in lines if _TORN.match(line) and not _LINE.fullmatch(line)]
        where = f"lines of rank {rank} in run {run}"
        yield from (f"{where}: torn: {line!r}" for line in torn)
        if not steps:
            continue
        if steps != list(range(steps[0], steps[0] + len(steps))):
            yield f"{where}: not consecutive: {_jumps(steps)}"
        if steps[0] > printed + 1:
            yield f"{where}: it begins at batch {steps[0]}, and {printed} was the last one before"
        printed = max(printed, steps[-1])
    if printed < (trained := max((step for step, _ in trial.batches), default=0)):
        yield f"lines of rank {rank}: the last is of batch {printed}, and {trained} were trained"


def _jumps(steps: Sequence[int]) -> str:
    return ", ".join(f"{one} then {next_}" for one, next_ in pairwise(steps) if next_ != one + 1)


_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# By kind of data that is stored while no experiment runs: "" if the judge finds a damage of it,
# else why not.
JUDGED = ""
KEPT: dict[str, str] = {
    r"data/det\.sqlite3(-wal|-shm)?": JUDGED,
    r"data/pools\.yaml": JUDGED,
    r"data/blobs/[0-9a-f]{2}/[0-9a-f]{64}": JUDGED,
    rf"data/checkpoints/{_UUID}/": JUDGED,
    r"(soak|notebook)/.*": "the soak's own",
    r"data/(agent|master)\.lock": "says which process has it",
    r"data/reserve": "its size is room, and its content nothing",
    r"data/code/[0-9a-f]+/": "unpacked from blobs, and again if it is missing",
    r"data/agents/[a-z.-]+": "without them no agent elsewhere connects, so no trial ends there",
    r"data/logs/(agent\.log|master\.(log|out)|zygote-[0-9a-f]+\.out)(\.\d+)?": "for people",
    r"data/logs/reader\.log(\.\d+)?": "for people, too",
    r"runtime/(master\.json|(agent|master)\.sockets)": "of living processes",
}
_KEPT = re.compile("|".join(KEPT))
CHECKPOINTS = "data/checkpoints/"
_OVER = [state.value for state in State if state.is_terminal]
# # roles of a run: none of them may be alive when all experiments are over
_OF_RUNS = ("rank", "loader", "script")


def leftovers(home: StoredHome) -> list[str]:
    """Return the remains below a home whose experiments are all over."""
    told = [f"the database is damaged: {line}" for line in home.damages]
    told += [f"set aside: {line}" for line in home.set_aside]
    told += [
        f"experiment {number} is {state}"
        for number, state in home.states.items()
        if state not in _OVER
    ]
    told += [f"left behind: {path}" for path in home.files if not _KEPT.fullmatch(path)]
    folders = {
        path.removeprefix(CHECKPOINTS).rstrip("/")
        for path in home.files
        if path.startswith(CHECKPOINTS) and _KEPT.fullmatch(path)
    }
    unknown, gone = sorted(folders - home.checkpoints), sorted(home.checkpoints - folders)
    told += [f"a checkpoint that is in no row: {uuid}" for uuid in unknown]
    told += [f"a checkpoint without files: {uuid}" for uuid in gone]
    told += [f"a process of no program: {line}" for role, line in home.processes if not role]
    told += [
        f"a {role} that outlives: {line}" for role, line in home.processes if role in _OF_RUNS
    ]
    return told
