"""The device of a process that no agent has started.

NVML describes it. torch would create a CUDA context for that, which takes memory, and which the
process cannot use after a fork.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from det_jupyter.contract.host.nvml_driver import DriverError, initialised_nvml, text_of
from det_jupyter.contract.messages import SlotView

_CPU = SlotView(id=-1, kind="cpu", index=0, name="CPU")


def own_slot(local_rank: int) -> SlotView:
    """Return the device of this process as a slot; it is none, so its id is -1.

    A CPU place unless torch is imported, can use CUDA, and NVML knows the device.

    Args:
        local_rank: Its place in CUDA_VISIBLE_DEVICES, or among all devices.
    """
    version = getattr(sys.modules.get("torch"), "version", None)
    if getattr(version, "cuda", None) is None:
        return _CPU
    try:
        nvml = initialised_nvml()
    except DriverError:
        return _CPU
    try:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        devices = range(nvml.nvmlDeviceGetCount()) if shown is None else shown.split(",")
        index = local_rank if local_rank < len(devices) else 0  # it may see its own only
        word = str(devices[index]).strip()
        if word.isdecimal():
            handle = nvml.nvmlDeviceGetHandleByIndex(int(word))
        else:
            handle = nvml.nvmlDeviceGetHandleByUUID(word)
        memory_bytes = 0
        with suppress(nvml.NVMLError):  # a GPU that shares the computer's memory has none
            memory_bytes = nvml.nvmlDeviceGetMemoryInfo(handle).total
        return SlotView(
            id=-1,
            kind="cuda",
            index=index,
            name=text_of(nvml.nvmlDeviceGetName(handle)),
            uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
            memory_bytes=memory_bytes,
        )
    except (nvml.NVMLError, IndexError):
        return _CPU
    finally:
        nvml.nvmlShutdown()
