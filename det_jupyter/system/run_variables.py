"""The environment of a run, and how to leave it: what outlives the run must not begin in it.

A rank's environment has its devices, its place, its checkpoint and the user's secrets. A master
that a script starts would pass all of that on to every later run. So the environment has, as JSON,
what was there before: the value of each variable that was changed; null if it was not set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

BEFORE_VARIABLE = "DET_JUPYTER_BEFORE"


def describe_before(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the value of BEFORE_VARIABLE.

    >>> describe_before({"A": "1", "B": "2"}, {"A": "1", "B": "3", "C": "4"})
    '{"B": "2", "C": null}'
    """
    names = sorted(before.keys() | now.keys())
    return json.dumps({n: before.get(n) for n in names if before.get(n) != now.get(n)})


def without_run(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment as it was before the run; the same outside of runs.

    >>> without_run({"A": "1", "B": "3", "C": "4", BEFORE_VARIABLE: '{"B": "2", "C": null}'})
    {'A': '1', 'B': '2'}
    """
    found = dict(environ)
    changed: dict[str, str | None] = {}
    with suppress(ValueError, TypeError):  # it was changed
        changed = dict(json.loads(found.pop(BEFORE_VARIABLE, "{}")))
    for name, value in changed.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found
