"""Small parts of a pool's pass and of its reasons, each asked for exactly."""

from __future__ import annotations

import pytest

from det_jupyter.scheduler.board import Board
from det_jupyter.scheduler.reasons.sentence import latest_leaving
from tests.unit.scheduler.pool_world import FAIR, PRIORITY, ask, hold, make_pool
from tests.unit.scheduler.reasons_world import NOON, World, gang


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
    known = {str(trial): limit for trial, limit in enumerate(limits) if limit is not None}
    gangs = [gang(trial, 3, {"a": [trial]}) for trial in range(len(limits))]
    assert latest_leaving(World(limits=known), gangs) == told
