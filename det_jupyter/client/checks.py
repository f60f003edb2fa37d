"""Checks of a submission that are made before the master is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.config.older import in_words_of_today
from det_jupyter.config.storages import folder_of
from det_jupyter.system.ownership import find_open


def find_slot_problems(
    document: Mapping[str, Any], client: Client, *, queue_anyway: bool = False
) -> list[str]:
    """Return a problem if there is no such pool, or if it can never run that many slots.

    With `queue_anyway` the latter is none.
    """
    document, _ = in_words_of_today(document, {})
    resources = document.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    slots, name = resources.get("slots_per_trial", 1), resources.get("resource_pool")
    known = [pool.name for pool in client.pools()]
    if isinstance(name, str) and name and name not in known:
        return [f"resources.resource_pool: got {name!r}, expected one of {', '.join(known)}"]
    # A value of the wrong kind is reported already.
    if queue_anyway or type(slots) is not int or slots < 0 or not isinstance(name, str | None):
        return []
    problem = client.find_impossibility(
        slots, pool=name or "", is_single_agent=resources.get("is_single_node") is True
    )
    return [] if problem is None else [problem]


def find_open_storage(document: Mapping[str, Any]) -> list[str]:
    """Return a notice about a checkpoint folder that every user can change (docs/security.md)."""
    folder = folder_of(document.get("checkpoint_storage") or {})
    if folder is None:
        return []
    real = Path(folder).expanduser().resolve()
    place = find_open(*(path for path in (real, *real.parents) if path.is_dir()))
    if place is None:
        return []
    return [
        f"checkpoint_storage: every user of this computer can replace what is in {place}, and "
        "who replaces a checkpoint there can run code as you; if that is not wanted: "
        f"chmod o-w {place}"
    ]
