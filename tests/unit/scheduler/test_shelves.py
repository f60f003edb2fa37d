"""A shelf of agents finds what a plain look at all of them finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.scheduler.deciding.shelves import Place, Shelf

SECTIONS = [("cpu", 2), ("cpu", 8), ("cuda", 8)]
places = st.none() | st.tuples(st.sampled_from(SECTIONS), st.integers(0, 3))
changes = st.lists(st.tuples(st.sampled_from("abcdef"), places, st.booleans()), max_size=40)


@given(changes)
def test_a_shelf_is_a_sorted_look_at_all_agents(
    given_changes: list[tuple[str, Place | None, bool]],
) -> None:
    known: dict[str, Place] = {}
    shelf = Shelf(known.get)
    for agent_id, place, is_looked_at in given_changes:
        known.pop(agent_id, None)
        if place is not None:
            known[agent_id] = place
        shelf.touch(agent_id)
        if is_looked_at:
            check(shelf, known)
    check(shelf, known)


def check(shelf: Shelf, known: dict[str, Place]) -> None:
    present = {section for section, _ in known.values()}
    by_size = [("cpu", 8), ("cuda", 8), ("cpu", 2)]
    for section in SECTIONS:
        rising = sorted((level, id) for id, (own, level) in known.items() if own == section)
        falling = sorted(rising, key=lambda found: (-found[0], found[1]))
        for least in (0, 2):
            assert list(shelf.rising(section, least)) == [f for f in rising if f[0] >= least]
            assert list(shelf.falling(section, least)) == [f for f in falling if f[0] >= least]
        if rising:
            assert shelf.top(section) == rising[-1][0]
    assert shelf.sections() == [section for section in by_size if section in present]


def test_every_question_sees_the_last_change() -> None:
    section = ("cpu", 2)
    for ask, expected in (
        (lambda shelf: shelf.sections(), [section]),
        (lambda shelf: list(shelf.rising(section)), [(1, "a")]),
        (lambda shelf: list(shelf.falling(section)), [(1, "a")]),
        (lambda shelf: shelf.top(section), 1),
    ):
        known: dict[str, Place] = {}
        shelf = Shelf(known.get)
        assert shelf.sections() == []
        known["a"] = (section, 1)
        shelf.touch("a")
        assert ask(shelf) == expected
