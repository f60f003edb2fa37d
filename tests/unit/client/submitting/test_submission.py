"""Checks of the slots and the pool that an experiment requests, before it is submitted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.submitting.submission import find_slot_problems
from det_jupyter.contract.messages import AgentStatus, PoolStatus, SlotStatus
from det_jupyter.errors import Problem
from tests.problems import said
from tests.unit.view.view_samples import slot


def pool(*sizes: int, name: str = "default", connected: bool = True) -> PoolStatus:
    agents = [
        AgentStatus(
            id=f"with-{size}", hostname="here", pool=name, connected=connected,
            slots=[SlotStatus(slot=slot(i), state="free") for i in range(size)],
        )
        for size in sizes
    ]  # fmt: skip
    return PoolStatus(
        name=name, policy="priority", preemption=False, agents=agents, num_slots=sum(sizes),
        num_free=sum(sizes), num_waiting=0,
    )  # fmt: skip


IMPOSSIBLE = (
    "resources.slots_per_trial: got 5, but pool default has 1 agent with 4 slots and 1 agent with "
    "2 slots; values that can run: 1 to 4"
)


class Pools:
    """Says which sizes can run, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, bool]] = []

    def pools(self) -> list[PoolStatus]:
        return [pool(16, name="big"), pool(4, 2)]

    def find_impossibility(
        self, slots: int, *, pool: str, is_single_agent: bool
    ) -> Problem | None:
        self.asked.append((slots, pool, is_single_agent))
        return Problem("", IMPOSSIBLE) if slots == 5 and not pool else None

    def problems_of(self, queue_anyway: bool = False, **resources: Any) -> list[str]:
        """Return what is told of an experiment that asks for this."""
        client = cast("Client", self)
        return said(
            find_slot_problems({"resources": resources}, client, queue_anyway=queue_anyway)
        )


def test_slots_that_a_pool_can_never_give_are_told_before_submission() -> None:
    master = Pools()
    assert master.problems_of(slots_per_trial=5) == [IMPOSSIBLE]
    assert master.problems_of(slots_per_trial=5, resource_pool="big", is_single_node=True) == []
    assert master.problems_of() == []
    assert master.asked == [(5, "", False), (5, "big", True), (1, "", False)]


@pytest.mark.parametrize(
    "resources",
    [{"slots_per_trial": "x"}, {"slots_per_trial": -1}, {"slots_per_trial": True},
     {"resource_pool": 5}],
)  # fmt: skip
def test_what_is_of_the_wrong_kind_is_not_asked_about(resources: dict[str, Any]) -> None:
    master = Pools()
    assert master.problems_of(**resources) == []
    assert not master.asked


def test_a_pool_that_is_not_there_is_told_before_submission() -> None:
    problem = "resources.resource_pool: got 'bg', expected one of big, default"
    assert Pools().problems_of(resource_pool="bg") == [problem]
    assert Pools().problems_of(queue_anyway=True, resource_pool="bg") == [problem]
    assert Pools().problems_of(queue_anyway=True, slots_per_trial=5) == []
