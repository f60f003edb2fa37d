"""Events that masters of former versions have stored are handled: nothing is lost or set aside.

`former_masters/` has all events of six experiments, under a master of protocol 8 and under one of
protocol 13: completed, failed, a search, paused, and two that train when the master is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.messages import State
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.storing.store import Store
from tests.unit.master.machine_invariants import check_machine

FORMER = sorted((Path(__file__).parent / "former_masters").glob("*.jsonl"))


@pytest.fixture(params=FORMER, ids=[path.stem for path in FORMER])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return the store of a former master, without snapshots."""
    store = Store(tmp_path / "det.sqlite3")
    with store.transaction():
        for line in request.param.read_text().splitlines():
            row = json.loads(line)
            store.history.add_event(row["seq"], row["at"], json.dumps(row["event"]))
    yield store
    store.close()


def test_experiments_of_a_former_master_are_as_it_left_them(store: Store) -> None:
    machine = restore_machine(store)
    state = machine.state
    assert store.quarantine.rows() == []
    assert {each.name: each.state for each in state.experiments.values() if each.id < 6} == {
        "ended": State.COMPLETED,
        "failed": State.ERROR,
        "search": State.COMPLETED,
        "paused": State.PAUSED,
        "running": State.ACTIVE,
    }
    assert [each.holds_slots for each in state.trials_of(state.experiments[5])] == [True]
    check_machine(machine)


def test_a_snapshot_after_them_is_read_again(store: Store) -> None:
    machine = restore_machine(store)
    assert (
        Machine(type(machine.state).model_validate_json(machine.dump())).dump() == machine.dump()
    )
