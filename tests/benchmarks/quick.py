"""The option `--quick` of each benchmark: it runs in seconds, and its results are not meaningful.

A benchmark is a module with `KEYS`, the keys of the JSON in its last line.
tests/integration/test_benchmarks.py runs each with `--quick`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def arguments(quick: str, words: Sequence[str] | None = None) -> list[str]:
    """Return the arguments of the command line; `--quick` stands for those given here.

    >>> arguments("--trials 2", ["--quick", "--load", "3"])
    ['--trials', '2', '--load', '3']
    """
    found = []
    for word in sys.argv[1:] if words is None else words:
        found += quick.split() if word == "--quick" else [word]
    return found
