"""The time that runs hold slots is counted."""

from __future__ import annotations

from det_jupyter.contract.messages import (
    Kill,
)
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    submitted,
)


def test_a_run_uses_its_slots_as_long_as_it_takes() -> None:
    world = World()
    world.tell(registered(), submitted(slots=2), *running())
    began = world.allocation().started_at
    assert began is not None
    world.now = began + 9.0
    world.tell(*completed(), exited(codes={0: 0, 1: 0}))
    assert world.trial().slot_seconds == 2 * (world.now - began)


def test_a_clock_that_is_set_back_uses_no_slots() -> None:
    world = World()
    world.tell(registered(), submitted(slots=2), *running())
    began = world.allocation().started_at
    assert began is not None
    world.now = began - 100.0
    world.tell(Kill(experiment_id=1), exited())
    assert world.trial().slot_seconds == 0.0
