"""`python -m tests.soak --minutes 3 --seed 1`: a table of what was done, and one line of JSON.

`--inject` damages stored data in eleven ways instead: the judge must find each.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.processes import det_home
from tests.soak.damages import ELEVEN, MORE, copy_of, judge
from tests.soak.faults import ROLES, SIGNALS, draw
from tests.soak.soak import SIMULATED, Report, Soak
from tests.soak.trial import COMPARED


def main() -> int:
    """Run a soak; return 1 if anything was lost, doubled, changed or left, or did not end."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long; default 3")
    parser.add_argument("--seed", type=int, default=1, help="of faults, their times, and the user")
    parser.add_argument("--inject", action="store_true", help="test the judge instead")
    parser.add_argument("--keep", action="store_true", help="keep the files if there are problems")
    options = parser.parse_args()
    home, temporary = (Path(tempfile.mkdtemp(prefix=prefix)) for prefix in ("soak-", "s-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, in {home}", flush=True)
    variables = SIMULATED | {"TMPDIR": str(temporary)}
    with det_home(home, variables) as running:
        soak = Soak(running, temporary, options.seed)
        soak.run_undisturbed(["class"] if options.inject else COMPARED)
        status = inject(soak, home) if options.inject else run(soak, options)
    if not (status and options.keep):
        for folder in (home, temporary):
            shutil.rmtree(folder, ignore_errors=True)
    return status


def run(soak: Soak, options: argparse.Namespace) -> int:
    """Run rounds until the time is over; print a table and a line of JSON."""
    rng = random.Random(f"{options.seed} faults")
    began, told = time.monotonic(), 0
    while time.monotonic() - began < 60 * options.minutes:
        faults = [draw(rng) for _ in range(rng.randint(20, 40))]
        soak.run_round(faults, rng.choices(COMPARED, k=4), pause_s=0.15)
        found = "".join(f"\n  {line}" for line in soak.report.problems[told:])
        told = len(soak.report.problems)
        done = f"{soak.report.experiments} experiments, {soak.report.faults.total()} faults"
        print(f"{done}{found}", flush=True)
    report = soak.finish()
    print(f"\n{table(report)}")
    print(
        json.dumps(
            {
                "seed": options.seed,
                "minutes": round((time.monotonic() - began) / 60, 1),
                "experiments": report.experiments,
                "faults": report.faults.total(),
                "actions": report.actions.total(),
                "problems": len(report.problems),
            }
        )
    )
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
    actions = ", ".join(f"{name} {number}" for name, number in report.actions.most_common())
    lines.append(f"the user: {actions}")
    longest = max(
        (fault.frozen_s for fault in report.faults if fault.signal == "SIGSTOP"), default=0
    )
    lines.append(f"{report.faults.total()} faults (the longest freeze: {longest:.0f} s)")
    given_up = f", {len(report.given_up)} given up" if report.given_up else ""
    lines.append(f"{report.experiments} experiments{given_up}")
    lines += report.problems or ["nothing was lost, doubled, changed or left"]
    return "\n".join(lines)


def inject(soak: Soak, home: Path) -> int:
    """Damage copies of the home; print what the judge finds, and a line of JSON."""
    expected = soak.expected["class"]
    found = 0
    for name, (damage, sentence) in (ELEVEN | MORE).items():
        with (
            tempfile.TemporaryDirectory() as folder,
            copy_of(home, Path(folder) / "copy", expected.id) as copy,
        ):
            damage(copy)
            told = [line for line in judge(copy, expected) if sentence in line]
        found += bool(told) and name in ELEVEN
        print(f"{name:<44} {told[0] if told else 'NOT FOUND'}")
    problems = soak.finish().problems
    print("\n".join(problems))
    print(json.dumps({"injected": len(ELEVEN), "found": found, "false_alarms": len(problems)}))
    return int(found < len(ELEVEN) or bool(problems))


if __name__ == "__main__":
    sys.exit(main())
