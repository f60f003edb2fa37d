"""`python -m tests.soak --minutes 3 --seed 1`: a table of what was done and what was found."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.processes import det_home
from tests.soak.faults import ROLES, SIGNALS, draw
from tests.soak.soak import Report, Soak
from tests.trials import TRIAL_SOURCE

_SOURCE = TRIAL_SOURCE.replace("size(), shuffle", "size(), num_workers=1, shuffle")


def main() -> int:
    """Run a soak; return 1 if anything was lost, doubled or changed, or did not end."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long; default 3")
    parser.add_argument("--seed", type=int, default=1, help="of the faults and their times")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    home = Path(tempfile.mkdtemp(prefix="soak-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, in {home}", flush=True)
    with det_home(home, {"DET_JUPYTER_CPU_SLOTS": "4"}) as running:
        soak = Soak(running, rng, _SOURCE)
        soak.run_undisturbed()
        deadline = time.monotonic() + 60 * options.minutes
        while time.monotonic() < deadline:
            faults = [draw(rng) for _ in range(rng.randint(3, 15))]
            soak.run_round(faults, experiments=2, pause_s=0.05)
            sys.stdout.write(f"{soak.report.experiments} ")
            sys.stdout.flush()
        report = soak.finish()
    print(f"\n{table(report)}")
    return 1 if report.problems else 0


def table(report: Report) -> str:
    """Return what was done and found."""
    count: Counter[tuple[str, str]] = Counter()
    for fault, number in report.faults.items():
        count[fault.role, fault.signal] += number
    lines = [f"{'':<12}" + "".join(f"{name:>9}" for name in SIGNALS)]
    for role in ROLES:
        lines.append(f"{role:<12}" + "".join(f"{count[role, name]:>9}" for name in SIGNALS))
    lines.append("")
    lines.append(f"{report.faults.total()} faults, {report.experiments} experiments")
    lines += report.problems or ["nothing was lost, doubled or changed"]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
