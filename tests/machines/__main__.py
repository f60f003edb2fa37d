"""`python -m tests.machines`: plays the scenarios, as root; prints a table and a line of JSON.

Several scenarios are played at once, each with machines of its own, because they mostly wait.
"""

from __future__ import annotations

import argparse
import json
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.machines.machine import Network, network, why_impossible
from tests.machines.scenario import Scenario
from tests.machines.scenarios import NOT_PLAYED, SCENARIOS
from tests.machines.world import Place, place_to
from tests.soak.collected import StoredExperiment
from tests.soak.judge import differences

_TIMEOUT_S = 600.0
_CODE = "code/files/"
_ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Play the scenarios that match; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.machines", description=__doc__)
    parser.add_argument("words", nargs="*", help="play only scenarios whose name contains one")
    parser.add_argument("--parallel", type=int, default=5, help="how many at once; default 5")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    options = parser.parse_args()
    if reason := why_impossible():
        print(f"skipped: {reason}")
        print(json.dumps({"scenarios": 0, "violations": 0, "skipped": reason}))
        return 0
    words = options.words or [""]
    references = {each.slots: each for each in SCENARIOS if each.name.endswith("undisturbed")}
    chosen = [
        each
        for each in SCENARIOS
        if each in references.values() or any(word in each.name for word in words)
    ]
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="det-machines-", dir="/var/tmp"))
    with network() as machines, ThreadPoolExecutor(options.parallel) as pool:
        places = [_make_place(machines, folder, *numbered) for numbered in enumerate(chosen)]
        results = list(pool.map(_play, chosen, places))
    violations = _compare(chosen, results, places)
    print(_table(chosen, results))
    for name, reason in NOT_PLAYED.items():
        print(f"not played: {name}: {reason}")
    print(f"{time.monotonic() - began:.0f} s")
    for scenario, result, place in zip(chosen, results, places, strict=True):
        for line in result["violations"]:
            print(f"{scenario.name}: {line} (logs in {place.shared})")
    if options.keep:
        print(f"logs: {folder}")
    elif not violations:
        shutil.rmtree(folder)
    print(json.dumps({"scenarios": len(chosen), "violations": violations}))
    return 1 if violations else 0


def _make_place(machines: Network, folder: Path, number: int, scenario: Scenario) -> Place:
    shared = folder / str(number)
    shared.mkdir()
    names = ["master", *"bcd"[: scenario.agents]]
    master, *agents = (machines.machine(f"{name}{number}") for name in names)
    return Place(master=master, agents=agents, shared=shared)


def _play(scenario: Scenario, place: Place) -> dict[str, Any]:
    """Play one scenario in a process of its own, and return what it prints."""
    command = [sys.executable, "-m", "tests.machines.play", scenario.name]
    try:
        played = subprocess.run(
            place.master.entered(command),
            input=place_to(place),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            cwd=_ROOT,
            check=False,
        )
        (place.shared / "play.log").write_text(played.stderr)
        if not played.stdout:
            raise ValueError(played.stderr.strip()[-200:])
        result: dict[str, Any] = json.loads(played.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError) as error:
        result = {"violations": [f"it was not played to its end: {error}"], "gangs": []}
    sys.stderr.write(f"{scenario.name}: {result['violations'] or 'as expected'}\n")
    return result


def _compare(
    chosen: Sequence[Scenario], results: Sequence[dict[str, Any]], places: Sequence[Place]
) -> int:
    """Add differences from the undisturbed runs to the violations; return their number."""
    # By number of slots: the undisturbed run, which is played first.
    expected: dict[int, StoredExperiment] = {}
    for scenario, result, place in zip(chosen, results, places, strict=True):
        stored = _stored(place)
        if stored is not None:
            told = differences(stored, expected.setdefault(scenario.slots, stored))
            known = result["violations"]
            # The source contains a path of its place, so the code in the checkpoints differs.
            known += [
                line
                for line in told
                if line not in known and _CODE not in line and not scenario.excuses(line)
            ]
    return sum(len(result["violations"]) for result in results)


def _stored(place: Place) -> StoredExperiment | None:
    path = place.shared / "stored.pickle"
    found: StoredExperiment | None = pickle.loads(path.read_bytes()) if path.exists() else None
    return found


def _table(chosen: Sequence[Scenario], results: Sequence[dict[str, Any]]) -> str:
    lines = [
        f"{'scenario':<50}{'s':>5}  {'two gangs':>9}  gangs: from, to (s after the fault), where"
    ]
    for scenario, result in zip(chosen, results, strict=True):
        gangs = "; ".join(
            f"{gang['from_s']:.1f} to {gang['to_s']:.1f} on {' '.join(gang['machines'])}"
            for gang in result["gangs"]
        )
        overlap = f"{result.get('overlap_s', 0):.1f} s"
        mark = "" if not result["violations"] else "  VIOLATION"
        lines.append(
            f"{scenario.name:<50}{result.get('seconds', 0):>5.0f}  {overlap:>9}  {gangs}{mark}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
