"""Checks of several values together: those that contradict or need one another.

The checks look at the raw document, so that their problems are reported together with the rest; a
value that is wrong by itself is passed over: its own field reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from det_jupyter.config.hyperparameters import leaves, ranges_in_lists
from det_jupyter.config.older import find_wrong_slots
from det_jupyter.config.paths import dotted, join, look_up, section, shown
from det_jupyter.config.retired import RETIRED
from det_jupyter.config.rungs import divisor_of, full_amount, most_rungs, whole
from det_jupyter.entrypoints import Command, Program, parse_entrypoint
from det_jupyter.errors import Problem
from det_jupyter.lengths import UNITS, parse_length

MAX_GRID = 100_000
_HALVING = ("async_halving", "adaptive_asha")
_COUNTED = ("int", "double", "log")  # ranges that a grid needs the number of values of
_FULL_LENGTH = ("single", "random", "grid")


def find_contradictions(document: Mapping[str, Any], *, is_part: bool = False) -> list[Problem]:
    """Return the problems.

    Args:
        document: The document; nulls are away.
        is_part: It is not whole: what is missing may still come.
    """
    checks = [_slots, _profiling, _storage, _log_policies, _sources, _rungs, find_wrong_slots]
    if not is_part:
        checks += [_batch_size, _halving_length, _grid]
    return [problem for check in checks for problem in check(document)]


def _slots(document: Mapping[str, Any]) -> Iterator[Problem]:
    most = whole(look_up(document, "resources.max_slots"))
    slots = whole(look_up(document, "resources.slots_per_trial"))
    if most is not None and most < (slots or 1):
        yield (
            Problem(
                "resources.max_slots",
                f"got {most}, expected at least resources.slots_per_trial ({slots or 1})",
            )
        )


def _profiling(document: Mapping[str, Any]) -> Iterator[Problem]:
    begin = whole(look_up(document, "profiling.begin_on_batch"))
    end = whole(look_up(document, "profiling.end_after_batch"))
    if begin is not None and end is not None and begin > end:
        yield (
            Problem(
                "profiling.begin_on_batch",
                f"got {begin}, expected at most profiling.end_after_batch ({end})",
            )
        )


def _storage(document: Mapping[str, Any]) -> Iterator[Problem]:
    storage = section(document, "checkpoint_storage")
    host, inner = storage.get("host_path"), storage.get("storage_path")
    if isinstance(inner, str) and inner.startswith("/") and isinstance(host, str):
        folder = host.rstrip("/")
        if inner != folder and not inner.startswith(f"{folder}/"):
            yield (
                Problem(
                    "checkpoint_storage.storage_path",
                    f"got {inner!r}, expected a relative path, or "
                    f"one within checkpoint_storage.host_path ({host})",
                )
            )


def _log_policies(document: Mapping[str, Any]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for path, policy in log_policies(document):
        name = policy.get("name")
        if name is None and policy.get("pattern") is None:
            yield Problem(path, "expected a name (to disable a policy), or a pattern")
        elif name is not None and "pattern" not in policy and "action" in policy:
            yield Problem.missing(f"{path}.pattern", "; an action needs one")
        if isinstance(name, str) and seen.setdefault(name, path) != path:
            yield Problem(f"{path}.name", f"got {name!r}, which {seen[name]} has too")


def log_policies(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the log policies of a document with their paths."""
    policies = document.get("log_policies")
    for index, policy in enumerate(policies if isinstance(policies, list) else []):
        if isinstance(policy, Mapping):
            yield join("log_policies", index), policy


def _sources(document: Mapping[str, Any]) -> Iterator[Problem]:
    searcher = section(document, "searcher")
    if {"source_trial_id", "source_checkpoint_uuid"} <= searcher.keys():
        yield (
            Problem(
                "searcher.source_checkpoint_uuid",
                "searcher.source_trial_id is given too; expected one of them",
            )
        )


def _halving_length(document: Mapping[str, Any]) -> Iterator[Problem]:
    """ASHA measures training by `max_length`, or by `time_metric` up to `max_time`."""
    searcher = section(document, "searcher")
    if searcher.get("name") not in _HALVING:
        return
    metric, time = searcher.get("time_metric"), searcher.get("max_time")
    if metric is None and time is None:
        if "max_length" not in searcher:
            yield (
                Problem.missing(
                    "searcher.max_length",
                    "; say how long to train, such as {epochs: 6} "
                    f"(searcher.name: {searcher['name']})",
                )
            )
    elif metric is None:
        yield Problem.missing(
            "searcher.time_metric", f"; searcher.max_time ({shown(time)}) is counted in it"
        )
    elif time is None:
        yield Problem.missing(
            "searcher.max_time", f"; say where searcher.time_metric ({shown(metric)}) ends"
        )
    if metric is not None and metric not in UNITS and "max_length" not in searcher:
        yield (
            Problem.missing(
                "searcher.max_length",
                f"; training has to end somewhere, whatever {shown(metric)} comes to",
            )
        )
    yield from _find_short_bound(searcher)


def is_endless(document: Mapping[str, Any]) -> bool:
    """Return whether a command is given no length, which it need not be.

    Determined's files of 0.38 give none: there no search says how long to train. A command trains
    as long as it likes here too; only one that asks for its length needs it.
    """
    searcher = section(document, "searcher")
    if searcher.get("max_length") is not None:
        return False
    if searcher.get("name") in _HALVING:
        is_open = searcher.get("max_time") and searcher.get("time_metric") not in (None, *UNITS)
    else:
        is_open = searcher.get("name") in _FULL_LENGTH
    return bool(is_open) and _is_command(document.get("entrypoint"))


