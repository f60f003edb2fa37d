"""An error of a GPU, and a GPU that is lost: no trial gets it until it is reset."""

from __future__ import annotations

from datetime import tzinfo

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, ProcessId, Timestamp
from det_jupyter.contract.values.text import short_time
from det_jupyter.contract.values.xids import Fault, xid_of

RESET = "reset it or restart the computer"


class DeviceFault(Wire):
    """An error of a GPU, from the driver or the kernel's log."""

    index: Count  # of the GPU in NVML's order, as `nvidia-smi -i` takes it
    at: Timestamp
    xid: Count | None = None  # its number; None: the driver does not reach the GPU
    pid: ProcessId | None = None  # the process that used the GPU, if that is known

    @property
    def fault(self) -> Fault:
        """The consequence of the error for the GPU."""
        return Fault.LOST if self.xid is None else xid_of(self.xid).fault

    @property
    def is_lost(self) -> bool:
        """Whether the GPU does not work until it is reset."""
        return self.fault >= Fault.LOST

    @property
    def cause(self) -> str:
        """The number and its meaning: `Xid 79: it has fallen off the bus`."""
        if self.xid is None:
            return "its driver does not reach it"
        text = xid_of(self.xid).text
        return f"Xid {self.xid}{f': {text}' if text else ''}"

    def sentence(self, now: float, zone: tzinfo | None = None) -> str:
        """Return since when the GPU is lost, and why."""
        since = short_time(self.at, now, zone)
        return f"GPU {self.index} has been lost since {since} ({self.cause})"

    def __str__(self) -> str:
        is_lost = "is lost" if self.is_lost else "had an error"
        return f"GPU {self.index} {is_lost} ({self.cause})"
