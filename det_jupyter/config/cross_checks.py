"""Checks of several values together: those that contradict or require each other.

The checks read the raw document, so that their problems are reported together with the others. A
value that is invalid by itself is skipped: its own field reports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from det_jupyter.config.migrate import RETIRED
from det_jupyter.config.tracker_section import find_tracker_contradictions
from det_jupyter.contract.schema.fields import as_whole
from det_jupyter.contract.schema.key_paths import format_value, join, look_up, section
from det_jupyter.contract.values.entrypoints import Command, Program, try_parse_entrypoint
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.errors import Problem
from det_jupyter.searcher.methods import find_section
from det_jupyter.searcher.rung_lengths import divisor_of, full_amount, most_rungs


def find_contradictions(document: Mapping[str, Any], *, is_part: bool = False) -> list[Problem]:
    """Return the problems with values that contradict or require each other.

    Args:
        document: The document, without nulls.
        is_part: Whether it is only a part of a configuration: then missing values are no problem.
    """
    checks = [
        _slots,
        _profiling,
        _storage,
        _log_policies,
        _sources,
        _rungs,
        find_tracker_contradictions,
    ]
    if not is_part:
        checks += [_batch_size, _searcher]
    return [problem for check in checks for problem in check(document)]


def _slots(document: Mapping[str, Any]) -> Iterator[Problem]:
    most = as_whole(look_up(document, "resources.max_slots"))
    given, other = (look_up(document, f"resources.{key}") for key in ("slots_per_trial", "slots"))
    if given is None and other is not None:  # `migrate` has renamed it if it is a number
        yield Problem(
            "resources.slots",
            f"got {format_value(other)}; it is a key of notebooks and commands; write "
            "slots_per_trial with a whole number",
        )
    least = _least_slots(document)
    top = as_whole(look_up(document, "resources.slots_per_trial.max"))
    if top is not None and 1 <= top < least:
        yield Problem(
            "resources.slots_per_trial.max", f"got {top}, expected at least {least} (min)"
        )
    if given == 0 and look_up(document, "searcher.elastic") is True:
        yield Problem("searcher.elastic", "got true, but resources.slots_per_trial is 0: no slot")
    if most is not None and most < least:
        yield (
            Problem(
                "resources.max_slots",
                f"got {most}, expected at least {_slots_key(given)} ({least})",
            )
        )


def _least_slots(document: Mapping[str, Any]) -> int:
    """Return the number of slots that a trial needs to start, at least 1."""
    given = look_up(document, "resources.slots_per_trial")
    return as_whole(given.get("min") if isinstance(given, Mapping) else given) or 1


def _slots_key(given: Any) -> str:
    return f"resources.slots_per_trial{'.min' if isinstance(given, Mapping) else ''}"


def _profiling(document: Mapping[str, Any]) -> Iterator[Problem]:
    begin = as_whole(look_up(document, "profiling.begin_on_batch"))
    end = as_whole(look_up(document, "profiling.end_after_batch"))
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


def is_endless(document: Mapping[str, Any]) -> bool:
    """Return whether the entrypoint is a command and no length is given, which is allowed.

    As in Determined 0.38, a command decides itself how long it trains; only one that reads
    `searcher.operations` needs a length.
    """
    searcher = section(document, "searcher")
    method = find_section(searcher)
    is_open = method is not None and method.is_endless(searcher)
    entrypoint = try_parse_entrypoint(document.get("entrypoint"))
    return is_open and isinstance(entrypoint, Program | Command)


def _rungs(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Check that there are not more rungs than different lengths."""
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
        rungs = as_whole(value)
        if rungs is not None and rungs > most:
            yield (
                Problem(
                    path,
                    f"got {rungs}, expected at most {most}: with a length of {amount} and "
                    f"divisor {divisor:g}, more rungs would not differ",
                )
            )


def _searcher(document: Mapping[str, Any]) -> Iterator[Problem]:
    searcher = section(document, "searcher")
    if method := find_section(searcher):
        yield from method.find_contradictions(searcher, section(document, "hyperparameters"))


def _batch_size(document: Mapping[str, Any]) -> Iterator[Problem]:
    path = "hyperparameters.global_batch_size"
    size = look_up(document, "hyperparameters.global_batch_size")
    given = look_up(document, "resources.slots_per_trial")
    slots = _least_slots(document)
    if isinstance(size, Mapping):
        return  # a range: the trial's context checks the drawn value
    if size is None:
        return  # a function may need none; for classes see find_missing_batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        yield Problem(path, f"got {format_value(size)}, expected a whole number of at least 1")
    elif size < slots:
        yield Problem(path, f"got {size}, expected at least {_slots_key(given)} ({slots})")


def find_missing_batch_size(document: Mapping[str, Any], reader: str = "") -> list[Problem]:
    """Return a problem if a trial class or the lengths need a batch size, and none is given.

    This is not a part of `find_contradictions`: a function need not have a batch size.

    Args:
        document: The document, merged with its template, without computed defaults.
        reader: A method of the class that reads the batch size in every run; "": none does.
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
    records = as_whole(document.get("records_per_epoch"))
    if records and "epochs" in units:
        why = (
            f"records_per_epoch ({records}) is divided by it; give it, or leave "
            "records_per_epoch out: an epoch is then a pass over the data"
        )
    elif "records" in units:
        why = f"{units['records']} is in records, which are divided by it"
    elif reader:
        why = f"{reader} requires it: give the batch size of all slots together"
    else:
        return []
    return [Problem.missing(where, f"; {why}")]
