"""Small parts of a pool's pass and of its reasons, each asked for exactly."""

from __future__ import annotations

from datetime import UTC
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.scheduler.board import Board
from det_jupyter.scheduler.reasons.remedies import latest_leaving
from tests.unit.scheduler.pool_world import FAIR, PRIORITY, ask, hold, make_pool
from tests.unit.scheduler.reasons_world import NOON


def test_a_gang_that_leaves_gives_its_slots_back_on_each_agent() -> None:
    for rules in (PRIORITY, FAIR):
        pool = make_pool(rules, "a:4 b:2 c:2")
        hold(pool, ask("x1", 4), "a:01 b:01")
        hold(pool, ask("x2", 1), "a:2")
        board = Board(pool.snapshot())
        assert board.leave("x1") == {"a": 2, "b": 2}
        assert board.leave("x2") == {"a": 1}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ([NOON + 600], ", at the latest about 12:10"),
        ([NOON + 600, NOON + 1200], ", at the latest about 12:20"),
        ([NOON - 600, NOON - 1200], ", which was due at 11:50"),
        ([NOON], ", which was due at 12:00"),
        ([NOON + 600, None], ""),
        ([None], ""),
    ],
)
def test_until_when_those_who_leave_have_time(limits: list[float | None], told: str) -> None:
    gangs = [SimpleNamespace(request=SimpleNamespace(id=str(i))) for i in range(len(limits))]
    facts = SimpleNamespace(now=NOON, zone=UTC, leaves_by=lambda name: limits[int(name)])
    situation: Any = SimpleNamespace(survey=SimpleNamespace(facts=facts))
    leaving: Any = SimpleNamespace(is_leaving=True, gangs=gangs)
    assert latest_leaving(situation, leaving) == told
    leaving.is_leaving = False
    assert latest_leaving(situation, leaving) == ""
