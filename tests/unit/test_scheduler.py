"""Who gets which slots, and what the others are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.scheduler import (
    AgentSlots,
    Holder,
    Placement,
    Request,
    explain,
    find_impossibility,
    schedule,
)


def agent(
    name: str, free: str, total: int | None = None, holders: tuple[Holder, ...] = ()
) -> AgentSlots:
    """`free` lists slot ids: "012"."""
    ids = tuple(int(digit) for digit in free)
    return AgentSlots(
        id=name,
        kind="cpu",
        total=len(ids) if total is None else total,
        free=ids,
        holders=holders,
    )


def ask(name: str, slots: int, *, priority: int = 42, at: float = 0.0) -> Request:
    return Request(id=name, slots=slots, priority=priority, queued_at=at)


def held(experiment_id: int, slots: int, *, is_leaving: bool = False) -> Holder:
    return Holder(
        trial_ids=(experiment_id * 10,),
        experiment_id=experiment_id,
        experiment_name=f"name{experiment_id}",
        slots=slots,
        is_leaving=is_leaving,
    )


@pytest.mark.parametrize(
    ("agents", "queue", "placements"),
    [
        ([], [ask("a", 1)], []),
        ([agent("x", "01")], [], []),
        ([agent("x", "01")], [ask("a", 2)], [Placement("a", "x", (0, 1))]),
        ([agent("x", "01")], [ask("a", 3)], []),
        # Lowest slots first, and each slot once.
        ([agent("x", "0134")], [ask("a", 2), ask("b", 1)],
         [Placement("a", "x", (0, 1)), Placement("b", "x", (3,))]),
        # Best fit: the agent with the fewest free slots where it fits.
        ([agent("x", "0123"), agent("y", "01"), agent("z", "0")], [ask("a", 2)],
         [Placement("a", "y", (0, 1))]),
        # Equal fit: the lowest agent id, however the agents are listed.
        ([agent("y", "01"), agent("x", "01")], [ask("a", 1)], [Placement("a", "x", (0,))]),
        # A gang is never split over agents.
        ([agent("x", "01"), agent("y", "01")], [ask("a", 3)], []),
        # What was placed before counts.
        ([agent("x", "012"), agent("y", "01")], [ask("a", 2), ask("b", 2)],
         [Placement("a", "y", (0, 1)), Placement("b", "x", (0, 1))]),
    ],
)  # fmt: skip
def test_fits(agents: list[AgentSlots], queue: list[Request], placements: list[Placement]) -> None:
    assert schedule(agents, queue) == placements


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ask("b", 2, priority=1, at=9.0), ask("a", 2, priority=2, at=1.0)),
        (ask("b", 2, at=1.0), ask("a", 2, at=2.0)),
        (ask("a", 2, at=1.0), ask("b", 2, at=1.0)),
    ],
    ids=["priority", "then time of asking", "then id"],
)
def test_the_order_of_the_queue(first: Request, second: Request) -> None:
    for queue in ([first, second], [second, first]):
        assert schedule([agent("x", "01")], queue) == [Placement(first.id, "x", (0, 1))]


def test_a_smaller_later_request_goes_ahead_of_one_that_does_not_fit() -> None:
    queue = [ask("large", 4, at=1.0), ask("small", 1, at=2.0)]
    assert schedule([agent("x", "01", total=4)], queue) == [Placement("small", "x", (0,))]


POOLS = st.lists(
    st.sets(st.integers(0, 7)).map(lambda ids: "".join(str(i) for i in sorted(ids))), max_size=4
).map(lambda pool: [agent(f"agent{i}", free) for i, free in enumerate(pool)])
QUEUES = st.lists(
    st.tuples(st.integers(1, 9), st.integers(1, 3), st.integers(0, 3)), max_size=6
).map(
    lambda items: [
        ask(f"r{i}", slots, priority=p, at=float(at)) for i, (slots, p, at) in enumerate(items)
    ]
)


@given(POOLS, QUEUES)
def test_gangs_are_whole_slots_are_free_and_given_once(
    agents: list[AgentSlots], queue: list[Request]
) -> None:
    free = {(a.id, slot) for a in agents for slot in a.free}
    needs = {request.id: request.slots for request in queue}
    for placement in schedule(agents, queue):
        taken = {(placement.agent_id, slot) for slot in placement.slot_ids}
        assert len(taken) == needs.pop(placement.request_id)
        assert taken <= free
        free -= taken


@given(POOLS, QUEUES)
def test_nobody_who_is_left_waiting_fits_into_what_is_left(
    agents: list[AgentSlots], queue: list[Request]
) -> None:
    placements = schedule(agents, queue)
    left = {a.id: len(a.free) for a in agents}
    for placement in placements:
        left[placement.agent_id] -= len(placement.slot_ids)
    placed = {placement.request_id for placement in placements}
    for request in queue:
        if request.id not in placed:
            assert all(request.slots > number for number in left.values())


@given(POOLS, QUEUES, st.randoms(use_true_random=False))
def test_the_decision_does_not_depend_on_how_things_are_listed(
    agents: list[AgentSlots], queue: list[Request], rng: st.DataObject
) -> None:
    expected = schedule(agents, queue)
    rng.shuffle(agents)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    rng.shuffle(queue)  # type: ignore[attr-defined]
    assert schedule(agents, queue) == expected


@pytest.mark.parametrize(
    ("slots", "agents", "sentence"),
    [
        (2, [], "needs 2 slots; no agent is connected yet"),
        (1, [agent("box", "", total=1, holders=(held(3, 1),))],
         "needs 1 slot; 0 of 1 are free; experiment 3 “name3” (trial 30) holds 1; "
         "it starts when experiment 3 ends or is paused"),
        (2, [agent("box", "1", total=2, holders=(held(3, 1),))],
         "needs 2 slots; 1 of 2 is free; experiment 3 “name3” (trial 30) holds 1; "
         "it starts when experiment 3 ends or is paused"),
        (3, [agent("box", "0", total=4, holders=(held(3, 2), held(4, 1)))],
         "needs 3 slots; 1 of 4 is free; experiment 3 “name3” (trial 30) holds 2; "
         "experiment 4 “name4” (trial 40) holds 1; "
         "it starts when experiment 3 ends or is paused"),
        (1, [agent("box", "", total=2, holders=(held(3, 1), held(4, 1)))],
         "needs 1 slot; 0 of 2 are free; experiment 3 “name3” (trial 30) holds 1; "
         "experiment 4 “name4” (trial 40) holds 1; "
         "it starts when experiment 3 or experiment 4 ends or is paused"),
        # The trials of a search come and go: by how many is enough.
        (2, [agent("box", "", total=4, holders=(replace(held(3, 4), trial_ids=(30, 31)),))],
         "needs 2 slots; 0 of 4 are free; experiment 3 “name3” (2 trials) holds 4; "
         "it starts when experiment 3 ends or is paused"),
        (4, [agent("box", "", total=4, holders=(held(3, 2), held(4, 2)))],
         "needs 4 slots; 0 of 4 are free; experiment 3 “name3” (trial 30) holds 2; "
         "experiment 4 “name4” (trial 40) holds 2; "
         "it starts when 4 of these slots are given back"),
        (2, [agent("box", "", total=2, holders=(held(3, 2, is_leaving=True),))],
         "needs 2 slots; 0 of 2 are free; "
         "experiment 3 “name3” (trial 30) holds 2 and is leaving; "
         "it starts when experiment 3 has left"),
        # Of several agents, the one that is nearest to having enough.
        (2, [agent("a", "", total=2, holders=(held(3, 2),)),
             agent("b", "1", total=2, holders=(held(4, 1),))],
         "needs 2 slots; 1 of 2 is free; experiment 4 “name4” (trial 40) holds 1; "
         "it starts when experiment 4 ends or is paused"),
        # It was possible when it was submitted, but that agent is gone.
        (4, [agent("a", "01"), agent("b", "0")],
         "needs 4 slots; the largest agent, a, has 2: it cannot run now"),
    ],
)  # fmt: skip
def test_why_a_request_waits(slots: int, agents: list[AgentSlots], sentence: str) -> None:
    assert explain(slots, agents) == sentence


@pytest.mark.parametrize(
    ("slots", "agents", "sentence"),
    [
        (8, [], None),
        (2, [agent("box", "", total=2)], None),
        (1, [agent("a", "01"), agent("b", "0")], None),
        (8, [agent("box", "01")],
         "resources.slots_per_trial: got 8, but box has 2 cpu slots; values that can run: 1, 2"),
        (2, [agent("box", "0")],
         "resources.slots_per_trial: got 2, but box has 1 cpu slot; values that can run: 1"),
        (20, [agent("box", "", total=16)],
         "resources.slots_per_trial: got 20, but box has 16 cpu slots; "
         "values that can run: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16"),
        (20, [agent("box", "", total=18)],
         "resources.slots_per_trial: got 20, but box has 18 cpu slots; "
         "values that can run: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, …"),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused_with_what_could(
    slots: int, agents: list[AgentSlots], sentence: str | None
) -> None:
    assert find_impossibility(slots, agents) == sentence
