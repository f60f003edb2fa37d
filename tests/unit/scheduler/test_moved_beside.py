"""Moves in the queue: where a group comes, and that nothing else changes its order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.scheduler.model import Group
from det_jupyter.scheduler.snapshot import moved_beside


def group(number: int, priority: int = 42, position: float | None = None) -> Group:
    return Group(
        id=number, priority=priority, position=float(number) if position is None else position
    )


def moved(
    groups: list[Group], own: int, anchor: int, *, is_ahead: bool, newest: int = 0
) -> tuple[list[Group], list[Group]]:
    """Return the groups that changed, and all as they are then."""
    by_id = {each.id: each for each in groups}
    newest = newest or max(by_id)
    changed = moved_beside(by_id[own], by_id[anchor], groups, is_ahead=is_ahead, newest=newest)
    return changed, list({**by_id, **{each.id: each for each in changed}}.values())


def order(groups: list[Group], priority: int = 42) -> list[int]:
    lane = [each for each in groups if each.priority == priority]
    return [each.id for each in sorted(lane, key=lambda each: (each.position, each.id))]


@pytest.mark.parametrize(
    ("own", "anchor", "is_ahead", "position", "expected"),
    [
        (3, 1, True, 0.5, [3, 1, 2, 4]),
        (3, 1, False, 1.5, [1, 3, 2, 4]),
        (4, 3, True, 2.5, [1, 2, 4, 3]),
        (1, 4, False, 8.0, [2, 3, 4, 1]),  # between the last one and the next to come
        (1, 2, True, 1.5, [1, 2, 3, 4]),
        (2, 1, False, 2.0, [1, 2, 3, 4]),
    ],
)
def test_a_move_beside_another_takes_a_number_between_neighbours(
    own: int, anchor: int, is_ahead: bool, position: float, expected: list[int]
) -> None:
    groups = [group(number) for number in (4, 2, 1, 3)]
    changed, after = moved(groups, own, anchor, is_ahead=is_ahead, newest=11)
    assert changed == [group(own, position=position)]
    assert order(after) == expected


def test_it_takes_the_priority_of_the_one_beside_which_it_comes() -> None:
    groups = [group(1, 10), group(2, 10), group(3, 42), group(4, 42)]
    changed, after = moved(groups, 4, 1, is_ahead=False)
    assert changed == [group(4, 10, position=1.5)]
    assert (order(after, 10), order(after, 42)) == ([1, 4, 2], [3])


def test_where_no_number_is_left_the_lane_is_spread_and_stays_ahead_of_new_ones() -> None:
    groups = [group(1, position=5.0), group(2, position=5.0), group(3), group(9, 10)]
    changed, after = moved(groups, 3, 2, is_ahead=True, newest=9)
    assert {each.id for each in changed} == {1, 2, 3}
    assert order(after) == [1, 3, 2]
    assert all(9 <= each.position < 10 for each in changed)


moves = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=80)


@settings(max_examples=60)
@given(moves, st.lists(st.sampled_from([10, 42]), min_size=6, max_size=6))
def test_after_any_moves_the_order_is_that_of_a_list(
    steps: list[tuple[int, int, bool]], priorities: list[int]
) -> None:
    groups = [group(number + 1, priority) for number, priority in enumerate(priorities)]
    lanes = {priority: order(groups, priority) for priority in (10, 42)}
    for own, anchor, is_ahead in steps:
        own, anchor = own + 1, anchor + 1
        if own == anchor:
            continue
        _, groups = moved(groups, own, anchor, is_ahead=is_ahead)
        for lane in lanes.values():
            if own in lane:
                lane.remove(own)
        lane = next(lane for lane in lanes.values() if anchor in lane)
        lane.insert(lane.index(anchor) + (not is_ahead), own)
        for priority, expected in lanes.items():
            assert order(groups, priority) == expected
        assert all(each.position < 7 for each in groups)  # one that comes now is the last
        newcomer = group(7, next(each.priority for each in groups if each.id == anchor))
        assert order([*groups, newcomer], newcomer.priority)[-1] == 7


def test_a_pair_that_is_moved_for_ever_never_runs_out_of_numbers() -> None:
    groups = [group(1), group(2), group(3)]
    for turn in range(200):
        own, other = (1, 2) if turn % 2 else (2, 1)
        _, groups = moved(groups, own, other, is_ahead=False)
        _, groups = moved(groups, 3, other, is_ahead=True)
        assert order(groups) == [3, other, own]
