"""`python -m det_jupyter.agent.sampler.gpu_process INTERVAL_S UUID...` prints samples of GPUs.

One JSON object per line:

    {"values": {source: {name: value}}, "memory": {pid: bytes},
     "missing": {source: {name: reason}}}    `missing` only when it has changed
    {"failed": reason}                       the last line, when NVML does not work

A number on a line of standard input sets the interval; the end of standard input ends the process.
It is a process of its own because calls into the driver can hang or crash, and it imports little,
so that it starts fast.

When a query of NVML fails, its names are reported as missing with the reason, and the other
queries go on. A query that a GPU or its driver does not support is not repeated.

NVML measures PCIe traffic for 20 ms in each call. So one GPU is measured at a time, after the
sample was printed, with pauses in proportion to the time that the calls took.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.agent.sampler.readings import Rates, Values
from det_jupyter.contract.host.nvml_driver import DriverError, initialised_nvml, text_of
from det_jupyter.contract.values.measures import GPU

_ALL_LINKS = 0xFFFFFFFF  # scope of an NVLink field that is summed over the links
_PCIE_SHARE = 0.1  # largest share of the time spent in calls that measure PCIe
_PCIE_CPU_SHARE = 0.001  # largest share of a core that they take
_PROCESSES_S = 1.0  # how often processes are listed
_MOST_FAILURES = 5  # samples without a value after which the process exits, to be restarted

LOST = (
    "the GPU does not answer any more (it has fallen off its bus); `dmesg` has the reason (Xid), "
    "and the computer needs a restart"
)
GONE = "the driver does not list this GPU"
NOT_SUPPORTED = "this GPU does not report it"
NO_NVLINK = "this GPU has no NVLink, or does not count its traffic"
NO_PERMISSION = "no permission to read it: the driver allows it to administrators only"
TOO_OLD = "the driver is too old to report it"
BINDINGS_TOO_OLD = "nvidia-ml-py is too old to read it: pip install -U nvidia-ml-py"
OF_WHOLE_GPUS = "the driver measures this for whole GPUs, not for MIG slices"

Query = Callable[[Any, Any], Values]  # given NVML and a device's handle


@dataclass(slots=True)
class GpuReading:
    """One reading of all GPUs."""

    values: dict[str, Values] = field(default_factory=dict)  # by source
    missing: dict[str, dict[str, str]] = field(default_factory=dict)  # reasons by source and name
    memory: dict[int, int] = field(default_factory=dict)  # bytes of GPU memory by pid


def _throttled(nvml: Any, handle: Any) -> Values:
    try:
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (AttributeError, nvml.NVMLError):  # drivers before 535 have only the former name
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    power, hardware = 0x4, 0x8 | 0x80
    software_thermal, hardware_thermal = 0x20, 0x40
    is_hot = bool(reasons & hardware_thermal)  # the driver sets the bit of 0x8 (hardware) as well
    return {
        "gpu_throttled_power": float(bool(reasons & power)),
        "gpu_throttled_thermal": float(is_hot or bool(reasons & software_thermal)),
        "gpu_throttled_hardware": float(bool(reasons & hardware) and not is_hot),
    }


def _memory(nvml: Any, handle: Any) -> Values:
    return {"gpu_free_memory": float(nvml.nvmlDeviceGetMemoryInfo(handle).free)}


def _nvlink_bytes(nvml: Any, handle: Any) -> Values:
    """Return the bytes that were sent and received over all links together."""
    names = ("nvlink_sent", "nvlink_received")
    ids = (nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX)
    answers = nvml.nvmlDeviceGetFieldValues(handle, [(id, _ALL_LINKS) for id in ids])
    for answer in answers:
        if answer.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(answer.nvmlReturn)
    return {
        name: 1024.0 * answer.value.ullVal for name, answer in zip(names, answers, strict=True)
    }


# NVML's temperature sensor 0 is the GPU's own; clock 1 is that of the multiprocessors.
QUERIES: Mapping[tuple[str, ...], Query] = {
    ("gpu_util",): lambda nvml, gpu: {
        "gpu_util": float(nvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
    },
    ("gpu_free_memory",): _memory,
    ("gpu_power",): lambda nvml, gpu: {"gpu_power": nvml.nvmlDeviceGetPowerUsage(gpu) / 1000},
    ("gpu_temperature",): lambda nvml, gpu: {
        "gpu_temperature": float(nvml.nvmlDeviceGetTemperature(gpu, 0))
    },
    ("gpu_clock",): lambda nvml, gpu: {"gpu_clock": float(nvml.nvmlDeviceGetClockInfo(gpu, 1))},
    ("gpu_throttled_power", "gpu_throttled_thermal", "gpu_throttled_hardware"): _throttled,
    ("nvlink_sent", "nvlink_received"): _nvlink_bytes,
}
_PCIE = ("pcie_sent", "pcie_received")


class _Gpu:
    """One GPU: the rates of its counters, and the queries that it does not support."""

    def __init__(self, uuid: str) -> None:
        self.source = f"gpu:{uuid}"
        self.uuid = uuid
        self.handle: Any = None
        self.rates = Rates()
        self.pcie: Values = {}  # measured since the last sample
        self.unsupported: dict[tuple[str, ...], str] = {}  # reasons by the names of a query


class GpuReader:
    """Reads GPUs from NVML.

    Args:
        nvml: The initialised module `pynvml`, or one with its interface.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self, nvml: Any, uuids: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._nvml = nvml
        self._gpus = [_Gpu(uuid) for uuid in uuids]
        self._clock = clock
        self._processes_at = self._pcie_at = 0.0
        self._turn = 0
        self._memory: dict[int, int] = {}

    def read(self) -> GpuReading:
        """Read all values; those of PCIe traffic are the ones that `measure_pcie` has measured."""
        reading = GpuReading()
        with_processes = self._clock() >= self._processes_at
        if with_processes:
            self._processes_at = self._clock() + _PROCESSES_S
            self._memory = {}
        for gpu in self._gpus:
            try:
                handle = self._handle(gpu)
                self._read(gpu, handle, reading)
                self._read_slices(gpu, handle, reading)
                if with_processes:
                    self._add_processes(handle)
            except self._nvml.NVMLError as error:
                reading.values.pop(gpu.source, None)
                reading.missing[gpu.source] = dict.fromkeys(GPU, self._reason(error))
                gpu.handle = None
                gpu.rates = Rates()
        reading.memory = self._memory
        return reading

    def _handle(self, gpu: _Gpu) -> Any:
        if gpu.handle is None:
            gpu.handle = self._nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        return gpu.handle

    def _read(self, gpu: _Gpu, handle: Any, reading: GpuReading) -> None:
        values = reading.values.setdefault(gpu.source, {})
        missing = reading.missing.setdefault(gpu.source, {})
        for names, query in QUERIES.items():
            if names not in gpu.unsupported:
                try:
                    values |= query(self._nvml, handle)
                    continue
                except (self._nvml.NVMLError, AttributeError) as error:
                    reason = self._failure_reason(gpu, names, error)
            else:
                reason = gpu.unsupported[names]
            missing |= dict.fromkeys(names, reason)
        counts = {name: values.pop(name) for name in list(values) if name.startswith("nvlink")}
        values |= gpu.rates.of(counts, self._clock()) | gpu.pcie
        gpu.pcie = {}
        if _PCIE in gpu.unsupported:
            missing |= dict.fromkeys(_PCIE, gpu.unsupported[_PCIE])

    def _failure_reason(self, gpu: _Gpu, names: tuple[str, ...], error: Exception) -> str:
        """Return why a query failed, and record queries that the GPU does not support.

        Raises:
            NVMLError: The GPU is lost.
        """
        nvml = self._nvml
        if isinstance(error, AttributeError):
            reason = gpu.unsupported[names] = BINDINGS_TOO_OLD
            return reason
        value = getattr(error, "value", None)
        if value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED):
            raise error
        reason = self._reason(error)
        if reason == NOT_SUPPORTED and names[0].startswith("nvlink"):
            reason = NO_NVLINK
        if value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            gpu.unsupported[names] = reason
        return reason

    def _reason(self, error: Exception) -> str:
        nvml = self._nvml
        known = {
            nvml.NVML_ERROR_NOT_SUPPORTED: NOT_SUPPORTED,
            nvml.NVML_ERROR_NO_PERMISSION: NO_PERMISSION,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND: TOO_OLD,
            nvml.NVML_ERROR_GPU_IS_LOST: LOST,
            nvml.NVML_ERROR_NOT_FOUND: GONE,
        }
        return known.get(getattr(error, "value", None), f"the driver says: {error}")

    def _read_slices(self, gpu: _Gpu, handle: Any, reading: GpuReading) -> None:
        """Read the memory of the MIG slices; the driver measures nothing else of them."""
        for device in self._slices(gpu, handle):
            source = f"mig:{text_of(self._nvml.nvmlDeviceGetUUID(device))}"
            reading.values[source] = _memory(self._nvml, device)
            others = [name for name in GPU if name != "gpu_free_memory"]
            reading.missing[source] = dict.fromkeys(others, OF_WHOLE_GPUS)

    def _slices(self, gpu: _Gpu, handle: Any) -> Iterator[Any]:
        nvml = self._nvml
        if ("mig",) in gpu.unsupported:
            return
        try:
            is_on, _ = nvml.nvmlDeviceGetMigMode(handle)
        except (nvml.NVMLError, AttributeError) as error:
            self._failure_reason(gpu, ("mig",), error)
            return
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if is_on else 0):
            try:
                yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:  # an index without a slice
                    raise

    def _add_processes(self, handle: Any) -> None:
        try:
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        except self._nvml.NVMLError:
            return
        for process in processes:
            used = process.usedGpuMemory or 0  # None without permission
            self._memory[process.pid] = self._memory.get(process.pid, 0) + used

    def measure_pcie(self) -> None:
        """Measure the PCIe traffic of the next GPU, if the pause since the last call is over."""
        began, cpu = self._clock(), time.thread_time()
        if began < self._pcie_at or not self._gpus:
            return
        self._turn = (self._turn + 1) % len(self._gpus)
        gpu = self._gpus[self._turn]
        if _PCIE not in gpu.unsupported:
            self._measure_pcie_of(gpu)
        wall_s, cpu_s = self._clock() - began, time.thread_time() - cpu
        self._pcie_at = began + max(wall_s / _PCIE_SHARE, cpu_s / _PCIE_CPU_SHARE)

    def _measure_pcie_of(self, gpu: _Gpu) -> None:
        nvml = self._nvml
        try:
            handle = self._handle(gpu)
            for counter, name in enumerate(_PCIE):  # in kB/s
                gpu.pcie[name] = 1000.0 * nvml.nvmlDeviceGetPcieThroughput(handle, counter)
        except nvml.NVMLError as error:
            if error.value in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                gpu.unsupported[_PCIE] = self._reason(error)


def main(interval_s: float, uuids: list[str]) -> int:
    """Print samples until standard input or output ends."""
    try:
        return _print_samples(interval_s, uuids)
    except BrokenPipeError:
        return 0


def _print_samples(interval_s: float, uuids: list[str]) -> int:
    try:
        reader = GpuReader(initialised_nvml(), uuids)
    except DriverError as error:
        _print({"failed": str(error)})
        return 1
    printed_missing: Mapping[str, Any] = {}
    failures = 0
    due = time.monotonic()
    while True:
        reading = reader.read()
        sample: dict[str, Any] = {"values": reading.values, "memory": reading.memory}
        if reading.missing != printed_missing:
            sample["missing"] = printed_missing = reading.missing
        _print(sample)
        failures = 0 if any(reading.values.values()) else failures + 1
        if failures == _MOST_FAILURES:
            return 1
        reader.measure_pcie()
        due = max(due + interval_s, time.monotonic())
        if select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
            words = os.read(0, 1000).split()
            if not words:
                return 0
            interval_s = float(words[-1])
            due = time.monotonic()


def _print(line: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
