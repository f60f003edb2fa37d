"""Pools, queues, jobs and tasks as others see them, of a machine with two pools."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import ClusterView, SetPools
from det_jupyter.master.views.pool_views import cluster_view, job_entries
from tests.unit.master.machine_world import World, reasons_of, registered, running, submitted

POOLS: list[dict[str, Any]] = [
    {"pool_name": "default"},
    {
        "pool_name": "big",
        "description": "two of them",
        "agents": ["far"],
        "scheduler": {"type": "fair_share"},
        "share_devices": True,
    },
]
RANDOM = {"name": "random", "max_trials": 4, "metric": "error", "max_length": {"batches": 9}}


@pytest.fixture(scope="module")
def world() -> World:
    """Return three experiments in a pool of three slots, and a search in another of one slot."""
    world = World()
    world.tell(SetPools(pools=POOLS), registered(slots=3), registered(slots=1, agent_id="far"))
    for name in ("a", "b", "c"):
        world.tell(submitted(name, slots=2))
    resources = {"resource_pool": "big", "weight": 2, "priority": 7}
    world.tell(submitted("d", slots=1, searcher=RANDOM, resources=resources))
    world.tell(*running("1.1.1"))
    return world


def seen(world: World, limit: int, experiment_id: int | None = None) -> ClusterView:
    return cluster_view(
        world.machine,
        reasons_of(world.machine, world.now).of,
        now=9.0,
        limit=limit,
        experiment_id=experiment_id,
    )


def test_each_pool_has_its_agents_slots_and_rules(world: World) -> None:
    view = seen(world, 9)
    assert (view.at, view.num_waiting) == (9.0, 5)
    assert [pool.model_dump(exclude={"agents"}) for pool in view.pools] == [
        {
            "name": "default", "description": "", "policy": "priority", "preemption": False,
            "default_priority": 42, "share_devices": False, "num_slots": 3, "num_free": 1,
            "num_waiting": 2, "lost": [],
        },
        {
            "name": "big", "description": "two of them", "policy": "fair_share",
            "preemption": False, "default_priority": 42, "share_devices": True, "num_slots": 1,
            "num_free": 0, "num_waiting": 3, "lost": [],
        },
    ]  # fmt: skip
    assert [
        (pool.name, agent.id, agent.hostname, agent.pool, agent.connected, agent.problem)
        for pool in view.pools
        for agent in pool.agents
    ] == [("default", "box", "box", "default", True, ""), ("big", "far", "far", "big", True, "")]
    assert [(agent.num_aux, agent.num_left_slots) for p in view.pools for agent in p.agents] == [
        (0, 0), (0, 0),
    ]  # fmt: skip
    [[used, beside, free], [other]] = [pool.agents[0].slots for pool in view.pools]
    assert used.model_dump(exclude={"slot"}) == {
        "state": "used", "is_draining": False, "allocation_id": "1.1.1", "experiment_id": 1,
        "experiment_name": "a", "trial_id": 1, "rank": 0, "priority": 42, "since": 104.0,
        "processes": [], "lost": None,
    }  # fmt: skip
    assert (beside.trial_id, beside.rank, free.trial_id, free.state) == (1, 1, None, "free")
    assert (other.trial_id, other.rank, other.priority) == (4, 0, 7)


@pytest.mark.parametrize(
    ("limit", "experiment_id", "queue"),
    [
        (9, None, [(2, 0), (3, 1), (5, 0), (6, 1), (7, 2)]),
        (9, 4, [(2, 0), (3, 1), (5, 0), (6, 1), (7, 2)]),
        (2, 4, [(2, 0), (3, 1), (5, 0), (6, 1), (7, 2)]),
        (1, None, [(2, 0), (5, 0)]),
        (1, 1, [(2, 0), (5, 0)]),
        (1, 2, [(2, 0), (5, 0)]),
        (1, 3, [(2, 0), (3, 1), (5, 0)]),
        (1, 4, [(2, 0), (5, 0), (6, 1)]),  # of what is behind as many as of the front
        (1, 99, [(2, 0), (5, 0)]),
    ],
)
def test_the_front_of_each_queue_and_what_is_asked_for(
    world: World, limit: int, experiment_id: int | None, queue: list[tuple[int, int]]
) -> None:
    found = seen(world, limit, experiment_id).queue
    assert [(entry.trial_id, entry.position) for entry in found] == queue


def test_one_in_a_queue_says_what_it_wants(world: World) -> None:
    last = seen(world, 1, 4).queue[-1]
    assert last.model_dump(exclude={"reason", "queued_at"}) == {
        "trial_id": 6, "experiment_id": 4, "experiment_name": "d", "allocation_id": "4.6.1",
        "pool": "big", "slots": 1, "priority": 7, "weight": 2.0, "position": 1,
        "agent_ids": [],
    }  # fmt: skip
    assert (last.queued_at, last.reason.trial_id) == (world.allocation(6).queued_at, 6)


def test_jobs_are_in_the_order_of_their_pools(world: World) -> None:
    jobs = [entry.model_dump(exclude={"created_at"}) for entry in job_entries(world.machine)]
    every = {"state": "ACTIVE", "max_slots": None, "notebook": "digits.ipynb"}
    first = {"pool": "default", "priority": 42, "weight": 1.0}
    assert jobs == [
        every | {
            "experiment_id": 4, "name": "d", "pool": "big", "priority": 7, "weight": 2.0,
            "slots_held": 1, "slots_wanted": 4, "num_running": 1, "num_waiting": 3,
            "jobs_ahead": None,
        },
        every | first | {
            "experiment_id": 1, "name": "a", "slots_held": 2, "slots_wanted": 2, "num_running": 1,
            "num_waiting": 0, "jobs_ahead": 0,
        },
        every | first | {
            "experiment_id": 2, "name": "b", "slots_held": 0, "slots_wanted": 2, "num_running": 0,
            "num_waiting": 1, "jobs_ahead": 0,
        },
        every | first | {
            "experiment_id": 3, "name": "c", "slots_held": 0, "slots_wanted": 2, "num_running": 0,
            "num_waiting": 1, "jobs_ahead": 1,
        },
    ]  # fmt: skip


def test_runs_are_those_with_slots_and_then_the_fronts_of_the_queues(world: World) -> None:
    runs = seen(world, 1).runs
    assert [
        (run.trial_id, run.experiment_name, run.pool, run.agent_ids, run.slots) for run in runs
    ] == [
        (1, "a", "default", ["box"], 2),
        (4, "d", "big", ["far"], 1),
        (2, "b", "default", [], 2),
        (5, "d", "big", [], 1),
    ]
    assert [run.queued_at for run in runs] == [
        world.allocation(trial_id).queued_at for trial_id in (1, 4, 2, 5)
    ]


def test_the_agents_of_a_pool_are_sorted_by_name_and_not_as_they_came() -> None:
    world = World()
    world.tell(*(registered(slots=1, agent_id=name) for name in ("node-10", "node-2", "box")))
    [pool] = seen(world, 9).pools
    assert [agent.id for agent in pool.agents] == ["box", "node-2", "node-10"]
