"""A state in parts: a front end that puts them together has the state again."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.front.answers.state_parts import parts_of
from det_jupyter.view.model.view_state import ViewState


def state(rows: list[dict[str, Any]] | None, **more: Any) -> ViewState:
    search = None if rows is None else {"best": 1, "rows": rows}
    return cast(ViewState, {"name": "x", "search": search, "cluster": {"slots": 1}, **more})


def rows_of(*values: int) -> list[dict[str, Any]]:
    return [{"id": number, "value": value} for number, value in enumerate(values)]


def together(parts: dict[str, Any]) -> dict[str, Any]:
    """Return the state, as labextension/src/model/rows.ts does."""
    shown = {**parts["shown"], "cluster": parts["cluster"]}
    if shown["search"] is not None:
        rows = {row["id"]: row for row in [*parts["rows"], *parts["changed_rows"]]}
        shown["search"] = {**shown["search"], "rows": list(rows.values())}
    return shown


def test_one_trial_has_no_rows() -> None:
    parts = parts_of(state(None), [])
    assert (parts["rows"], parts["changed_rows"]) == ([], [])
    assert parts["shown"] == {"name": "x", "search": None, "cluster": None}
    assert parts["cluster"] == {"slots": 1}


def test_few_changes_are_sent_alone_and_many_with_all() -> None:
    sent = cast(Any, rows_of(*[0] * 400))
    few = rows_of(*[1] * 50, *[0] * 350)
    parts = parts_of(state(few), sent)
    assert parts["rows"] is sent  # what the front end has already
    assert [row["id"] for row in parts["changed_rows"]] == list(range(50))
    many = rows_of(*[1] * 51, *[0] * 349)
    parts = parts_of(state(many), sent)
    assert (parts["rows"], parts["changed_rows"]) == (many, [])


def test_the_state_itself_is_not_changed() -> None:
    given_state = state(rows_of(1, 2))
    parts_of(given_state, [])
    assert given_state == state(rows_of(1, 2))


@given(st.lists(st.lists(st.integers(0, 2), max_size=60), min_size=1, max_size=6))
def test_the_parts_make_up_the_state_whatever_was_sent_before(states: list[list[int]]) -> None:
    sent: Any = []
    longest: list[int] = []
    for values in states:
        values = values + longest[len(values) :]  # trials are added, never taken away
        longest = values
        current = state(rows_of(*values))
        parts = parts_of(current, sent)
        sent = parts["rows"]
        assert together(parts) == current
