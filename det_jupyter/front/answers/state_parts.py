"""Splits a view's state into parts, which the front end merges, so that less is sent.

A search has a row for each of its trials, few of which change between two states. The slots of a
large cluster change seldom, too.

    shown          everything else, each time
    cluster        slots and queue
    rows           all rows, as of an earlier state
    changed_rows   rows that have changed since; they replace those of `rows`
"""

from __future__ import annotations

from typing import Any

from det_jupyter.view.model.search_state import Row
from det_jupyter.view.model.view_state import ViewState

_MIN_CHANGED = 32  # up to so many changed rows, `rows` is never sent again


def parts_of(state: ViewState, sent: list[Row]) -> dict[str, Any]:
    """Return the parts of `state` for a front end that has the rows `sent`.

    `rows` is `sent` itself, or all rows of `state` if many have changed.
    """
    search, cluster = state["search"], state["cluster"]
    shown = {**state, "cluster": None}
    if search is None:
        return {"shown": shown, "cluster": cluster, "rows": [], "changed_rows": []}
    rows = search["rows"]
    before = {row["id"]: row for row in sent}
    changed = [row for row in rows if before.get(row["id"]) != row]
    shown["search"] = {**search, "rows": []}
    parts = {"shown": shown, "cluster": cluster}
    if len(changed) > max(_MIN_CHANGED, len(sent) // 8):
        return {**parts, "rows": rows, "changed_rows": []}
    return {**parts, "rows": sent, "changed_rows": changed}
