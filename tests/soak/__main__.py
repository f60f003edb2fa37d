"""`python -m tests.soak --minutes 3 --seed 1`: prints a table of actions, and one line of JSON.

`--points` kills processes at functions that are drawn. `--deaths` kills only ranks whose gang can
save its last step, in steps of one batch and of windows of four. `--inject` damages stored data in
many ways: the judge must find each damage.
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
from collections.abc import Iterator
from pathlib import Path

from tests.processes import det_home
from tests.soak import points
from tests.soak.damages import ELEVEN, MORE, copy_of, judge
from tests.soak.faults import CELLS, SIGNALS, Cell, Fault
from tests.soak.soak import ELSEWHERE, SIMULATED, Report, Soak
from tests.soak.trial import COMPARED, DYING

_TRAINED = (0, 1, 3, 8)  # batches of a run after which --deaths kills its ranks
_PATIENCE_S = 0.5  # how long --deaths waits for such a rank
LONG = 1000  # faults after which each cell was hit, if the expected processes exist


def main() -> int:
    """Run a soak; return 1 if data were lost, doubled, changed or left, or if it did not end."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="for how long; default 3")
    parser.add_argument("--seed", type=int, default=1, help="of faults, their times, and the user")
    parser.add_argument("--inject", action="store_true", help="test the judge instead")
    parser.add_argument(
        "--points", type=int, metavar="NUM", help="kill at so many functions instead"
    )
    parser.add_argument("--deaths", type=int, metavar="NUM", help="kill so many ranks, only ranks")
    parser.add_argument("--match", default="", help="of --points: those that contain this text")
    parser.add_argument("--keep", action="store_true", help="keep the files if there are problems")
    options = parser.parse_args()
    home, temporary = (Path(tempfile.mkdtemp(prefix=prefix)) for prefix in ("soak-", "s-"))
    print(f"seed {options.seed}, {options.minutes:g} minutes, in {home}", flush=True)
    variables = SIMULATED | {"TMPDIR": str(temporary)}
    if options.points:
        status = run_points(home, temporary, options)
        shutil.rmtree(temporary, ignore_errors=True)
        return status
    with det_home(home, variables) as running:
        elsewhere = {} if options.inject or options.deaths else ELSEWHERE
        soak = Soak(running, temporary, options.seed, elsewhere)
        try:
            if options.deaths:
                status = run_deaths(soak, options)
            else:
                soak.run_undisturbed(["class"] if options.inject else COMPARED)
                status = inject(soak, home) if options.inject else run(soak, options)
        finally:
            soak.stop_surroundings()
    if not (status and options.keep):
        for folder in (home, temporary):
            shutil.rmtree(folder, ignore_errors=True)
    return status


def run(soak: Soak, options: argparse.Namespace) -> int:
    """Run rounds until the time is over; print a table and a line of JSON."""
    rng = random.Random(f"{options.seed} rounds")
    began, told = time.monotonic(), 0
    while time.monotonic() - began < 60 * options.minutes:
        soak.run_round(soak.drawn(rng.randint(40, 80)), rng.choices(COMPARED, k=8), pause_s=0.15)
        found = "".join(f"\n  {line}" for line in soak.report.problems[told:])
        told = len(soak.report.problems)
        done = f"{soak.report.experiments} experiments, {soak.report.faults.total()} faults"
        print(f"{time.strftime('%H:%M:%S')} {done}{found}", flush=True)
    report = soak.finish()
    if not report.sightings:
        report.problems.append("no answer of a master was held against the events")
    if report.faults.total() >= LONG:
        report.problems += [f"never hit: {' '.join(cell)}" for cell in missed(report)]
    print(f"\n{table(report)}")
    print(
        json.dumps(
            {
                "seed": options.seed,
                "minutes": round((time.monotonic() - began) / 60, 1),
                "experiments": report.experiments,
                "faults": report.faults.total(),
                "actions": report.actions.total(),
                "sightings": report.sightings,
                "never_hit": len(missed(report)),
                "violations": len(report.problems),
            }
        )
    )
    return 1 if report.problems else 0


