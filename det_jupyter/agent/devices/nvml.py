"""What the NVIDIA driver says of the processes on a device. Knows NVML, nothing of who they are.

Two of its answers need care:

    pids           of the computer, not of a container: in one they may be 0, missing, or nobody's
    utilisation    samples of the last seconds; "not found" means that nobody computed
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Protocol

from det_jupyter.wire import SlotView


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """A process on a device; `is_compute`: it has a CUDA context, it does not only draw."""

    pid: int
    memory_bytes: int = 0
    is_compute: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """Who uses a device.

    Args:
        processes: One for each pid.
        used_bytes: Of the device's memory, whoever has it, without what the driver keeps.
        busy_pids: Who has computed since the last look; None: the driver cannot say.
    """

    processes: list[ProcessUse]
    used_bytes: int = 0
    busy_pids: Set[int] | None = None


class DriverError(Exception):
    """The driver does not say who uses a device."""


class DeviceProbe(Protocol):
    """Looks at devices. Called from one thread at a time, not always the same one."""

    def look(self, slot: SlotView) -> DeviceUse:
        """Return who uses the device of a slot.

        Raises:
            DriverError: The driver does not say.
        """


class NvmlProbe:
    """The driver itself, by NVML, which takes no memory of the devices and starts no work there.

    Args:
        nvml: The module `pynvml`, initialised.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._sampled_at: dict[str, int] = {}  # device -> the driver's time of the last sample

    def look(self, slot: SlotView) -> DeviceUse:
        """Return who uses the device of a slot."""
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(slot.uuid)
            return DeviceUse(
                processes=self._processes(handle),
                used_bytes=self._used_bytes(handle),
                busy_pids=self._busy_pids(slot.uuid, handle),
            )
        except nvml.NVMLError as error:
            raise DriverError(f"{slot.name} ({slot.uuid}): {error}") from error

    def _processes(self, handle: Any) -> list[ProcessUse]:
        drawing = self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
        computing = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        # A process that does both is in both lists, and computes. Many may have the pid 0.
        named = {use.pid for use in computing if use.pid}
        only_drawing = [use for use in drawing if use.pid not in named]
        return [_process_use(use, is_compute=True) for use in computing] + [
            _process_use(use, is_compute=False) for use in only_drawing
        ]

    def _used_bytes(self, handle: Any) -> int:
        nvml = self._nvml
        try:  # the second version counts apart what the driver keeps for itself
            info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError:  # an old driver, or a device that shares the computer's memory
            return 0
        used: int = info.used
        return used

    def _busy_pids(self, device: str, handle: Any) -> Set[int] | None:
        nvml = self._nvml
        since = self._sampled_at.get(device, 0)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_NOT_FOUND:  # no process has computed since
                return frozenset()
            return None
        news = [sample for sample in samples if sample.timeStamp > since]
        self._sampled_at[device] = max((sample.timeStamp for sample in news), default=since)
        return {sample.pid for sample in news if _has_computed(sample)}


def _process_use(use: Any, *, is_compute: bool) -> ProcessUse:
    return ProcessUse(pid=use.pid, memory_bytes=use.usedGpuMemory or 0, is_compute=is_compute)


def _has_computed(sample: Any) -> bool:
    return any((sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil))


def open_nvml() -> NvmlProbe:
    """Return the driver, kept open from now on.

    Raises:
        DriverError: It does not work.
    """
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception as error:  # as when slots were looked for, see devices.py
        raise DriverError(f"NVML does not work: {error}") from error
    return NvmlProbe(nvml)
