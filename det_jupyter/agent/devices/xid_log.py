"""Parses the errors of GPUs (Xid) that NVIDIA's driver writes to the kernel's log.

NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000010, intr 00000000. MMU Fault
NVRM: GPU at PCI:0000:3b:00: GPU-6fd0...        (no error)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:]+)[^)]*\): (?P<xid>\d{1,5})\b"
    r"(?:,\s*pid='?(?P<pid>\d{1,10})\b)?"
)


class XidMessage(NamedTuple):
    """An error in the kernel's log, and the process that used the GPU, if the log names it."""

    pci: str
    xid: int
    pid: int | None


def parse_xids(messages: Iterable[str]) -> list[XidMessage]:
    """Return the errors of GPUs in messages of the kernel's log, in order.

    >>> parse_xids(["NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, MMU Fault", "usb 1"])
    [XidMessage(pci='0:3b:0', xid=31, pid=4711)]
    """
    found = (match for message in messages if (match := _XID.search(message)))
    return [
        XidMessage(pci_address(m["pci"]), int(m["xid"]), int(m["pid"]) if m["pid"] else None)
        for m in found
    ]


def pci_address(text: str) -> str:
    """Return domain, bus and device of a GPU, the same for each notation of the address.

    >>> pci_address("00000000:3B:00.0") == pci_address("0000:3b:00") == pci_address("3b:00")
    True
    """
    parts = text.partition(".")[0].lower().split(":")
    numbers = [part.lstrip("0") or "0" for part in parts]
    return ":".join(["0", *numbers][-3:])
