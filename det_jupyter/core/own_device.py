"""The device of a process that no agent has started.

NVML describes it. torch would create a CUDA context for that, which takes memory, and which the
process cannot use after a fork.

NVML numbers devices by PCI bus; CUDA begins with the fastest, unless CUDA_DEVICE_ORDER=PCI_BUS_ID.
So where there are several models, a number is no device, until torch has initialised CUDA.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import Any

from det_jupyter.contract.host.nvml_driver import DriverError, initialised_nvml, text_of
from det_jupyter.contract.messages import SlotView

logger = logging.getLogger(__name__)

_CPU = SlotView(id=-1, kind="cpu", index=0, name="CPU")


def own_slot(local_rank: int) -> SlotView:
    """Return the device of this process as a slot; it is none, so its id is -1.

    A CPU place unless torch is imported, can use CUDA, and NVML knows the device. Without a UUID
    if it is one of several models, and not known which.

    Args:
        local_rank: Its place in CUDA_VISIBLE_DEVICES, or among all devices.
    """
    torch: Any = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    if getattr(version, "cuda", None) is None:
        if getattr(version, "hip", None) is not None and local_rank == 0:
            logger.warning("GPUs of AMD (ROCm) are not supported: they are shown as CPU places")
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
        if word.isdecimal() and len(models := _models_by_speed(nvml)) > 1:
            if not torch.cuda.is_initialized():
                logger.warning(
                    "the GPUs here are of several models, which CUDA numbers by speed: set "
                    "CUDA_DEVICE_ORDER=PCI_BUS_ID, and the GPU of this process is measured"
                )
                return SlotView(id=-1, kind="cuda", index=index, name=" or ".join(models))
            properties = torch.cuda.get_device_properties(index)
            handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
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


def _models_by_speed(nvml: Any) -> list[str]:
    """Return the models of the devices; [] if CUDA numbers these as NVML does."""
    if os.environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return []
    models = set()
    for index in range(nvml.nvmlDeviceGetCount()):
        with suppress(nvml.NVMLError):  # a device that is lost
            models.add(text_of(nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(index))))
    return sorted(models)
