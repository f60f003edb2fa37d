"""What a CUDA error says beyond its message: what held the memory, and which GPU has failed.

Pure, but for `device_memory`, which reads torch's and the driver's numbers in the failed rank. A
device that has failed answers no queries: then the message alone is what is known.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.values.text import size

_FAILED_DEVICE = re.compile(
    r"CUDA error: (?P<what>unspecified launch failure|device-side assert triggered"
    r"|an illegal memory access was encountered|uncorrectable ECC error encountered"
    r"|unknown error|GPU has fallen off the bus|no CUDA-capable device is detected)"
)
_OF_CODE = (
    "device-side assert triggered",
    "an illegal memory access was encountered",
    "unspecified launch failure",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of a GPU, in bytes: `used` by all processes, and the parts of this one.

    Args:
        allocated: In tensors.
        reserved: What torch's allocator has taken of the GPU, tensors included.
    """

    total: int
    used: int
    allocated: int
    reserved: int


def describe_memory(memory: DeviceMemory) -> str:
    """Return what held a GPU's memory when there was not enough, and what to try."""
    unused = memory.reserved - memory.allocated
    others = max(0, memory.used - memory.reserved)
    held = [f"this rank's tensors {size(memory.allocated)}"]
    if unused > 0.02 * memory.total:
        held.append(f"reserved by its allocator and not in use {size(unused)}")
    held.append(f"its CUDA context and other processes {size(others)}")
    remedies = ["smaller batches with aggregation_frequency", "mixed_precision", "sharding"]
    if unused > 0.1 * memory.total:
        remedies.insert(0, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    if others > 0.25 * memory.total:
        remedies.insert(0, "ending the other processes")
    return f"of {size(memory.total)}: {', '.join(held)}; try {', '.join(remedies)}"


def device_memory(torch: Any) -> DeviceMemory | None:
    """Return the memory of the rank's current device; None if it cannot be read."""
    try:
        free, total = torch.cuda.mem_get_info()
        return DeviceMemory(
            total=total,
            used=total - free,
            allocated=torch.cuda.memory_allocated(),
            reserved=torch.cuda.memory_reserved(),
        )
    except Exception:  # the device has failed, or CUDA was never initialised
        return None


def more_about(error: BaseException) -> str:
    """Return what to add to the text of a CUDA error; "" for other errors."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if isinstance(error, torch.cuda.OutOfMemoryError):  # torch.OutOfMemoryError is of torch 2.5
        memory = device_memory(torch)
        return "" if memory is None else describe_memory(memory)
    if not isinstance(error, RuntimeError) or not (found := _FAILED_DEVICE.search(str(error))):
        return ""
    if found["what"] in _OF_CODE:
        return (
            "a kernel on this rank's GPU failed, at this line or before it; "
            "CUDA_LAUNCH_BLOCKING=1 names the line, and the same batch on a CPU the cause"
        )
    return "this rank's GPU has failed; if no Xid is named here, `dmesg` on its computer has it"
