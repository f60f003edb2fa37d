"""Searches the output of ranks for the patterns of log policies, within a time limit.

Some patterns take unbounded time on some lines (`(a+)+$`), and a search blocks the master. So the
time is limited, and a pattern that has exceeded the limit is not searched for again in that
experiment's output.

Other patterns take unbounded time to compile (`(a{e<=20})`), and compiling has no time limit. So
each pattern is first compiled in another process, which a timer ends.
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

_BUDGET_S = 0.1  # seconds for all lines of a chunk
_COMPILE_S = 0.3  # CPU seconds for each pattern
_PROCESS_S = 30.0  # limit of the process, for a busy computer
_SHOWN = 100  # characters of a pattern in a message
_TOO_MUCH = f"a simpler one: compiling it takes more than {_COMPILE_S} s"
_MEMORY_BYTES = 1 << 30
_COMPILE = f"""
import json, regex, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, [{_MEMORY_BYTES}] * 2)
for pattern in json.load(sys.stdin):
    signal.setitimer(signal.ITIMER_PROF, {_COMPILE_S})  # SIGPROF ends the process
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
    """Searches lines for patterns; skips patterns that have taken too long before."""

    def __init__(self) -> None:
        self._too_slow: set[tuple[int, str]] = set()  # experiment and pattern

    def first_in(self, experiment_id: int, pattern: str, lines: Sequence[str]) -> str | None:
        """Return the first line that contains the pattern; None if none does or it is too slow."""
        if (experiment_id, pattern) in self._too_slow:
            return None
        compiled = regex.compile(pattern)  # cached by regex
        deadline = time.monotonic() + _BUDGET_S
        try:
            for line in lines:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                if compiled.search(line, timeout=left_s):
                    return line
        except TimeoutError:
            self._too_slow.add((experiment_id, pattern))
            logger.error(
                "experiment=%d: the log policy %r is no longer searched for: it took over %g s",
                experiment_id,
                pattern,
                _BUDGET_S,
            )
        return None


async def check_patterns(config: ExperimentConfig) -> None:
    """Check the patterns of log policies.

    Raises:
        ConfigError: A pattern cannot be compiled, or takes too long.
    """
    patterns = [policy.pattern for policy in config.log_policies or ()]
    if problems := await asyncio.to_thread(find_pattern_problems, patterns):
        raise ConfigError(problems)


def find_pattern_problems(patterns: Iterable[str | None]) -> list[Problem]:
    """Return the problems of log policies' patterns. A policy without a pattern is a None."""
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
    """Return the problem of a regular expression; "" if it can be compiled."""
    return _compile([pattern])[0]


def _compile(patterns: Sequence[str]) -> list[str]:
    """Return the problem of each pattern; "" if there is none.

    A pattern that takes too long ends its process; another process continues after it.
    """
    found: list[str] = []
    while len(found) < len(patterns):
        compiled = _compile_in_process(patterns[len(found) :])
        found += [*compiled, _TOO_MUCH][: len(patterns) - len(found)]
    return found


def _compile_in_process(patterns: Sequence[str]) -> list[str]:
    """Return the problem of each pattern up to the first one that takes too long."""
    try:
        printed = subprocess.run(
            [sys.executable, "-P", "-c", _COMPILE],
            input=json.dumps(patterns).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PROCESS_S,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
    return [json.loads(line) for line in printed.splitlines()]
