"""Searches what ranks print for the patterns of log policies, within a time limit.

Some patterns take unbounded time on some lines (`(a+)+$`), and the master does nothing else
meanwhile. So the time is limited, and a pattern that exceeded the limit is not searched for again
in what that experiment prints.

Other patterns take unbounded time to compile (`(a{e<=20})`), which has no time limit of its own.
So each is compiled first in a process of its own, which ends in time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence

import regex

from det_jupyter.config import ExperimentConfig
from det_jupyter.errors import ConfigError, Problem

logger = logging.getLogger(__name__)

_BUDGET_S = 0.1  # for all lines of a chunk
_COMPILE_S = 0.3  # of a processor
_STARTED_S = 30.0  # for a process to start and do that on a busy computer
_SHOWN = 100
_TOO_MUCH = f"simpler than this: it takes more than {_COMPILE_S} s to be made ready"
_MEMORY_BYTES = 1 << 30
_COMPILE = f"""
import json, regex, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, [{_MEMORY_BYTES}] * 2)
for pattern in json.load(sys.stdin):
    signal.setitimer(signal.ITIMER_PROF, {_COMPILE_S})  # which ends the process
    try:
        regex.compile(pattern)
        problem = ""
    except (regex.error, RecursionError) as error:
        problem = str(error)
    except MemoryError:
        sys.exit(2)
    print(json.dumps(problem), flush=True)
"""


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


async def check_patterns(config: ExperimentConfig) -> None:
    """Refuse log policies with patterns that cannot be compiled, or not in a reasonable time."""
    patterns = [policy.pattern for policy in config.log_policies or ()]
    if problems := await asyncio.to_thread(find_pattern_problems, patterns):
        raise ConfigError(problems)


def find_pattern_problems(patterns: Iterable[str | None]) -> list[Problem]:
    """Return what is wrong with the patterns of log policies; None: the policy has no pattern."""
    problems = []
    given = {index: pattern for index, pattern in enumerate(patterns) if pattern}
    for index, problem in zip(given, _compile(list(given.values())), strict=True):
        if problem:
            shown = repr(given[index][:_SHOWN] + "…" * (len(given[index]) > _SHOWN))
            problems.append(
                Problem(
                    f"log_policies[{index}].pattern",
                    f"got {shown}, expected a regular expression ({problem})",
                )
            )
    return problems


def find_regex_problem(pattern: str) -> str:
    """Return what is wrong with a regular expression; "" if nothing is."""
    return _compile([pattern])[0]


def _compile(patterns: Sequence[str]) -> list[str]:
    """Return what is wrong with each pattern; "" if nothing is.

    The first that takes too much ends its process, so the next one begins behind it.
    """
    found: list[str] = []
    while len(found) < len(patterns):
        ready = _compile_until_too_much(patterns[len(found) :])
        found += [*ready, _TOO_MUCH][: len(patterns) - len(found)]
    return found


def _compile_until_too_much(patterns: Sequence[str]) -> list[str]:
    try:
        tried = subprocess.run(
            [sys.executable, "-P", "-c", _COMPILE],
            input=json.dumps(patterns).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_STARTED_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as late:
        tried = late.stdout or b""
    return [json.loads(line) for line in tried.splitlines()]


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