def _is_command(entrypoint: Any) -> bool:
    words = entrypoint if isinstance(entrypoint, list) else [entrypoint]
    if not words or not all(isinstance(word, str) for word in words):
        return False
    try:
        return isinstance(parse_entrypoint(entrypoint), Program | Command)
    except ValueError:
        return False


def _find_short_bound(searcher: Mapping[str, Any]) -> Iterator[Problem]:
    """A bound below the top rung would end all trials before it."""
    metric, time = searcher.get("time_metric"), whole(searcher.get("max_time"))
    try:
        bound = parse_length(searcher.get("max_length"))
    except ValueError:
        return
    if bound.unit == metric and time is not None and bound.amount < time:
        yield Problem(
            "searcher.max_length", f"got {bound}, expected at least searcher.max_time ({time})"
        )


def _rungs(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Rungs have to differ in length."""
    searcher = section(document, "searcher")
    if str(searcher.get("name")) in RETIRED:
        return
    amount, divisor = full_amount(searcher), divisor_of(searcher)
    if amount is None or divisor is None:
        return
    given = {"searcher.num_rungs": searcher.get("num_rungs")}
    brackets = searcher.get("bracket_rungs")
    for index, rungs in enumerate(brackets if isinstance(brackets, list) else []):
        given[join("searcher.bracket_rungs", index)] = rungs
    most = most_rungs(amount, divisor)
    for path, value in given.items():
        rungs = whole(value)
        if rungs is not None and rungs > most:
            yield (
                Problem(
                    path,
                    f"got {rungs}, expected at most {most}: with a length of {amount} and "
                    f"divisor {divisor:g}, more rungs would not differ",
                )
            )


def _grid(document: Mapping[str, Any]) -> Iterator[Problem]:
    if look_up(document, "searcher.name") != "grid":
        return
    points, is_counted = 1, True
    for path, spec in leaves(section(document, "hyperparameters")):
        place = dotted(("hyperparameters", *path))
        for inner, constant in ranges_in_lists(spec, place):
            yield from _uncounted(constant, inner)
        kind = spec.get("type") if isinstance(spec, Mapping) else None
        if kind in _COUNTED:
            for problem in _uncounted(spec, place):
                yield problem
                is_counted = False
            points *= _count_values(spec)
        elif kind == "categorical" and isinstance(spec.get("vals"), list):
            points *= max(1, len(spec["vals"]))
    if is_counted and points > MAX_GRID:
        yield (
            Problem(
                "hyperparameters",
                f"the grid has {points:,} points, expected at most {MAX_GRID:,}; "
                "lower the counts, or use searcher random",
            )
        )


def _uncounted(spec: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if spec["type"] in _COUNTED and spec.get("count") is None:
        yield Problem.missing(f"{path}.count", "; searcher grid needs the number of its values")


def _count_values(spec: Mapping[str, Any]) -> int:
    count = max(1, whole(spec.get("count")) or 1)
    low, high = whole(spec.get("minval")), whole(spec.get("maxval"))
    if spec["type"] == "int" and low is not None and high is not None and low < high:
        return min(count, high - low + 1)
    return count


def _batch_size(document: Mapping[str, Any]) -> Iterator[Problem]:
    path = "hyperparameters.global_batch_size"
    size = look_up(document, "hyperparameters.global_batch_size")
    slots = whole(look_up(document, "resources.slots_per_trial")) or 1
    if isinstance(size, Mapping):
        return  # drawn later; the trial's context checks the drawn value
    if size is None:
        return  # a function may need none; of a class it is asked when the class is known
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield Problem(path, f"got {shown(size)}, expected a whole number of at least 1")
    elif size < slots:
        yield Problem(path, f"got {size}, expected at least resources.slots_per_trial ({slots})")


def find_missing_batch_size(document: Mapping[str, Any], reader: str = "") -> list[Problem]:
    """Return a problem if a trial class needs a batch size, or its lengths do, and none is given.

    It is no part of the other checks: a function may count as it likes.

    Args:
        document: The document, merged, not completed.
        reader: The method of the class that asks for the batch size in every run, if one does.
    """
    hparams = document.get("hyperparameters") or {}
    if not isinstance(hparams, Mapping) or hparams.get("global_batch_size") is not None:
        return []
    where = "hyperparameters.global_batch_size"
    units: dict[str, str] = {}
    for path in ("searcher.max_length", "min_validation_period", "min_checkpoint_period"):
        with suppress(ValueError):  # a malformed length is reported by its own field
            units.setdefault(parse_length(look_up(document, path)).unit, path)
    units.setdefault(str(look_up(document, "searcher.time_metric")), "searcher.time_metric")
    records = whole(document.get("records_per_epoch"))
    if records and "epochs" in units:
        why = (
            f"records_per_epoch ({records}) is divided by it; give it, or leave "
            "records_per_epoch out: an epoch is then a pass over the data"
        )
    elif "records" in units:
        why = f"{units['records']} is in records, which are divided by it"
    elif reader:
        why = f"{reader} asks for it: give the batch size of all slots together"
    else:
        return []
    return [Problem.missing(where, f"; {why}")]
