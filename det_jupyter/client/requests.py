"""Makes requests to the master from a user's values, and times from texts such as "2d".

Errors name the arguments as the user wrote them.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any, TypeVar

from pydantic import ValidationError

from det_jupyter.contract.messages import Wire
from det_jupyter.errors import ConfigError, Problem

Request = TypeVar("Request", bound=Wire)
_EXPECTED = {
    "config": "a mapping of names to values",
    "hyperparameters": "a mapping of names to ranges or values",
    "name": "text",
    "text": "words",
    "label": "a label, or a list of them",
    "state": "a state such as running, or a list of them",
    "sort": "newest, oldest or metric",
    "archived": "True or False",
    "notebook": "the path of a notebook, or its end",
    "description": "text of at most 20,000 characters",
    "add_labels": "words, each of 1 to 100 characters",
    "remove_labels": "words, each of 1 to 100 characters",
    "length": "a length such as {'epochs': 12}, or a number of batches",
    "max_length": "a length such as {'epochs': 12}, or a number of batches",
    "seconds_per_batch": "a number above 0",
    "uuid": "a checkpoint, or its uuid",
    "labels": "words, each of 1 to 100 characters",
    "alias": "a name such as production",
    "aliases": "names such as production",
    "metadata": "values by name",
    "add_metadata": "values by name",
    "remove_metadata": "names of values",
    "comment": "text of at most 20,000 characters",
    "notes": "text of at most 20,000 characters",
    "priority": "a whole number from 1 to 99",
    "weight": "a number above 0",
    "max_slots": "a whole number, or none for no limit",
    "resource_pool": "the name of a pool",
    "ahead_of": "an experiment, or its number",
    "behind": "an experiment, or its number",
    "pools": "a list of pools, such as [{pool_name: big, agents: [left]}]",
    "slots": "numbers of slots",
    "columns": "a whole number from 1 to 4,000",
    "of": "metrics, timings or system",
    "axis": "time or batches",
    "names": "a list of names",
    "sources": "a list of sources such as host and rank:0",
    "until": "a date, a time, or an age such as '10m'",
    "since": "a date, a time, or an age such as '10m'",
    "level": "one of debug, info, warning, error, critical",
    "search": "a text of at most 1,000 characters, or /a regular expression/",
    "steps": "a whole number from 1 to 1000",
    "ranks": "a list of ranks, such as [0, 1]",
    "max_bytes": "a whole number of bytes, from 1024 to 2**30",
    "lr": "a number above 0",
    "lr_factor": "a number above 0",
    "min_validation_period": "a length such as {'epochs': 1}, or a number of batches",
    "save_experiment_best": "a whole number, 0 or more",
    "save_trial_best": "a whole number, 0 or more",
    "save_trial_latest": "a whole number, 0 or more",
}


def make_request(kind: type[Request], **given: Any) -> Request:
    """Validate `given`, and return the request of class `kind`.

    Raises:
        ConfigError: Values of a wrong type or out of range; one line for each.
    """
    try:
        request = kind(**given)
    except ValidationError as error:
        found = error.errors()
        names = dict.fromkeys(str(each["loc"][0]) for each in found if each["loc"])
        of_whole = [each["msg"].removeprefix("Value error, ") for each in found if not each["loc"]]
        problems = [
            Problem(
                name,
                f"got {given.get(name)!r:.60}, expected {_EXPECTED.get(name, 'a whole number')}",
            )
            for name in names
        ]
        raise ConfigError([*problems, *of_whole]) from None
    try:
        json.dumps(request.model_dump(), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError([Problem(", ".join(given), f"cannot be sent: {error}")]) from None
    return request


def number_of(handle: Any) -> Any:
    """Return the id of a handle on an experiment or trial; anything else unchanged."""
    return getattr(handle, "id", handle)


When = str | date | float | None  # a datetime is a date

_AGE = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def to_moment(where: str, when: When, now: float, *, is_end: bool = False) -> float | None:
    """Convert a date, a date and time (local time) or an age such as "2d" to UTC seconds.

    Args:
        where: The name of the argument, for errors.
        now: The present, in UTC seconds; ages are subtracted from it.
        is_end: A date without a time means the end of the day, not its beginning.

    Raises:
        ConfigError: `when` is none of these.
    """
    match when:
        case None:
            return None
        case float() | int() if not isinstance(when, bool):
            return float(when)
        case date():
            return _seconds_of(when, is_end=is_end)
        case str():
            text = when.strip()
            if age := _AGE.fullmatch(text):
                return now - float(age[1]) * _SECONDS[age[2]]
            for parse in (date.fromisoformat, datetime.fromisoformat):
                with suppress(ValueError):
                    return _seconds_of(parse(text), is_end=is_end)
    raise ConfigError([Problem(where, f"got {when!r:.60}, expected a date such as 2026-01-31 or "
                       '"2026-01-31 14:00", or an age such as 2d, 12h or 30m')])  # fmt: skip


def _seconds_of(when: date, *, is_end: bool) -> float:
    if isinstance(when, datetime):
        return when.timestamp()
    is_next = is_end and when < date.max
    day = when + timedelta(days=1) if is_next else when
    return datetime(day.year, day.month, day.day).timestamp()
