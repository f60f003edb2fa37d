"""Places that experiments are sent to: what is due, in turn, and what happens after failures."""

from __future__ import annotations

import pytest

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.config.trackers import parse_trackers
from det_jupyter.master.service.tracker_places import Place, Places


def tracker(uri: str = "http://a:1", **changes: object) -> Tracker:
    entry = {"type": "mlflow", "tracking_uri": uri} | changes
    return parse_trackers({"trackers": [entry]}).trackers[0].tracker


def place(**waiting: float) -> Place:
    rows = {int(name.removeprefix("row")): at for name, at in waiting.items()}
    return Place(tracker=tracker(), variables={}, waiting=rows)


@pytest.mark.parametrize(
    ("waiting", "next_at", "now", "expected"),
    [
        ({}, 0.0, 10.0, False),
        ({"row1": 5.0}, 0.0, 4.9, False),
        ({"row1": 5.0}, 0.0, 5.0, True),
        ({"row1": 50.0, "row2": 5.0}, 0.0, 5.0, True),
        ({"row1": 5.0}, 6.0, 5.9, False),
        ({"row1": 5.0}, 6.0, 6.0, True),
    ],
)
def test_a_place_is_due_when_it_and_one_of_its_rows_are(
    waiting: dict[str, float], next_at: float, now: float, expected: bool
) -> None:
    one = place(**waiting)
    one.next_at = next_at
    assert one.is_due(now) == expected


def test_rows_take_turns_and_those_that_are_not_due_are_left_out() -> None:
    one = place(row1=0.0, row2=9.0, row3=0.0)
    assert one.take_due(5.0) == [1, 3]
    assert list(one.waiting) == [2, 1, 3]
    assert one.take_due(9.0) == [2, 1, 3]


def test_pauses_after_failures_grow_until_the_place_is_reached() -> None:
    one, pauses = place(row1=0.0), []
    for _ in range(10):
        one.fail("down", 100.0)
        pauses.append(one.next_at - 100.0)
    assert pauses[0] < pauses[1] < pauses[2]
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] == 300.0
    one.announced = {7}
    assert one.recover() == {7}
    assert (one.attempts, one.next_at, one.problem, one.announced) == (0, 0.0, "", set())
    one.fail("down", 100.0)
    assert one.next_at - 100.0 == pauses[0]


def test_a_problem_is_new_once() -> None:
    one = place()
    told = [one.fail(problem, 0.0) for problem in ("a", "a", "b", "b", "a")]
    assert told == [True, False, True, False, True]


def test_one_place_is_what_has_the_same_entry_and_variables() -> None:
    places = Places()
    first = places.join(1, tracker(), {"A": "x"})
    assert places.join(2, tracker(name="mine"), {"A": "x"}) is first  # its name is no part of it
    others = [
        places.join(3, tracker(), {"A": "y"}),
        places.join(4, tracker("http://b:1"), {"A": "x"}),
    ]
    assert list(places) == [first, *others]
    assert [places.of(number) for number in (1, 2, 3, 4, 5)] == [first, first, *others, None]


def test_a_row_waits_at_one_place_only() -> None:
    places = Places()
    before = places.join(1, tracker(), {})
    before.waiting |= {1: 0.0, 2: 0.0}
    assert places.join(1, tracker(), {}) is before
    assert list(before.waiting) == [1, 2]
    after = places.join(1, tracker("http://b:1"), {})
    assert places.of(1) is after
    assert list(before.waiting) == [2]


def test_nothing_of_a_row_that_has_left_is_sent() -> None:
    places = Places()
    one = places.join(1, tracker(), {})
    one.waiting[1] = 0.0
    places.leave(1)
    places.leave(1)
    assert (places.of(1), one.waiting) == (None, {})


def test_a_master_waits_for_what_can_be_sent_only() -> None:
    places = Places()
    one = places.join(1, tracker(), {})
    assert not places.is_sending(5.0)
    one.waiting[1] = 9.0
    assert (places.is_sending(8.0), places.is_sending(9.0)) == (False, True)
    one.fail("down", 0.0)
    assert not places.is_sending(1000.0)


def test_a_place_that_repeatedly_cannot_be_reached_is_a_problem_while_something_waits() -> None:
    places = Places()
    one = places.join(1, tracker(name="mine"), {})
    one.waiting[1] = 0.0
    told = []
    for _ in range(6):
        told.append(places.problems())
        one.fail("it is down", 0.0)
    assert told[:2] == [[], []]
    assert told[-1] == ["tracker mine: it is down; it is tried again"]
    one.waiting.clear()
    assert places.problems() == []