def run_deaths(soak: Soak, options: argparse.Namespace) -> int:
    """Kill ranks of gangs until there were enough; print the results as a line of JSON."""
    soak.run_undisturbed(DYING)
    began, rng = time.monotonic(), random.Random(f"{options.seed} deaths")

    def is_over() -> bool:
        minutes = (time.monotonic() - began) / 60
        return bool(soak.report.faults.total() >= options.deaths or minutes >= options.minutes)

    def faults() -> Iterator[Fault]:
        while not is_over():
            kind, trained = rng.choice(DYING), rng.choice(_TRAINED)
            yield Fault("rank", "SIGKILL", kind=kind, trained=trained)

    while not is_over():
        soak.run_round(faults(), ["elastic", *DYING], pause_s=0.05, patience_s=_PATIENCE_S)
    trials = soak.trials()
    report = soak.finish()
    print("\n".join(report.problems or ["nothing was lost, doubled, changed or left"]))
    counts = {
        "seed": options.seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "experiments": report.experiments,
        "deaths": report.faults.total(),
        "recoveries": sum(trial.num_recoveries for trial in trials),
        "restarts": sum(trial.restarts for trial in trials),
        "slots_of_elastic": Counter(size.slots for trial in trials for size in trial.sizes),
        "violations": len(report.problems),
    }
    print(json.dumps(counts))
    return 1 if report.problems else 0


def run_points(home: Path, temporary: Path, options: argparse.Namespace) -> int:
    """Kill a process at each of some points; print the results, and a line of JSON."""
    requests = temporary / "points"
    requests.mkdir()
    problems = 0
    variables = SIMULATED | {"TMPDIR": str(temporary)} | points.variables(requests)
    with det_home(home, variables) as running:
        killing = points.Points(running, requests)
        there = killing.record()
        rng = random.Random(options.seed)
        chosen = points.choose(points.matching(there, options.match), options.points, rng)
        for point in chosen:
            told = killing.run(point)
            problems += len(told)
            print(
                f"{point.role:<12} {point.function:<90} {'; '.join(told) or 'as undisturbed'}",
                flush=True,
            )
        killing.close()
    counts = {"seed": options.seed, "there": len(there), "points": len(chosen)}
    print(json.dumps(counts | {"violations": problems}))
    return int(problems > 0)


def missed(report: Report) -> list[Cell]:
    """Return the cells that no fault has hit."""
    return [cell for cell in CELLS if not report.hits[cell]]


def table(report: Report) -> str:
    """Return a table of the actions and the problems."""
    lines = [f"{'':<24}" + "".join(f"{name:>9}" for name in SIGNALS)]
    for role, kind in dict.fromkeys(cell[:2] for cell in CELLS):
        counts = "".join(f"{report.hits[role, kind, name]:>9}" for name in SIGNALS)
        lines.append(f"{f'{role} of a {kind}' if kind else role:<24}{counts}")
    actions = ", ".join(f"{name} {number}" for name, number in report.actions.most_common())
    lines += ["", f"the user: {actions}"]
    longest = max(
        (fault.frozen_s for fault in report.faults if fault.signal == "SIGSTOP"), default=0
    )
    lines.append(f"{report.faults.total()} faults (the longest freeze: {longest:.0f} s)")
    lines.append(f"{report.experiments} experiments")
    lines += report.problems or ["nothing was lost, doubled, changed or left"]
    return "\n".join(lines)


def inject(soak: Soak, home: Path) -> int:
    """Damage copies of the home; print the judge's results, and a line of JSON."""
    expected = soak.expected["class"]
    found: list[str] = []
    for name, (damage, sentence) in (ELEVEN | MORE).items():
        with (
            tempfile.TemporaryDirectory() as folder,
            copy_of(home, Path(folder) / "copy", expected.id) as copy,
        ):
            damage(copy)
            told = [line for line in judge(copy, expected) if sentence in line]
        found += [name] * bool(told)
        print(f"{name:<44} {told[0] if told else 'NOT FOUND'}")
    problems = soak.finish().problems
    print("\n".join(problems))
    counts = {
        "injected": len(ELEVEN),
        "found": len(ELEVEN.keys() & set(found)),
        "more_injected": len(MORE),
        "more_found": len(MORE.keys() & set(found)),
        "false_alarms": len(problems),
    }
    print(json.dumps(counts))
    return int(len(found) < len(ELEVEN | MORE) or bool(problems))


if __name__ == "__main__":
    sys.exit(main())
