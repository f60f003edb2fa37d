"""Moments in the words of users: a date, a time, or an age such as 2d."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime, timedelta

from det_jupyter.errors import ConfigError

When = str | date | float | None  # a datetime is a date

_AGE = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def to_moment(where: str, when: When, now: float, *, is_end: bool = False) -> float | None:
    """Return UTC seconds: of a date, a date and time, or an age such as "2d"; all in local time.

    Args:
        where: The name of the argument, for errors.
        when: A date means its beginning.
        is_end: It means its end instead.

    Raises:
        ConfigError: It is none of these.
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
    raise ConfigError([f"{where}: got {when!r:.60}, expected a date such as 2026-01-31 or "
                       '"2026-01-31 14:00", or an age such as 2d, 12h or 30m'])  # fmt: skip


def _seconds_of(when: date, *, is_end: bool) -> float:
    if isinstance(when, datetime):
        return when.timestamp()
    is_next = is_end and when < date.max
    day = when + timedelta(days=1) if is_next else when
    return datetime(day.year, day.month, day.day).timestamp()
