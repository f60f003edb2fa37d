"""Which slots this computer offers: its visible CUDA devices, or else CPU places.

    DET_JUPYTER_CPU_SLOTS      that many CPU places, whatever devices there are: to try out on one
                               computer what shall run on many GPUs (on many computers: offers.py)
    CUDA_VISIBLE_DEVICES       the devices that it leaves, in its order
    neither                    all devices by PCI bus, which is NVML's order, and CUDA's own in
                               ranks (worker/process.py sets CUDA_DEVICE_ORDER); without devices, a
                               CPU place for each core

Devices are found by NVML, not by torch: it needs no CUDA context, so looking costs no GPU memory.
Whether the torch of a trial's interpreter can use them is asked when it is started (runner.py).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from det_jupyter.wire import SlotView
from det_jupyter.words import error_text

logger = logging.getLogger(__name__)

CPU_SLOTS_VARIABLE = "DET_JUPYTER_CPU_SLOTS"
CUDA_VARIABLE = "CUDA_VISIBLE_DEVICES"
_MIG = "MIG-"  # how the UUID of a part of a GPU begins


def discover_slots(environ: Mapping[str, str] = os.environ) -> list[SlotView]:
    """Return the slots of this computer, numbered from 0."""
    if num_places := _wanted_cpu_slots(environ):
        return cpu_places(num_places)
    devices = cuda_devices()
    if devices and CUDA_VARIABLE in environ:
        devices = visible_devices(devices, environ[CUDA_VARIABLE])
    if devices:
        return [device.model_copy(update={"id": id}) for id, device in enumerate(devices)]
    return cpu_places(_num_cores())


def threads_per_slot(num_slots: int) -> int:
    """Return how many threads a rank may use, so that all slots together use each core once."""
    return max(1, _num_cores() // num_slots)


def cpu_places(num_places: int) -> list[SlotView]:
    """Return that many CPU places, numbered from 0."""
    return [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(num_places)]


def cuda_devices() -> list[SlotView]:
    """Return all CUDA devices in NVML's order; none when NVML or the driver does not work."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception as error:  # no library, no driver, a driver of another version
        logger.info("no CUDA devices: %s", error_text(error))
        return []
    try:
        return [_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        logger.warning("CUDA devices are left out, NVML cannot describe them: %s", error)
        return []
    finally:
        nvml.nvmlShutdown()


def _device(nvml: Any, index: int) -> SlotView:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return SlotView(
        id=index,
        kind="cuda",
        index=index,
        name=_text(nvml.nvmlDeviceGetName(handle)),
        uuid=_text(nvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=_memory_bytes(nvml, handle),
    )


def _memory_bytes(nvml: Any, handle: Any) -> int:
    try:
        total: int = nvml.nvmlDeviceGetMemoryInfo(handle).total
        return total
    except nvml.NVMLError as error:  # a GPU that shares the computer's memory has none of its own
        logger.info("a CUDA device does not say how much memory it has: %s", error)
        return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value  # NVML before 11.5 gave bytes


def visible_devices(devices: Sequence[SlotView], variable: str) -> list[SlotView]:
    """Return what CUDA_VISIBLE_DEVICES leaves of `devices`, in its order, by CUDA's own rules.

    A word is an index or the beginning of a UUID. The first word that names no device ends the
    list (so "-1" and "" hide all), and naming a device twice hides all.

    >>> gpus = [SlotView(id=i, kind="cuda", index=i, name="", uuid=f"GPU-{i}f") for i in range(3)]
    >>> [device.index for device in visible_devices(gpus, "2,GPU-0,-1,1")]
    [2, 0]
    """
    chosen: list[SlotView] = []
    for word in variable.split(","):
        device = _named(devices, word.strip())
        if device is None:
            _complain(word.strip())
            break
        chosen.append(device)
    if len({device.index for device in chosen}) < len(chosen):
        logger.warning("%s: %r names a device twice; all are hidden", CUDA_VARIABLE, variable)
        return []
    return chosen


def _complain(word: str) -> None:
    if word.startswith(_MIG):
        logger.error(
            "%s: %r is a part of a GPU (MIG), which is not supported; it and what follows are "
            "hidden. Name whole GPUs, by index or GPU-…, and switch MIG off for them: "
            "nvidia-smi -mig 0",
            CUDA_VARIABLE,
            word,
        )
    elif word not in ("", "-1"):
        logger.warning(
            "%s: %r names no device; it and what follows are hidden", CUDA_VARIABLE, word
        )


def _named(devices: Sequence[SlotView], word: str) -> SlotView | None:
    if word.isdecimal():
        return next((device for device in devices if device.index == int(word)), None)
    matches = [device for device in devices if word and device.uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _wanted_cpu_slots(environ: Mapping[str, str]) -> int:
    """Return how many CPU places the user wants instead of what there is; 0: that is not so."""
    given = environ.get(CPU_SLOTS_VARIABLE)
    if given is None:
        return 0
    if given.strip().isdecimal() and int(given) > 0:
        return int(given)
    logger.error(
        "%s: got %r, expected a whole number of at least 1; it is ignored",
        CPU_SLOTS_VARIABLE,
        given,
    )
    return 0


def _num_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
