"""What-ifs: what starts after changes, and how often the scheduler decides for that."""

from __future__ import annotations

import pytest

from det_jupyter.scheduler.decide import decide
from det_jupyter.scheduler.model import Decisions, Group, PoolRules
from det_jupyter.scheduler.reasons import PoolSurvey, whatif, why_waiting
from det_jupyter.scheduler.reasons.whatif import PoolChange, WhatIf
from det_jupyter.scheduler.snapshot import Snapshot
from tests.unit.scheduler.reasons.reasons_world import World, agent, ask, gang, groups


def two_holders() -> World:
    """Trials 7 and 8 hold 2 slots each of 4; trials 9 and 10 need 4 and 2."""
    return World(
        agents=[agent("a", 4)],
        groups=groups(3, 4, 5, 6),
        running=[gang(7, 3, {"a": [0, 1]}), gang(8, 4, {"a": [2, 3]})],
        queue=[ask(9, 5, 4), ask(10, 6, 2)],
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times for which the scheduler was asked."""
    times = list[float]()

    def counted(snapshot: Snapshot, now: float) -> Decisions:
        times.append(now)
        return decide(snapshot, now)

    monkeypatch.setattr(whatif, "decide", counted)
    return times


def test_a_request_starts_after_as_many_changes_as_it_needs() -> None:
    pool = WhatIf(two_holders().pool().snapshot(), two_holders())
    ends = [PoolChange(ends=("7",)), PoolChange(ends=("8",)), PoolChange(ends=("9",))]
    assert [pool.steps(name, ends) for name in ("9", "10")] == [2, 3]
    assert pool.steps("9", ends[:1]) is None


def test_questions_that_begin_alike_share_what_was_decided(asked: list[float]) -> None:
    pool = WhatIf(two_holders().pool().snapshot(), two_holders())
    first, second = PoolChange(ends=("7",)), PoolChange(ends=("8",))
    pool.steps("9", [first, second])
    pool.steps("10", [first, second])
    pool.after(first)
    assert len(asked) == 2
    pool.after(first, PoolChange(goes=(4,)))
    assert len(asked) == 3


def test_no_more_is_asked_than_until_it_starts(asked: list[float]) -> None:
    pool = WhatIf(two_holders().pool().snapshot(), two_holders())
    assert (
        pool.steps("9", [PoolChange(goes=(3,)), PoolChange(goes=(4,)), PoolChange(goes=(6,))]) == 2
    )
    assert len(asked) == 2


def test_a_second_reason_of_the_same_shape_asks_little_more(asked: list[float]) -> None:
    world = two_holders()
    world.queue = [*(ask(i, 5, 2) for i in range(20, 30)), ask(40, 6, 2)]
    pool = world.pool()
    pool.decide(world.now)
    survey = PoolSurvey(pool.snapshot(), world)
    why_waiting(survey, "28")
    first = len(asked)
    why_waiting(survey, "29")
    assert len(asked) - first < first / 2


def test_those_that_are_asked_to_leave_save_and_queue_again() -> None:
    world = World(
        agents=[agent("a", 2)],
        groups=[Group(id=3, priority=50, position=3.0), Group(id=5, position=5.0)],
        rules=PoolRules(preemption=True),
        running=[gang(7, 3, {"a": [0, 1]})],
        queue=[ask(9, 5, 2)],
    )
    after = WhatIf(world.pool().snapshot(), world).after(PoolChange())
    assert (after.started, after.asked) == ({"9"}, {"9": ["7"]})
    again = after.after(PoolChange(ends=("9",)))
    assert again.started == {"7"}
