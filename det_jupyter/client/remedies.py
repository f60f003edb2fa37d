"""Carries a remedy out: does what its notebook lines would do."""

from __future__ import annotations

from typing import Any

from det_jupyter.client.asking import ask_for
from det_jupyter.client.client import Client
from det_jupyter.errors import Conflict
from det_jupyter.wire import ChangeResources, MoveInQueue, Remedy, SwitchSlots


def carry_out(client: Client, remedy: Remedy) -> None:
    """Do what a remedy says, for each of its targets.

    Raises:
        DetError: The master refused it, or only the user can do it.
    """
    for target in remedy.target:
        _do(client, remedy, target)


def _do(client: Client, remedy: Remedy, target: Any) -> None:
    values: dict[str, Any] = dict(remedy.values)
    match remedy.verb:
        case "pause" | "activate":
            client.command(target, remedy.verb)
        case "set":
            if "pool" in values:
                values["resource_pool"] = values.pop("pool")
            client.change_resources(target, ask_for(ChangeResources, **values))
        case "move":
            client.move(target, ask_for(MoveInQueue, **values))
        case "enable_slots":
            request = ask_for(SwitchSlots, slots=values["slot_ids"], enabled=True)
            client.switch_slots(target, request)
        case _:
            raise Conflict(f"{remedy.text}: this has to be typed, or done by hand")
