"""Several changes of the queue in one event: all are made, or none."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import ChangeQueue, QueueChange, SetPools
from det_jupyter.errors import ConfigError
from tests.problems import said
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    registered,
    running,
    submitted,
)

NIGHT: dict[str, Any] = {
    "pool_name": "night", "agents": ["none"], "scheduler": {"type": "fair_share"},
}  # fmt: skip


@pytest.fixture
def world() -> World:
    return World()


def changes(*given: tuple[int, str, Any]) -> ChangeQueue:
    """Return the event for changes such as `(3, "priority", 10)`."""
    return ChangeQueue(
        changes=[
            QueueChange.model_validate(
                {"where": f"{i}.{field}", "request": request(i, field, value)}
            )
            for i, field, value in given
        ]
    )


def request(experiment_id: int, field: str, value: Any) -> dict[str, Any]:
    is_move = field in ("ahead_of", "behind")
    kind = "move_in_queue" if is_move else "change_resources"
    return {"kind": kind, "experiment_id": experiment_id, field: value}


def order(world: World) -> list[int]:
    return [request.group for request in world.machine.queue.snapshot("default").order]


def test_all_changes_are_made_in_their_order(world: World) -> None:
    world.tell(*(submitted() for _ in range(4)))
    world.tell(changes((4, "priority", 10), (3, "ahead_of", 4), (1, "weight", 2.0)))
    assert order(world) == [3, 4, 1, 2]
    assert world.experiment(3).priority == 10
    assert world.experiment(1).weight == 2.0


def test_with_one_mistake_nothing_is_changed_and_all_mistakes_are_reported(world: World) -> None:
    world.tell(SetPools(pools=[{"pool_name": "default"}, NIGHT]))
    world.tell(*(submitted(slots=0, resources={"priority": 42}) for _ in range(3)))
    before = world.machine.dump()
    with pytest.raises(ConfigError) as refusal:
        world.tell(
            changes(
                (1, "resource_pool", "night"),
                (3, "priority", 100),
                (3, "weight", -1.0),
                (99, "weight", 2.0),
                (99, "priority", 2),
                (3, "resource_pool", "nigth"),
                (3, "behind", 3),
                (3, "ahead_of", 1),
                (2, "resource_pool", "night"),
                (2, "ahead_of", 1),
            )
        )
    assert said(refusal.value.problems) == [
        "3.priority: got 100, expected a number from 1 to 99",
        "3.weight: got -1, expected a number from 0.001 to 1000",
        "99.weight: there is no experiment 99",
        "3.resource_pool: got 'nigth'; there is no such pool, there are: default, night",
        "3.behind: experiment 3 cannot be moved relative to itself",
        "3.ahead_of: experiment 3 queues in pool default, experiment 1 in pool night; only within "
        "a pool is there an order",
        "2.ahead_of: pool night shares its slots by fair_share: there is no order to change; "
        "change the experiment's weight",
    ]
    assert world.machine.dump() == before


def test_an_experiment_that_is_over_is_reported_once(world: World) -> None:
    world.tell(registered(slots=2), submitted(), submitted())
    world.tell(*running(), *completed(), exited())
    with pytest.raises(ConfigError) as refusal:
        world.tell(changes((2, "ahead_of", 1), (1, "priority", 5)))
    assert said(refusal.value.problems) == ["2.ahead_of: experiment 1 is over (completed)"]


def test_a_priority_and_a_place_among_others_must_agree(world: World) -> None:
    world.tell(submitted(), submitted(resources={"priority": 10}))
    with pytest.raises(ConfigError) as refusal:
        world.tell(changes((1, "priority", 5), (1, "behind", 2)))
    assert said(refusal.value.problems) == [
        "1.behind: experiment 1 would take priority 10 of experiment 2, and 1.priority is 5; "
        "give one of the two"
    ]
    world.tell(changes((1, "priority", 10), (1, "behind", 2)))
    assert order(world) == [2, 1]
