"""Adds to a CUDA error what its message lacks: what held the memory, and which GPU has failed.

`device_shortage` reads torch's and the driver's numbers in the failed rank. A device that has
failed answers no queries: then the message alone is what is known.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import psutil

from det_jupyter.contract.host.nvml_driver import initialised_nvml
from det_jupyter.contract.values.device_memory import DeviceHolder, DeviceShortage

_FAILED_DEVICE = re.compile(
    r"CUDA error: (?P<what>unspecified launch failure|device-side assert triggered"
    r"|an illegal memory access was encountered|uncorrectable ECC error encountered"
    r"|unknown error|GPU has fallen off the bus|no CUDA-capable device is detected)"
)
# Messages of torch without CUDA, and of CUDA without a GPU.
_NO_DEVICE = re.compile(
    r"Torch not compiled with CUDA enabled|No CUDA GPUs are available|Found no NVIDIA driver"
)
_OF_CODE = (
    "device-side assert triggered",
    "an illegal memory access was encountered",
    "unspecified launch failure",
)


def device_shortage(
    error: BaseException, *, batch_size: int | None = None
) -> DeviceShortage | None:
    """Return what held the GPU's memory if there was not enough for an allocation.

    Args:
        error: The error of a rank.
        batch_size: Records of a batch on this rank; None: unknown.

    Returns:
        None for other errors, and if the GPU's memory cannot be read.
    """
    torch = sys.modules.get("torch")
    # torch.OutOfMemoryError exists since torch 2.5.
    if torch is None or not isinstance(error, torch.cuda.OutOfMemoryError):
        return None
    try:
        free, total = torch.cuda.mem_get_info()
        return DeviceShortage(
            total=total,
            used=total - free,
            allocated=torch.cuda.memory_allocated(),
            reserved=torch.cuda.memory_reserved(),
            others=_other_processes(torch),
            batch_size=batch_size,
        )
    except Exception:  # the device has failed, or CUDA was never initialised
        return None


def _other_processes(torch: Any) -> tuple[DeviceHolder, ...]:
    """Return the other processes on the current device; none if NVML cannot list them here.

    In a container the driver's pids are those of the host: then this process is not among them.
    """
    found = []
    try:
        nvml = initialised_nvml()
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{properties.uuid}")
        uses = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if os.getpid() not in [use.pid for use in uses]:
            return ()
        for use in uses:
            if use.pid != os.getpid():
                found.append(
                    DeviceHolder(
                        pid=use.pid, name=_name_of(use.pid), num_bytes=use.usedGpuMemory or 0
                    )
                )
    except Exception:  # no driver, a device that has failed, or a version of torch without UUIDs
        return ()
    return tuple(sorted(found, key=lambda holder: -holder.num_bytes))


def _name_of(pid: int) -> str:
    try:
        return psutil.Process(pid).name() or "another process"
    except psutil.Error:
        return "another process"


def more_about(error: BaseException) -> str:
    """Return what to add to the text of a CUDA error; "" for other errors."""
    torch = sys.modules.get("torch")
    if torch is None:
        return ""
    if isinstance(error, (AssertionError, RuntimeError)) and _NO_DEVICE.search(str(error)):
        return (
            "this rank has no GPU: its slot is a CPU; `x.to(context.device)` or "
            "`context.to_device(x)` of a trial is right on every slot, as is "
            '`x.to("cuda" if torch.cuda.is_available() else "cpu")` in other code'
        )
    if not isinstance(error, RuntimeError) or not (found := _FAILED_DEVICE.search(str(error))):
        return ""
    if found["what"] in _OF_CODE:
        return (
            "a kernel on this rank's GPU failed, at this line or before it; "
            "CUDA_LAUNCH_BLOCKING=1 names the line, and the same batch on a CPU the cause"
        )
    return "this rank's GPU has failed; if no Xid is named here, `dmesg` on its computer has it"
