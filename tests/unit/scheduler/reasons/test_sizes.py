"""What a pool can run at all, and how a submit is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.errors import Problem
from det_jupyter.scheduler.model import AgentSlots, PoolRules, Request, Shape
from det_jupyter.scheduler.reasons.sizes import (
    could_run,
    find_impossibility,
    nearest_values,
    values_that_fit,
)
from tests.unit.scheduler.reasons.reasons_world import World, groups

MIXED = PoolRules(allow_heterogeneous_fits=True)


def agents(*sizes: int, kind: str = "cuda") -> list[AgentSlots]:
    return [
        AgentSlots(id=f"{kind}{i}", kind=kind, slots=tuple(range(size)))
        for i, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("offered", "rules", "values"),
    [
        ([], PoolRules(), []),
        (agents(4), PoolRules(), [1, 2, 3, 4]),
        (agents(4, 4, 4), PoolRules(), [1, 2, 3, 4, 8, 12]),
        # Whole agents of one size only: 4 + 2 is no way to get 6.
        (agents(4, 4, 2), PoolRules(), [1, 2, 3, 4, 8]),
        (agents(4, 4, 2), MIXED, [1, 2, 3, 4, 6, 8, 10]),
        (agents(4, 1), MIXED, [1, 2, 3, 4, 5]),
        # The largest first and no second try: 4/6/8 cannot make 12, though 8 + 4 and 6 + 6 could.
        (agents(6, 6, 8), MIXED, [*range(1, 9), 12, 14, 20]),
        (agents(8, 6, 4), MIXED, [*range(1, 9), 12, 14, 18]),
        # Smaller agents can make less than the largest has: that needs no two of them.
        (agents(8, 2, 2), PoolRules(), [*range(1, 9)]),
        (agents(0), PoolRules(), []),
    ],
)
def test_values_that_fit(
    offered: Sequence[AgentSlots], rules: PoolRules, values: Sequence[int]
) -> None:
    assert values_that_fit(offered, rules) == values


def test_kinds_are_never_mixed() -> None:
    both = [*agents(4, kind="cuda"), *agents(4, kind="cpu")]
    assert values_that_fit(both, PoolRules()) == [1, 2, 3, 4]
    assert values_that_fit(both, MIXED) == [1, 2, 3, 4]


def test_a_trial_that_must_stay_on_one_agent_gets_no_more_than_one_has() -> None:
    assert values_that_fit(agents(4, 4), PoolRules(), is_single_agent=True) == [1, 2, 3, 4]


@pytest.mark.parametrize(("slots", "nearest"), [(12, [8, 16]), (20, [16]), (0, [1]), (9, [8, 16])])
def test_the_nearest_values_are_one_below_and_one_above(
    slots: int, nearest: Sequence[int]
) -> None:
    assert nearest_values(slots, [*range(1, 9), 16]) == nearest


@pytest.mark.parametrize(
    ("slots", "offered", "rules", "message"),
    [
        (
            12, agents(8, 8), PoolRules(),
            "got 12, but pool default has 2 agents with 8 slots each; "
            "values that can run: 1 to 8, 16",
        ),
        (
            2, agents(1), PoolRules(),
            "got 2, but pool default has 1 agent with 1 slot; values "
            "that can run: 1",
        ),
        (
            7, agents(4, 2), MIXED,
            "got 7, but pool default has 1 agent with 4 slots and 1 "
            "agent with 2 slots; values that can run: 1 to 4, 6",
        ),
        (
            6, agents(4, 2), PoolRules(),
            "got 6, but pool default has 1 agent with 4 slots and 1 "
            "agent with 2 slots; values that can run: 1 to 4",
        ),
        (
            12, [*agents(8), *agents(4, kind="cpu")], MIXED,
            "got 12, but pool default has 1 agent with 8 cuda slots "
            "and 1 agent with 4 cpu slots; values that can run: 1 to 8",
        ),
        (
            20, agents(8, 4, 2), PoolRules(),
            "got 20, but pool default has 3 agents with 2 to 8 slots; "
            "values that can run: 1 to 8",
        ),
        (
            9, agents(*[8] * 100), PoolRules(),
            "got 9, but pool default has 100 agents with 8 slots each; "
            "values that can run: 1 to 8, then 16 to 800 in steps of 8",
        ),
        (
            1, agents(0), PoolRules(),
            "got 1, but pool default has 1 agent with 0 slots; values "
            "that can run: none but 0",
        ),
        (
            0, agents(4), PoolRules(max_aux_per_agent=0),
            "got 0, but no agent of pool default takes trials without "
            "slots; values that can run: 1 to 4",
        ),
        (16, agents(8, 8), PoolRules(), None),
        (0, agents(8), PoolRules(), None),
        (99, [], PoolRules(), None),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused_with_what_can(
    slots: int, offered: Sequence[AgentSlots], rules: PoolRules, message: str | None
) -> None:
    expected = None if message is None else Problem("resources.slots_per_trial", message)
    assert find_impossibility(slots, "", offered, rules) == expected


def test_a_refusal_names_the_pool_and_that_one_agent_is_asked_for() -> None:
    why = "resources.is_single_node"
    assert find_impossibility(16, why, agents(8, 8), PoolRules(), "gpu") == Problem(
        "resources.slots_per_trial",
        "got 16 on one agent (resources.is_single_node), but pool gpu "
        "has 2 agents with 8 slots each; values that can run on one agent: 1 to 8",
    )


def test_agents_that_it_avoids_are_not_counted() -> None:
    assert could_run(Shape(8, False, frozenset()), agents(8, 4), PoolRules())
    assert not could_run(Shape(6, False, frozenset({"cuda0"})), agents(8, 4), PoolRules())
    assert could_run(Shape(16, False, frozenset()), agents(8, 8), PoolRules())
    assert not could_run(Shape(16, True, frozenset()), agents(8, 8), PoolRules())


@given(
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 6, 8]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["cuda", "cpu"]), min_size=5, max_size=5),
    st.integers(1, 24),
    st.booleans(),
    st.booleans(),
    st.frozensets(st.sampled_from(["0", "1"]), max_size=1),
)
def test_what_can_run_is_what_an_empty_pool_starts(
    sizes: list[int], kinds: list[str], slots: int, single: bool, mixed: bool,
    blocked: frozenset[str],
) -> None:  # fmt: skip
    rules = PoolRules(allow_heterogeneous_fits=mixed)
    offered = [
        AgentSlots(id=str(i), kind=kinds[i], slots=tuple(range(size)))
        for i, size in enumerate(sizes)
    ]
    request = Request(id="1", group=1, slots=slots, is_single_agent=single, blocked=blocked)
    pool = World(agents=offered, groups=groups(1), queue=[request], rules=rules).pool()
    starts = pool.decide(0.0).starts
    shape = Shape(slots, single, blocked)
    assert could_run(shape, offered, rules) is bool(starts)
    if not blocked:
        assert (slots in values_that_fit(offered, rules, single)) is bool(starts)
        assert (find_impossibility(slots, "x" * single, offered, rules) is None) is bool(starts)
