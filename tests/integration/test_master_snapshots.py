"""Snapshots of the machine are frequent enough for a fast restart, and rare enough to be cheap."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from det_jupyter.contract.messages import Activate, Pause, StartGang
from det_jupyter.master.machine.machine import Machine, ToAgent
from det_jupyter.master.machine.model.events import Event
from det_jupyter.master.service.committing import transaction as transactions
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.committing.transaction import Transaction
from det_jupyter.master.service.storing.log_patterns import Matcher
from det_jupyter.master.service.storing.store import Store
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    submitted,
    validated,
)

LEAST, TRIALS = 20, 110  # a fifth of the trials is more than the minimum of events


@pytest.mark.parametrize("events_per_trial", [3, pytest.param(5, marks=pytest.mark.long)])
def test_snapshots_come_in_even_steps_however_many_events_a_trial_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events_per_trial: int
) -> None:
    monkeypatch.setattr(transactions, "_SNAPSHOT_EVERY", LEAST)  # a tenth of what it is
    store = Store(tmp_path / "det.sqlite3")
    machine, taken = Machine(), [0]

    def tell(event: Event) -> list[str]:
        with store.transaction():
            transaction = Transaction(machine, store, float(machine.state.seq), Matcher())
            transaction.handle(event)
        if store.history.snapshot_seq != taken[-1]:
            taken.append(store.history.snapshot_seq)
        commands = (order.command for order in transaction.commands if isinstance(order, ToAgent))
        return [c.plan.allocation_id for c in commands if isinstance(c, StartGang)]

    searcher = {"name": "random", "metric": "error", "max_length": {"batches": 100}}
    tell(registered(slots=4))
    waiting = tell(submitted(slots=1, searcher=searcher | {"max_trials": TRIALS}))
    while waiting:
        run = waiting.pop()
        metrics = [validated(step, 0.5, run) for step in range(events_per_trial - 3)]
        for event in (*metrics, *completed(100, run), exited(run, codes={0: 0})):
            waiting += tell(event)
    gaps = [later - earlier for earlier, later in pairwise(taken)]
    assert min(gaps) >= LEAST
    assert max(gaps) <= 0.2 * TRIALS + 1
    assert restore_machine(store).dump() == machine.dump()
    store.close()


def test_what_an_older_version_called_paused_while_it_held_slots_is_pausing(
    tmp_path: Path,
) -> None:
    world = World()
    world.tell(registered(slots=4), submitted(slots=2), *running(), Pause(experiment_id=1))
    world.tell(submitted(slots=2), *running("2.2.1"), Pause(experiment_id=2), exited("2.2.1"))
    stored = world.machine.dump().replace("PAUSING", "PAUSED")
    store = Store(tmp_path / "det.sqlite3")
    with store.transaction():
        store.history.add_snapshot(world.machine.state.seq, stored)
    read = restore_machine(store)
    store.close()
    assert read.dump() == world.machine.dump()


def test_a_snapshot_of_an_older_version_has_times_elapsed_that_make_sense(tmp_path: Path) -> None:
    """It has the time that each trial held slots, but not that of the experiment."""
    world = World()
    world.tell(registered(slots=4), submitted(slots=2), *running())
    world.tell(Pause(experiment_id=1), exited())
    world.tell(Activate(experiment_id=1), *running("1.1.2"))
    held_s = world.experiment().held_s
    world.tell(*completed(100, "1.1.2"), exited("1.1.2"))
    whole = world.experiment().held_s
    searcher = {"name": "random", "metric": "error", "max_length": {"batches": 9}, "max_trials": 2}
    world.tell(submitted(slots=2, searcher=searcher), *running("2.2.1"), *running("2.3.1"))
    both = world.experiment(2).held_since
    store = Store(tmp_path / "det.sqlite3")
    state = json.loads(world.machine.dump())
    for experiment in state["experiments"].values():
        del experiment["held_s"], experiment["held_since"]
    for trial in state["trials"].values():
        del trial["held_s"]
    with store.transaction():
        store.history.add_snapshot(state["seq"], json.dumps(state))
    read = restore_machine(store).state
    store.close()
    assert 0 < held_s < whole == read.experiments[1].held_s == read.trials[1].held_s
    assert read.experiments[1].held_since is None
    assert (read.experiments[2].held_s, read.experiments[2].held_since) == (0.0, both)
