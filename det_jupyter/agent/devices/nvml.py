"""Reads the CUDA devices of this computer, and the processes that use them, from NVML.

NVML needs no CUDA context, so these queries take no GPU memory. Two results need care:

    pids           are those of the host. In a container they may be 0, missing, or of no process
    utilisation    samples of the last seconds; the error "not found" means that none computed
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from det_jupyter.agent.devices.health import Answer, DeviceHealth
from det_jupyter.agent.devices.xid_log import pci_address
from det_jupyter.contract.host.nvml_driver import DriverError, initialised_nvml, text_of
from det_jupyter.contract.messages import SlotView

_MOST_EVENTS = 100  # in one call
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessUse:
    """A process on a device; `is_compute` is true if it has a CUDA context."""

    pid: int
    memory_bytes: int = 0
    is_compute: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """The processes and the memory in use of a device."""

    processes: list[ProcessUse]
    used_bytes: int = 0  # memory in use on the device, without that of the driver
    # Processes that have computed since the last query; None if unknown.
    busy_pids: Set[int] | None = None


class NvmlProbe:
    """Reads the use of devices; `nvml` is the initialised module `pynvml`.

    Used by one thread at a time, not always the same one.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._events: Any = None  # NVML's set of events
        self._located: set[str] = set()  # devices whose PCI address is known
        self._sampled_at: dict[str, int] = {}  # by device: the driver's time of the last sample

    def read(self, slot: SlotView) -> DeviceUse:
        """Return the use of the slot's device.

        Raises:
            DriverError: It cannot be read.
        """
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

    def check(self, slots: Sequence[SlotView], health: DeviceHealth, now: float) -> None:
        """Store which devices have had errors, and which NVML does not reach."""
        xids = self._new_xids(slots)
        for slot in slots:
            health.note_answer(slot.id, self._answer(slot, xids.get(slot.uuid, ())), now)
            if slot.uuid not in self._located:
                self._locate(slot, health)

    def _answer(self, slot: SlotView, xids: Sequence[int]) -> Answer:
        nvml, num_uncorrected = self._nvml, None
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(slot.uuid)
            try:
                nvml.nvmlDeviceGetMemoryInfo(handle)  # a handle may be of a device that is lost
            except nvml.NVMLError as error:  # a GPU that shares the computer's memory has none
                if error.value != nvml.NVML_ERROR_NOT_SUPPORTED:
                    raise
            try:
                num_uncorrected = nvml.nvmlDeviceGetTotalEccErrors(
                    handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                )
            except nvml.NVMLError as error:  # most devices count none
                if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
                    raise
        except nvml.NVMLError as error:
            is_lost = error.value == nvml.NVML_ERROR_GPU_IS_LOST
            return Answer(is_lost=is_lost, is_reached=False, xids=xids)
        return Answer(num_uncorrected=num_uncorrected, xids=xids)

    def _locate(self, slot: SlotView, health: DeviceHealth) -> None:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(slot.uuid)
            health.locate(slot.id, pci_address(text_of(nvml.nvmlDeviceGetPciInfo(handle).busId)))
            self._located.add(slot.uuid)
        except nvml.NVMLError:
            return

    def _new_xids(self, slots: Sequence[SlotView]) -> dict[str, list[int]]:
        """Return the errors since the last call, by device; none where NVML has no events."""
        nvml, found = self._nvml, dict[str, list[int]]()
        try:
            if self._events is None:
                self._events = nvml.nvmlEventSetCreate()
                for slot in slots:
                    self._watch_events(slot)
            for _ in range(_MOST_EVENTS):
                event = nvml.nvmlEventSetWait(self._events, 0)
                uuid = text_of(nvml.nvmlDeviceGetUUID(event.device))
                found.setdefault(uuid, []).append(int(event.eventData))
        except nvml.NVMLError:  # in general a timeout: there are no more
            pass
        return found

    def _watch_events(self, slot: SlotView) -> None:
        nvml = self._nvml
        with suppress(nvml.NVMLError):
            handle = nvml.nvmlDeviceGetHandleByUUID(slot.uuid)
            nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def _processes(self, handle: Any) -> list[ProcessUse]:
        rendering = self._nvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
        computing = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        # A process that computes and renders is in both lists. Several may have the pid 0.
        named = {use.pid for use in computing if use.pid}
        only_rendering = [use for use in rendering if use.pid not in named]
        return [_process_use(use, is_compute=True) for use in computing] + [
            _process_use(use, is_compute=False) for use in only_rendering
        ]

    def _used_bytes(self, handle: Any) -> int:
        nvml = self._nvml
        try:  # version 2 excludes the driver's memory
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
        return {
            sample.pid
            for sample in news
            if any((sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil))
        }


def _process_use(use: Any, *, is_compute: bool) -> ProcessUse:
    return ProcessUse(pid=use.pid, memory_bytes=use.usedGpuMemory or 0, is_compute=is_compute)


def open_nvml() -> NvmlProbe:
    """Initialise NVML and return a probe; NVML stays open until this process exits.

    Raises:
        DriverError: NVML does not work.
    """
    return NvmlProbe(initialised_nvml())


def cuda_devices() -> list[SlotView]:
    """Return all CUDA devices in NVML's order; an empty list if NVML does not work."""
    try:
        nvml = initialised_nvml()
    except DriverError as error:
        logger.info("no CUDA devices: %s", error)
        return []
    try:
        return list(_devices(nvml))
    except nvml.NVMLError as error:
        logger.warning("CUDA devices are left out, NVML cannot describe them: %s", error)
        return []
    finally:
        nvml.nvmlShutdown()


def _devices(nvml: Any) -> Iterator[SlotView]:
    """Yield the devices that NVML can describe; one that is lost is left out."""
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            yield _device(nvml, index)
        except nvml.NVMLError as error:
            logger.error("GPU %d is left out, NVML cannot describe it: %s", index, error)


def _device(nvml: Any, index: int) -> SlotView:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    return SlotView(
        id=index,
        kind="cuda",
        index=index,
        name=text_of(nvml.nvmlDeviceGetName(handle)),
        uuid=text_of(nvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=_memory_bytes(nvml, handle),
    )


def _memory_bytes(nvml: Any, handle: Any) -> int:
    try:
        total: int = nvml.nvmlDeviceGetMemoryInfo(handle).total
        return total
    except nvml.NVMLError as error:  # a GPU that shares the computer's memory has none
        logger.info("the memory of a CUDA device is not known: %s", error)
        return 0
