"""The time from a crash until a client sees it, for each kind of tests/e2e/crash_kinds.py.

    python -m tests.benchmarks.crash_told [--match TEXT]

Trials crash one after the other, under a separate master. The time is from the last line before
the crash, which creates a file, until a client that polls every 20 ms sees the failure or the
notice. The last line is JSON: number of kinds, median and longest time, those over 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from det_jupyter.client import Client
from tests.benchmarks.quick import arguments
from tests.e2e.crash_kinds import KINDS, Crash
from tests.e2e.test_crash_kinds import submit
from tests.processes import det_home

QUICK = "--match train_batch"
KEYS = {"kinds", "median_s", "longest_s", "over_2_s", "load"}  # keys of the JSON in the last line

LIMIT_S = 2.0
PATIENCE_S = 120.0
_NO_CALLS = ("globals",)  # this code runs with the cell, long before the crash


def told_after_s(client: Client, kind: Crash, mark: Path) -> float:
    """Return the seconds from the crash until it is shown; the file `mark` must not exist."""
    touch = f"open({str(mark)!r}, 'w').close()"
    code = {
        place: lines if place in _NO_CALLS else f"{touch}\n{lines.strip()}"
        for place, lines in kind.code.items()
    }
    experiment = submit(client, replace(kind, code=code))
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for trial in experiment.view.trials:
            if trial.failure is not None or (kind.notice and trial.notices):
                now = time.time()
                began = mark.stat().st_mtime
                experiment.kill()
                return now - began
        time.sleep(0.02)
    raise TimeoutError(f"{kind.name} was not told within {PATIENCE_S:g} s")


def main(words: Sequence[str] | None = None) -> None:
    """Measure all kinds of crash whose error is shown; print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="only kinds with this text in their names")
    options = parser.parse_args(arguments(QUICK, words))
    kinds = [one for one in KINDS if (one.error or one.notice) and options.match in one.name]
    found: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory(prefix="t-") as folder,
        det_home(Path(folder) / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home,
    ):
        client = home.client()
        for number, kind in enumerate(kinds):
            found[kind.name] = told_after_s(client, kind, Path(folder) / str(number))
            print(f"{found[kind.name]:7.2f} s  {kind.name}", flush=True)
        client.session.close()
    times = sorted(found.values())
    line = {
        "kinds": len(times),
        "median_s": round(median(times), 2),
        "longest_s": round(times[-1], 2),
        "over_2_s": [name for name, seconds in found.items() if seconds > LIMIT_S],
        "load": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
