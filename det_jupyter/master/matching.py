"""Looks for log policies' patterns in what ranks print, but not for long.

A pattern may take for ever on the wrong line (`(a+)+$`), and while the master looks it does
nothing else. So the time is limited, and a pattern that ran over it is not looked for again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import regex

logger = logging.getLogger(__name__)

_BUDGET_S = 0.1  # for all lines of a chunk


class Matcher:
    """Finds patterns in lines; remembers those that take too long."""

    def __init__(self) -> None:
        self._hopeless: set[str] = set()

    def first_in(self, pattern: str, lines: Sequence[str]) -> str | None:
        """Return the first line in which the pattern is found; None, too, if it is too slow."""
        if pattern in self._hopeless:
            return None
        try:
            return _first_in(pattern, lines)
        except (TimeoutError, regex.error) as error:
            self._hopeless.add(pattern)
            reason = str(error) or f"it took more than {_BUDGET_S:g} s"
            logger.error("the log policy %r is looked for no more: %s", pattern, reason)
            return None


def _first_in(pattern: str, lines: Sequence[str]) -> str | None:
    compiled = regex.compile(pattern)  # which keeps those that it compiled before
    deadline = time.monotonic() + _BUDGET_S
    for line in lines:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        if compiled.search(line, timeout=left_s):
            return line
    return None
