"""Each problem of a change of the queue is found before anything is changed."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import ChangeResources, MoveInQueue, SetPools
from det_jupyter.contract.values.sizes import MAX_SLOTS
from det_jupyter.errors import ConfigError
from det_jupyter.master.machine.model.events import ClustersChanged
from det_jupyter.master.machine.rules.queue_checks import (
    PoolAndPriority,
    anchor_id_of,
    find_move_problem,
    find_pool_problem,
    find_value_problems,
)
from tests.unit.master.machine_world import World, registered, submitted

FAIR = {"pool_name": "fair", "agents": ["small"], "scheduler": {"type": "fair_share"}}


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(registered(slots=4), submitted(slots=2), submitted(slots=2))
    world.tell(SetPools(pools=[FAIR]), registered(slots=1, agent_id="small"))
    return world


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"priority": 1}, []),
        ({"priority": 99}, []),
        ({"priority": 0}, ["priority"]),
        ({"priority": 100}, ["priority"]),
        ({"weight": 0.0}, ["weight"]),
        ({"max_slots": 2}, []),
        ({"max_slots": "none"}, []),
        ({"max_slots": 1}, ["max_slots"]),  # a trial has two
        ({"max_slots": MAX_SLOTS}, []),
        ({"max_slots": MAX_SLOTS + 1}, ["max_slots"]),
        ({"resource_pool": "default"}, []),
        ({"resource_pool": "night"}, ["resource_pool"]),
        ({"resource_pool": "fair"}, [""]),  # it has one slot
        ({"priority": 0, "weight": 0.0}, ["priority", "weight"]),
    ],
)
def test_each_value_has_its_bounds(
    world: World, change: dict[str, Any], fields: list[str]
) -> None:
    request = ChangeResources(experiment_id=1, **change)
    found = find_value_problems(world.machine.state, world.experiment(1), request)
    assert [field for field, _ in found] == fields


def _possible(world: World, slots: int, *, is_single_agent: bool = False) -> bool:
    state = world.machine.state
    return not find_pool_problem(state, "default", slots, is_single_agent=is_single_agent)


def test_a_pool_with_a_cluster_may_grow_by_nodes_of_the_size_of_those_that_are_there(
    world: World,
) -> None:
    assert [slots for slots in range(20) if _possible(world, slots)] == [0, 1, 2, 3, 4]
    world.tell(ClustersChanged(names=["fair", "ray"]))
    assert _possible(world, 1000)  # how large its nodes are is unknown
    node = registered(slots=8, agent_id="ray-a", port=1)
    world.tell(node.model_copy(update={"cluster": "ray"}))
    assert [slots for slots in range(5, 30) if _possible(world, slots)] == [5, 6, 7, 8, 16, 24]
    assert not _possible(world, 16, is_single_agent=True)
    world.tell(ClustersChanged(names=[]))
    assert not _possible(world, 16)


@pytest.mark.parametrize(
    ("entry", "anchor", "problem"),
    [
        (PoolAndPriority("default", 42), PoolAndPriority("default", 42), None),
        (PoolAndPriority("default", 42), PoolAndPriority("default", 10), None),
        (PoolAndPriority("default", 10, "1.priority"), PoolAndPriority("default", 10), None),
        (
            PoolAndPriority("default", 9, "1.priority"),
            PoolAndPriority("default", 10),
            "1.priority is 9",
        ),
        (
            PoolAndPriority("default", 42),
            PoolAndPriority("fair", 42),
            "only within a pool is there an order",
        ),
        (
            PoolAndPriority("fair", 42),
            PoolAndPriority("fair", 42),
            "shares its slots by fair_share",
        ),
    ],
)
def test_an_experiment_is_moved_within_a_pool_with_an_order(
    world: World, entry: PoolAndPriority, anchor: PoolAndPriority, problem: str | None
) -> None:
    found = find_move_problem(world.machine.state, 1, 2, {1: entry, 2: anchor})
    assert found is None if problem is None else problem in (found or "")


def test_an_experiment_is_not_moved_relative_to_itself(world: World) -> None:
    entries = {1: PoolAndPriority("default", 42)}
    found = find_move_problem(world.machine.state, 1, 1, entries)
    assert found == "experiment 1 cannot be moved relative to itself"


@pytest.mark.parametrize("sides", [{}, {"ahead_of": 2, "behind": 3}])
def test_a_move_names_one_other_experiment(sides: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give one of ahead_of and behind"):
        anchor_id_of(MoveInQueue(experiment_id=1, **sides))
    assert anchor_id_of(MoveInQueue(experiment_id=1, behind=3)) == 3
    assert anchor_id_of(MoveInQueue(experiment_id=1, ahead_of=2)) == 2
