"""A stand-in for `pynvml`, whose answers have the shapes that drivers give.

    DET_JUPYTER_FAKE_NVML=tests.fake_nvml DET_TEST_NVML=SHAPE    in a program, SHAPE as in SHAPES

It counts traffic as an H100 in an HGX board does, and answers at once.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

SHAPE_VARIABLE = "DET_TEST_NVML"
GIB = 1 << 30

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 3, 4, 6
UNINITIALIZED, DRIVER_NOT_LOADED, TIMEOUT = 1, 9, 10
FUNCTION_NOT_FOUND, IS_LOST, UNKNOWN = 13, 15, 999
_TEXTS = {
    UNINITIALIZED: "Uninitialized",
    NOT_SUPPORTED: "Not Supported",
    NO_PERMISSION: "Insufficient Permissions",
    NOT_FOUND: "Not Found",
    DRIVER_NOT_LOADED: "Driver Not Loaded",
    TIMEOUT: "Timeout",
    FUNCTION_NOT_FOUND: "Function Not Found",
    IS_LOST: "GPU is lost",
    UNKNOWN: "Unknown Error",
}


class NVMLError(Exception):
    """NVML's error with a number."""

    def __init__(self, value: int) -> None:
        super().__init__(_TEXTS[value])
        self.value = value


class FakeNvml:
    """A driver with some GPUs.

    Args:
        num_gpus: The number of GPUs.
        mig: Slices of the first GPU; None if MIG is off.
        errors: Function -> number of the error that it raises, for all GPUs.
        lost: Indices of the GPUs that have fallen off the bus.
        processes: GPU memory by pid, all on the first GPU.
        pcie_s: How long a measurement of PCIe takes.
        models: The name of each GPU; (): all are of one model.
    """

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_UNINITIALIZED = UNINITIALIZED
    NVML_ERROR_NOT_SUPPORTED = NOT_SUPPORTED
    NVML_ERROR_NO_PERMISSION = NO_PERMISSION
    NVML_ERROR_NOT_FOUND = NOT_FOUND
    NVML_ERROR_FUNCTION_NOT_FOUND = FUNCTION_NOT_FOUND
    NVML_ERROR_GPU_IS_LOST = IS_LOST
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlEventTypeXidCriticalError = 8
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139

    def __init__(
        self,
        num_gpus: int = 1,
        *,
        mig: int | None = None,
        errors: dict[str, int] | None = None,
        lost: Sequence[int] = (),
        processes: dict[int, int | None] | None = None,
        pcie_s: float = 0.0,
        models: Sequence[str] = (),
    ) -> None:
        self.num_gpus = num_gpus
        self.mig = mig
        self.errors = errors or {}
        self.lost = set(lost)
        self.processes = processes or {}
        self.pcie_s = pcie_s
        self.models = models
        self.throttle_reasons = 0x1
        self.links = {138: 0, 139: 0}  # KiB of traffic, by counter
        self.asked: list[str] = []
        self.uncorrected: dict[str, int] = {}  # memory errors by device
        self.events: list[tuple[str, int]] = []  # errors (Xid) that no call has returned yet

    def __getattribute__(self, name: str) -> Any:
        """Record each call; raise an error if one is configured."""
        found = super().__getattribute__(name)
        if not name.startswith("nvml") or name.startswith("nvmlEventType"):
            return found

        def call(*arguments: Any) -> Any:
            self.asked.append(name)
            if name in self.errors:
                raise NVMLError(self.errors[name])
            if arguments and arguments[0] in [f"GPU-{index}" for index in self.lost]:
                raise NVMLError(IS_LOST)
            return found(*arguments)

        return call

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return self.num_gpus

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"GPU-{index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in [f"GPU-{index}" for index in range(self.num_gpus)]:
            raise NVMLError(NOT_FOUND)
        return uuid

    def nvmlDeviceGetName(self, handle: str) -> str:
        return self.models[int(handle[4:])] if self.models else "NVIDIA H100 80GB HBM3"

    def nvmlDeviceGetUUID(self, handle: str) -> bytes:
        return handle.encode()

    def nvmlDeviceGetMemoryInfo(self, handle: str, version: int = 1) -> SimpleNamespace:
        total = (80 if handle.startswith("GPU") else 10) * GIB
        return SimpleNamespace(total=total, free=total - 2 * GIB, used=2 * GIB)

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{0x3B + int(handle[4:]):02X}:00.0".encode())

    def nvmlDeviceGetTotalEccErrors(self, handle: str, kind: int, counter: int) -> int:
        if handle not in self.uncorrected:
            raise NVMLError(NOT_SUPPORTED)
        return self.uncorrected[handle]

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, handle: str, types: int, events: str) -> None: ...

    def nvmlEventSetWait(self, events: str, timeout_ms: int) -> SimpleNamespace:
        if not self.events:
            raise NVMLError(TIMEOUT)
        device, xid = self.events.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:
        return SimpleNamespace(gpu=87, memory=40)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        return 612_345

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 64

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return self.throttle_reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.throttle_reasons

    def nvmlDeviceGetFieldValues(
        self, handle: str, fields: Sequence[tuple[int, int]]
    ) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=self.links[id]))
            for id, _ in fields
        ]

    def nvmlDeviceGetMigMode(self, handle: str) -> tuple[int, int]:
        if self.mig is None:
            raise NVMLError(NOT_SUPPORTED)
        is_on = int(handle == "GPU-0")
        return is_on, is_on

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        if self.mig is None or index >= self.mig:
            raise NVMLError(NOT_FOUND)
        return f"MIG-{index}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        processes = self.processes if handle == "GPU-0" else {}
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in processes.items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return []

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[SimpleNamespace]:
        return []

    def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
        time.sleep(self.pcie_s)
        return (5_000, 7_000)[counter]


class HangingNvml(FakeNvml):
    """A driver that hangs in its third sample."""

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if self.asked.count("nvmlDeviceGetPowerUsage") == 3:
            time.sleep(3600)
        return super().nvmlDeviceGetPowerUsage(handle)


class CrashingNvml(FakeNvml):
    """A driver that ends the process in its third sample."""

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        if self.asked.count("nvmlDeviceGetPowerUsage") == 3:
            os.abort()
        return super().nvmlDeviceGetPowerUsage(handle)


SHAPES: dict[str, Callable[[], FakeNvml]] = {
    "1": FakeNvml,
    "8": lambda: FakeNvml(8, pcie_s=0.02),
    "mig": lambda: FakeNvml(2, mig=3),
    "none": lambda: FakeNvml(errors={"nvmlInit": DRIVER_NOT_LOADED}),
    "hangs": HangingNvml,
    "crashes": CrashingNvml,
}
_driver: FakeNvml | None = None


def __getattr__(name: str) -> Any:
    """Return the attribute of this process's driver."""
    global _driver
    if name.startswith("__") or (_driver is None and SHAPE_VARIABLE not in os.environ):
        raise AttributeError(name)  # pickle searches all modules for objects without `__module__`
    if _driver is None:
        _driver = SHAPES[os.environ[SHAPE_VARIABLE]]()
        memory = json.loads(os.environ.get("DET_TEST_NVML_MEMORY", "{}"))
        _driver.processes = {int(pid): used for pid, used in memory.items()}
    return getattr(_driver, name)
