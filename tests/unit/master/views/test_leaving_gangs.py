"""A gang that leaves: which ranks it waits for, and what happens when."""

from __future__ import annotations

import pytest

from det_jupyter.contract.messages import Activate, Cancel, Kill, Pause, RanksSeen
from det_jupyter.contract.messages.leaving import Leaving, RankProgress
from det_jupyter.contract.messages.status import State
from det_jupyter.master.machine.model.events import AgentAway
from det_jupyter.master.views.leaving_gangs import leaving_of
from tests.unit.master.machine_world import (
    World,
    exited,
    first_step,
    registered,
    running,
    saved,
    submitted,
)

Where = tuple[int | None, bool, float]  # batch, whether it exchanges, since when


def leaving(world: World, steps: int = 0) -> Leaving | None:
    return leaving_of(world.machine.state, world.trial(), steps)


def left(world: World, steps: int = 0) -> Leaving:
    found = leaving(world, steps)
    assert found is not None
    return found


@pytest.fixture
def world() -> World:
    """Return a trial that trains on two slots."""
    world = World()
    world.tell(registered(), submitted(), *running(), first_step())
    return world


def seen(
    world: World,
    *places: Where,
    checked_at: float | None = None,
    saving_since: float | None = None,
) -> None:
    found = {
        rank: RankProgress(batch=batch, is_exchanging=exchanges, since=since)
        for rank, (batch, exchanges, since) in enumerate(places)
    }
    world.tell(
        RanksSeen(
            allocation_id="1.1.1",
            at=world.now,
            places=found,
            checked_at=checked_at,
            saving_since=saving_since,
        )
    )


def test_a_gang_that_trains_or_waits_does_not_leave(world: World) -> None:
    assert leaving(world) is None
    world.tell(Kill(experiment_id=1), exited(codes={0: 137, 1: 137}))
    assert leaving(world) is None


def test_a_gang_that_was_asked_is_killed_after_the_preemption_timeout(world: World) -> None:
    world.tell(Pause(experiment_id=1))
    found = left(world)
    assert found.asked_at == world.now
    assert found.killed_at == world.now + 3600
    assert (found.then, found.num_slots, found.num_ranks, found.num_trials) == ("pauses", 2, 1, 1)
    assert (found.behind, found.batch, found.preempted_by) == ([], None, None)


def test_a_gang_that_is_killed_was_not_asked(world: World) -> None:
    world.tell(Kill(experiment_id=1))
    found = left(world)
    assert (found.asked_at, found.killed_at, found.then) == (None, None, "ends")


@pytest.mark.parametrize(
    ("order", "then"), [(Pause(experiment_id=1), "pauses"), (Cancel(experiment_id=1), "ends")]
)
def test_what_follows_is_what_was_ordered(world: World, order: Pause | Cancel, then: str) -> None:
    world.tell(order)
    assert left(world).then == then


def test_a_trial_that_is_wanted_again_while_it_leaves_queues(world: World) -> None:
    world.tell(Pause(experiment_id=1), Activate(experiment_id=1))
    assert world.trial().state is State.ACTIVE
    found = leaving(world)
    assert found is None or found.then == "queues"


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([(5, False, 1.0), (6, False, 2.0)], ([0], 5, 1.0)),
        ([(6, False, 1.0), (5, True, 2.0)], ([1], 5, 2.0)),
        ([(5, True, 1.0), (5, False, 2.0)], ([1], 5, 2.0)),  # the other waits for it
        ([(5, True, 3.0), (5, True, 2.0)], ([0, 1], 5, 3.0)),
        ([(None, False, 4.0), (0, False, 1.0)], ([0], None, 4.0)),
        ([(0, False, 4.0), (None, True, 5.0)], ([1], None, 5.0)),
    ],
)
def test_the_ranks_that_have_come_least_far_are_waited_for(
    world: World, places: list[Where], expected: tuple[list[int], int | None, float]
) -> None:
    world.tell(Pause(experiment_id=1))
    seen(world, *places)
    found = left(world)
    assert (found.behind, found.batch, found.since) == expected
    assert found.num_ranks == 2


def test_what_its_code_does_about_it_is_shown(world: World) -> None:
    world.tell(Pause(experiment_id=1))
    seen(world, (5, False, 1.0), (5, False, 1.0), checked_at=7.0, saving_since=8.0)
    found = left(world)
    assert (found.checked_at, found.saving_since) == (7.0, 8.0)


@pytest.mark.parametrize(
    ("checkpoint", "steps", "batch", "num_unsaved"),
    [(None, 0, 0, 0), (None, 30, 20, 30), (None, 30, 35, 35), (20, 30, 35, 15), (20, 10, 15, 0)],
)
def test_what_a_kill_would_lose_is_what_is_not_saved(
    world: World, checkpoint: int | None, steps: int, batch: int, num_unsaved: int
) -> None:
    if checkpoint is not None:
        world.tell(saved(checkpoint))
    world.tell(Pause(experiment_id=1))
    seen(world, (batch, False, 1.0), (batch, False, 1.0))
    found = left(world, steps)
    assert (found.saved_at, found.num_unsaved) == (checkpoint, num_unsaved)


def test_the_experiment_that_gets_the_slots_is_named_if_the_trial_goes_on(world: World) -> None:
    world.tell(Pause(experiment_id=1))
    world.allocation().preempted_by = 7
    assert left(world).preempted_by is None  # it would have left anyway
    world.trial().state = State.ACTIVE
    assert (left(world).preempted_by, left(world).then) == (7, "queues")
    world.trial().is_resting = True
    assert left(world).then == "rests"


def test_an_agent_that_was_away_when_its_ranks_were_asked_is_the_reason(world: World) -> None:
    agent = world.machine.state.agents["box"]
    world.tell(AgentAway(agent_id="box", problem="agent box is frozen"))
    world.tell(Pause(experiment_id=1))
    assert left(world).unreached == "agent box is frozen"
    agent.left_at = left(world).asked_at
    assert left(world).unreached == "agent box is frozen"
    agent.left_at = world.now + 1  # it has got the order before
    assert left(world).unreached == ""
    agent.left_at = 1.0
    agent.problem = ""
    assert left(world).unreached == ""


def test_ranks_of_an_agent_that_is_there_are_reached(world: World) -> None:
    world.tell(Kill(experiment_id=1))
    agent = world.machine.state.agents["box"]
    agent.problem = "it was frozen"
    assert left(world).unreached == ""
    agent.is_away = True
    agent.left_at = world.now + 1
    assert left(world).unreached == "it was frozen"  # a kill is repeated, so it counts always
