"""Converts events that masters up to protocol 8 have stored to their present form.

An event of a request had a kind of its own, and some requests were nested in it:

    {"kind": "move_requested", "experiment_id": 1, "move": {"behind": 2}}
    {"kind": "move_in_queue", "experiment_id": 1, "behind": 2}

Such events are read if a master was killed and the next one is of this version.
"""

from __future__ import annotations

from typing import Any

# By former kind: the present kind, and the field that contained the request ("": none).
_FORMER = {
    "pause_requested": ("pause", ""),
    "activate_requested": ("activate", ""),
    "cancel_requested": ("cancel", ""),
    "kill_requested": ("kill", ""),
    "kill_trial_requested": ("kill_trial", ""),
    "profile_requested": ("profile_trial", "profile"),
    "trial_change_requested": ("change_trial", "change"),
    "search_change_requested": ("change_search", ""),
    "resources_change_requested": ("change_resources", "change"),
    "details_change_requested": ("change_details", "change"),
    "move_requested": ("move_in_queue", "move"),
    "queue_changes_requested": ("change_queue", ""),
    "slots_switched": ("switch_slots", "switch"),
    "pools_set": ("set_pools", ""),
    "archive_requested": ("archive", ""),
    "delete_requested": ("delete", ""),
    "retention_set": ("set_retention", ""),
    "checkpoints_unwanted": ("drop_checkpoints", ""),
}


def to_present_form(event: Any) -> dict[str, Any] | None:
    """Return a stored event in its present form; None if its kind is not a former one."""
    former = event.get("kind") if isinstance(event, dict) else None
    if not isinstance(former, str) or former not in _FORMER:
        return None
    kind, nested = _FORMER[former]
    rest = {name: value for name, value in event.items() if name not in ("kind", nested)}
    if former == "archive_requested":
        kind = "archive" if rest.pop("is_archived") else "unarchive"
    if former == "queue_changes_requested":
        rest["changes"] = [_to_present_change(change) for change in rest["changes"]]
    return {"kind": kind, **rest, **event.get(nested, {})}


def _to_present_change(change: dict[str, Any]) -> dict[str, Any]:
    request = change["request"]
    kind = "move_in_queue" if "behind" in request else "change_resources"
    of_experiment = {"kind": kind, "experiment_id": change["experiment_id"]}
    return {"where": change["where"], "request": of_experiment | request}
