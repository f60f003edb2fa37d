"""The meaning of the numbers of GPU errors (Xid), from NVIDIA's catalogue.

https://docs.nvidia.com/deploy/xid-errors. Numbers that are missing here are shown without a
meaning, and the device goes on.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Fault(IntEnum):
    """What an error means for its device; of several errors, the greatest explains a crash."""

    FOLLOWS = 0  # cleaning up after another error, or after a process that was killed
    PROGRAM = 1  # an error of the program in general; the device works
    DEVICE = 2  # an error of the device or its driver, after which it works
    LOST = 3  # the device does not work until it is reset
    UNCORRECTED = 4  # the same, because of an error of its memory


class Xid(NamedTuple):
    """An error: what it is, and what it means for the device."""

    text: str
    fault: Fault


_XIDS = {
    8: Xid("a kernel ran for too long", Fault.PROGRAM),
    13: Xid("exception of a kernel, in general an index out of range", Fault.PROGRAM),
    31: Xid("access to memory that is not mapped, in general a wrong index", Fault.PROGRAM),
    32: Xid("damaged commands to the GPU", Fault.DEVICE),
    38: Xid("firmware error", Fault.DEVICE),
    43: Xid("the GPU stopped the program, in general for an error of it", Fault.PROGRAM),
    45: Xid("cleanup after another error", Fault.FOLLOWS),
    48: Xid("uncorrectable memory error", Fault.UNCORRECTED),
    61: Xid("microcontroller error", Fault.DEVICE),
    62: Xid("microcontroller halted", Fault.LOST),
    63: Xid("damaged memory was replaced by spare memory", Fault.DEVICE),
    64: Xid("damaged memory could not be replaced; reset the GPU soon", Fault.DEVICE),
    69: Xid("exception of a kernel", Fault.PROGRAM),
    74: Xid("NVLink error", Fault.DEVICE),
    79: Xid("it has fallen off the bus", Fault.LOST),
    92: Xid("many corrected memory errors", Fault.DEVICE),
    94: Xid("uncorrectable memory error that only this program has met", Fault.DEVICE),
    95: Xid("uncorrectable memory error, not contained", Fault.UNCORRECTED),
    119: Xid("its system processor (GSP) does not answer", Fault.LOST),
    120: Xid("error of its system processor (GSP)", Fault.LOST),
    140: Xid("uncorrectable memory error", Fault.UNCORRECTED),
}


def xid_of(number: int) -> Xid:
    """Return the meaning of an error; its text is empty if the catalogue lacks it."""
    return _XIDS.get(number, Xid("", Fault.DEVICE))
