"""A view's state in parts, of which the front end makes it whole again.

A search has a row for each of its trials, and few of a thousand change between two states. The
slots of a large cluster change seldom, too.

    shown          all but the rest, each time
    cluster        slots and queue
    rows           all rows, as they were some time ago
    changed_rows   those that have become different since, instead of those
"""

from __future__ import annotations

from typing import Any

from det_jupyter.view.model.search_state import Row
from det_jupyter.view.model.view_state import ViewState

_MIN_CHANGED = 32  # fewer changed rows than this are never worth sending all again


def parts_of(state: ViewState, sent: list[Row]) -> dict[str, Any]:
    """Return the parts that make up `state`, for a front end that has the rows `sent`.

    `rows` is `sent` itself if they are still what `changed_rows` refers to.
    """
    search, cluster = state["search"], state["cluster"]
    shown = {**state, "cluster": None}
    if search is None:
        return {"shown": shown, "cluster": cluster, "rows": [], "changed_rows": []}
    rows = search["rows"]
    known = {row["id"]: row for row in sent}
    changed = [row for row in rows if known.get(row["id"]) != row]
    shown["search"] = {**search, "rows": []}
    parts = {"shown": shown, "cluster": cluster}
    if len(changed) > max(_MIN_CHANGED, len(sent) // 8):
        return {**parts, "rows": rows, "changed_rows": []}
    return {**parts, "rows": sent, "changed_rows": changed}
