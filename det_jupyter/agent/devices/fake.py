"""Made-up processes on devices, to test without a GPU what the scheduler does about them.

    DET_JUPYTER_FAKE_DEVICES=FILE      a JSON file, read again whenever it changes:

    {"0": [{"pid": 4711, "command": "python train.py", "user": "ada", "memory_bytes": 5000000000}],
     "right:3": [{"pid": 4712, "command": "ipykernel", "kernel_id": "3f2a", "idle_since": 1.0}]}

A key is a slot of the (first) agent, or AGENT:SLOT; CPU places count as devices here. Processes
have the fields of `wire.DeviceProcess`, of which `pid` and `command` are required. A missing file
means no processes; one that cannot be read is logged, and the last content stays.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.devices.occupancy import Processes
from det_jupyter.agent.devices.slots import Offer
from det_jupyter.wire import DeviceProcess, SlotView

logger = logging.getLogger(__name__)

FAKE_DEVICES_VARIABLE = "DET_JUPYTER_FAKE_DEVICES"
_FILE = TypeAdapter(dict[str, list[DeviceProcess]])


class FakeDevices:
    """A DeviceSource that reads a file.

    Args:
        path: The file.
        offer: The agent.
        is_first: Whether keys without an agent are slots of this one.
    """

    def __init__(self, path: Path, offer: Offer, *, is_first: bool) -> None:
        self._path = path
        keys = {f"{offer.agent_id}:{slot.id}": slot.id for slot in offer.slots}
        if is_first:
            keys |= {str(slot.id): slot.id for slot in offer.slots}
        self._slot_of = keys
        self._text = b""
        self._seen: Processes = {}

    def look(self, now: float, held: Collection[SlotView]) -> Processes:
        """See DeviceSource (watch.py)."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            text = b"{}"
        if text != self._text:
            self._text = text
            self._read(text)
        return self._seen

    def _read(self, text: bytes) -> None:
        try:
            by_key = _FILE.validate_json(text)
        except ValidationError as error:
            logger.error("%s: %s is ignored: %s", FAKE_DEVICES_VARIABLE, self._path, error)
            return
        slot_of = self._slot_of
        self._seen = {slot_of[key]: who for key, who in by_key.items() if key in slot_of and who}
