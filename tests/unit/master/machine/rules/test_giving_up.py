"""What follows for an experiment when an event about it could not be handled."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import (
    CloseRun,
    KillGang,
    State,
)
from det_jupyter.master.machine.model.events import NewsSetAside
from tests.unit.master.machine_world import (
    World,
    registered,
    running,
    submitted,
)


@pytest.mark.parametrize("gone", ["1.1.1", ""])
def test_a_run_of_an_experiment_that_is_given_up_is_killed_unless_it_is_gone(gone: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running())
    commands = world.tell(NewsSetAside(experiment_id=1, what="x", is_fatal=True, gone=gone))
    kill, close = KillGang(allocation_id="1.1.1"), CloseRun(allocation_id="1.1.1")
    assert commands == [world.order(close if gone else kill)]
    assert world.experiment().state is (State.ERROR if gone else State.STOPPING_ERROR)
