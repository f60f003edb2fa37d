"""The time in which the master finds the last matching lines, of a million.

    python -m tests.benchmarks.log_search [--lines 1000000]

The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from det_jupyter.contract.messages import LogQuery
from det_jupyter.contract.run.output_lines import parse_printed
from det_jupyter.master.service.storing.database import open_database, transaction
from det_jupyter.master.service.storing.stored_logs import Logs, read_page
from tests.benchmarks.quick import arguments

QUICK = "--lines 20000"
KEYS = {"us_a_line", "ms"}  # keys of the JSON in the last line

NUM_RANKS = 8
_CHUNK = 1000
_RARE, _OFTEN = 100_000, 100  # every this many lines there is a warning, or an error

QUERIES = {
    "the last 100": LogQuery(tail=100),
    "of one rank": LogQuery(tail=100, rank=3),
    "errors (1 %)": LogQuery(tail=100, level="error"),
    "critical (none)": LogQuery(tail=100, level="critical"),
    "a text in all": LogQuery(tail=100, search="step"),
    "a rare text": LogQuery(tail=100, search="needle"),
    "a regular expression": LogQuery(tail=100, search="/need.e$/"),
}


def main() -> None:
    """Fill a database and print the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, default=1_000_000)
    num_lines = parser.parse_args(arguments(QUICK)).lines
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "det.sqlite3"
        db = open_database(path)
        logs = Logs(db, max_bytes=1 << 40)
        started = time.perf_counter()
        for first in range(0, num_lines, _CHUNK):
            printed = parse_printed("".join(map(_line, range(first, first + _CHUNK))))
            with transaction(db):
                rank = first // _CHUNK % NUM_RANKS
                logs.add(float(first), trial_id=1, run=1, rank=rank, printed=printed)
        per_line_us = (time.perf_counter() - started) / num_lines * 1e6
        print(f"{'storing':24} {per_line_us:8.1f} µs a line, its level recognised")
        for name, query in (QUERIES | {"nothing new": LogQuery(after=num_lines)}).items():
            # Warms up the check of a regular expression.
            read_page(path, [1], query, is_over=False)
            started = time.perf_counter()
            page = read_page(path, [1], query, is_over=False)
            took_ms = (time.perf_counter() - started) * 1e3
            found[name] = round(took_ms, 1)
            print(f"{name:24} {took_ms:8.1f} ms  {len(page.lines)} of {page.total}")
        db.close()
    print(json.dumps({"us_a_line": round(per_line_us, 1), "ms": found}))


def _line(number: int) -> str:
    if number % _RARE == 0:
        return f"step {number}: a needle\n"
    if number % _OFTEN == 0:
        return f"2026-11-22 13:25:01,123 - train - ERROR - step {number} failed\n"
    return f"step {number}: loss 0.12345, accuracy 0.98765, 1234 samples/s, lr 0.001\n"


if __name__ == "__main__":
    main()
