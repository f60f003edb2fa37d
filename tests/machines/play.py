"""`python -m tests.machines.play NAME`: plays a scenario in the master's network, with its files.

Reads the place from stdin. Prints a JSON line with the violations and the measurements. Writes the
stored data of the experiment to `stored.pickle` in the shared folder.
"""

from __future__ import annotations

import json
import pickle
import sys
import time
import traceback

from tests.machines.scenario import Scenario
from tests.machines.scenarios import SCENARIOS
from tests.machines.world import STEPS, World, place_from
from tests.processes import wait_until
from tests.soak import shown
from tests.soak.collected import damages_of, read_experiment
from tests.soak.judge import inconsistencies


def main() -> int:
    """Play the scenario; return 0 even if it has violations, which are printed."""
    scenario = next(each for each in SCENARIOS if each.name == sys.argv[1])
    place = place_from(sys.stdin.read())
    world = scenario.world(
        place,
        slots_per_trial=scenario.slots,
        with_shared_storage=scenario.with_shared_storage,
    )
    began = time.monotonic()
    violations: list[str] = []
    try:
        if scenario.before is not None:
            scenario.before(world)
        world.start()
        scenario.fault(world)
        world.finish()
        if scenario.after is not None:
            scenario.after(world)
        violations += [line for line in _problems(world) if not scenario.excuses(line)]
    except Exception as error:
        traceback.print_exc()
        violations.append(f"{type(error).__name__}: {error}"[:300])
    violations += world.stop() + _gang_problems(world, scenario)
    lives = sorted(world.watch.lives.values(), key=lambda life: life.first_s)
    print(
        json.dumps(
            {
                "violations": violations,
                "seconds": round(time.monotonic() - began, 1),
                "samples": world.watch.num_samples,
                "overlap_s": round(world.watch.overlaps_s, 2),
                "gangs": [
                    {
                        "from_s": round(life.first_s - world.fault_s, 1),
                        "to_s": round(life.last_s - world.fault_s, 1),
                        "machines": sorted(life.machines),
                    }
                    for life in lives
                ],
            }
        )
    )
    return 0


def _problems(world: World) -> list[str]:
    """Return the problems of the trial itself. The caller compares it with other trials."""
    view = world.experiment.view
    if view.state != "COMPLETED":
        return [f"{view.state}: {view.message}"]
    found = []
    if view.trials[0].restarts:
        found.append(f"{view.trials[0].restarts} restarts were counted as the trial's failures")
    # Older checkpoints are deleted when the trial is over.
    wait_until(lambda: _num_kept(world) == 1, "older checkpoints are deleted")
    client = world.client()
    known = shown.ask(client, view.id)
    client.session.close()
    stored = read_experiment(world.database.parent, known, world.storage)
    (world.place.shared / "stored.pickle").write_bytes(pickle.dumps(stored))
    if [step for step, _ in stored.trials[0].batches] != list(range(1, STEPS + 1)):
        found.append("metrics of batches are incomplete, doubled or not in order")
    found += [f"the database is damaged: {line}" for line in damages_of(world.database)]
    return found + inconsistencies(stored) + _storage_problems(world)


def _num_kept(world: World) -> int:
    return sum(each.view.state == "COMPLETED" for each in world.experiment.checkpoints())


def _storage_problems(world: World) -> list[str]:
    """Return the drafts of checkpoints that are left in the shared folder."""
    return [f"left: {path}" for path in world.place.shared.glob("checkpoints/.part-*")]


def _gang_problems(world: World, scenario: Scenario) -> list[str]:
    lives = sorted(world.watch.lives.values(), key=lambda life: life.first_s)
    found = []
    if world.watch.overlaps_s > scenario.overlap_s:
        found.append(f"two gangs were alive at once for {world.watch.overlaps_s:.1f} s")
    if len(lives) != scenario.gangs:
        found.append(f"got {len(lives)} gangs, expected {scenario.gangs}")
    if scenario.leaves and len(lives) > 1 and lives[0].machines == lives[1].machines:
        found.append("the second gang was where the first was")
    if scenario.ends_s is not None and lives:
        ended_s = lives[0].last_s - world.fault_s
        if not scenario.ends_s[0] <= ended_s <= scenario.ends_s[1]:
            found.append(f"the first gang ended after {ended_s:.1f} s, not in {scenario.ends_s}")
    return found


if __name__ == "__main__":
    sys.exit(main())
