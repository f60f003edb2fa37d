"""Looks for log policies' patterns in what ranks print, but not for long.

A pattern may take for ever on the wrong line (`(a+)+$`), and while the master looks it does
nothing else. So the time is limited, and a pattern that ran over it is not looked for again in
what that experiment prints.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import regex

logger = logging.getLogger(__name__)

_BUDGET_S = 0.1  # for all lines of a chunk


class Matcher:
    """Finds patterns in lines; remembers those that take too long."""

    def __init__(self) -> None:
        self._hopeless: set[tuple[int, str]] = set()

    def first_in(self, experiment_id: int, pattern: str, lines: Sequence[str]) -> str | None:
        """Return the first line in which the pattern is found; None, too, if it is too slow."""
        if (experiment_id, pattern) in self._hopeless:
            return None
        try:
            return _first_in(pattern, lines)
        except TimeoutError:
            self._hopeless.add((experiment_id, pattern))
            logger.error(
                "experiment=%d: the log policy %r is looked for no more: it took over %g s",
                experiment_id,
                pattern,
                _BUDGET_S,
            )
            return None


def find_pattern_problems(policies: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is wrong with the patterns of log policies, as they are looked for here."""
    problems = []
    for place, policy in enumerate(policies):
        try:
            regex.compile(policy.get("pattern") or "")
        except regex.error as error:
            given = policy["pattern"]
            problems.append(
                f"log_policies[{place}].pattern: got {given!r}, expected a regular expression "
                f"({error})"
            )
    return problems


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
