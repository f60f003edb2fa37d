"""What follows for an experiment when an event about it could not be handled."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import CloseRun, Kill, KillGang, KillTrial, State
from det_jupyter.master.machine.model.events import ClockStepped, ContentSetAside, Event
from det_jupyter.master.machine.rules.giving_up import experiment_of
from tests.unit.master.machine_world import World, registered, running, started, submitted


@pytest.mark.parametrize("gone", ["1.1.1", ""])
def test_a_run_of_an_experiment_that_is_given_up_is_killed_unless_it_is_gone(gone: str) -> None:
    world = World()
    world.tell(registered(), submitted(), *running())
    commands = world.tell(ContentSetAside(experiment_id=1, what="x", is_fatal=True, gone=gone))
    kill, close = KillGang(allocation_id="1.1.1"), CloseRun(allocation_id="1.1.1")
    assert commands == [world.order(close if gone else kill)]
    assert world.experiment().state is (State.ERROR if gone else State.STOPPING_ERROR)


@pytest.mark.parametrize(
    ("event", "experiment_id"),
    [
        (Kill(experiment_id=7), 7),  # also if there is none
        (KillTrial(trial_id=1), 1),
        (KillTrial(trial_id=9), None),
        (started("1.1.1"), 1),
        (started("1.1.2"), None),  # not its present run
        (ClockStepped(by_s=1.0), None),
    ],
)
def test_the_experiment_that_an_event_is_about(event: Event, experiment_id: int | None) -> None:
    world = World()
    world.tell(registered(), submitted())
    assert experiment_of(world.machine.state, event) == experiment_id
