"""What is read of GPUs, from drivers of all shapes: none, 1, 8, MIG, failing half way, lost."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.sampler import gpu_process
from det_jupyter.agent.sampler.gpu_process import (
    BINDINGS_TOO_OLD,
    GONE,
    LOST,
    NO_NVLINK,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OF_WHOLE_GPUS,
    TOO_OLD,
    GpuReader,
    GpuReading,
)
from det_jupyter.contract.values.measures import GPU
from tests import fake_nvml
from tests.fake_nvml import GIB, FakeNvml


def read_twice(nvml: FakeNvml, uuids: Sequence[str] = ("GPU-0",)) -> GpuReading:
    """Read with a second between; the links have carried 10 and 20 KiB."""
    now = iter([float(second) for second in range(1000) for _ in range(1)])
    reader = GpuReader(nvml, uuids, clock=lambda: next(now))
    reader.read()
    for _ in uuids:
        reader.measure_pcie()
        reader._pcie_at = 0.0
    nvml.links = {138: 10 << 20, 139: 20 << 20}
    return reader.read()


@pytest.mark.parametrize("num_gpus", [1, 8])
def test_a_healthy_gpu_has_all_values(num_gpus: int) -> None:
    uuids = [f"GPU-{index}" for index in range(num_gpus)]
    reading = read_twice(FakeNvml(num_gpus), uuids)
    assert set(reading.values) == {f"gpu:{uuid}" for uuid in uuids}
    assert set(map(frozenset, reading.values.values())) == {frozenset(GPU)}
    assert reading.missing == {source: {} for source in reading.values}
    values = reading.values["gpu:GPU-0"]
    assert values["nvlink_received"] == 2 * values["nvlink_sent"] > 0
    assert {name: values[name] for name in [*list(GPU)[:8], "pcie_sent", "pcie_received"]} == {
        "gpu_util": 87,
        "gpu_free_memory": 78 * GIB,
        "gpu_power": 612.345,
        "gpu_temperature": 64,
        "gpu_clock": 1980,
        "gpu_throttled_power": 0,
        "gpu_throttled_thermal": 0,
        "gpu_throttled_hardware": 0,
        "pcie_sent": 5_000_000,
        "pcie_received": 7_000_000,
    }


@pytest.mark.parametrize(
    ("bits", "power", "thermal", "hardware"),
    [
        (0x0, 0, 0, 0),
        (0x1, 0, 0, 0),  # idle
        (0x4, 1, 0, 0),
        (0x20, 0, 1, 0),
        (0x48, 0, 1, 0),  # hardware, because of its temperature
        (0x88, 0, 0, 1),  # hardware, because of the power supply
        (0x24, 1, 1, 0),
    ],
)
def test_the_reasons_of_a_lowered_clock_are_told_apart(
    bits: int, power: int, thermal: int, hardware: int
) -> None:
    nvml = FakeNvml()
    nvml.throttle_reasons = bits
    values = GpuReader(nvml, ["GPU-0"]).read().values["gpu:GPU-0"]
    names = ("gpu_throttled_power", "gpu_throttled_thermal", "gpu_throttled_hardware")
    assert tuple(values[name] for name in names) == (power, thermal, hardware)


def test_an_older_driver_is_asked_for_the_reasons_by_their_old_name() -> None:
    error = fake_nvml.FUNCTION_NOT_FOUND
    nvml = FakeNvml(errors={"nvmlDeviceGetCurrentClocksEventReasons": error})
    nvml.throttle_reasons = 0x4
    reading = GpuReader(nvml, ["GPU-0"]).read()
    assert reading.values["gpu:GPU-0"]["gpu_throttled_power"] == 1


@pytest.mark.parametrize(
    ("function", "error", "names", "reason"),
    [
        ("nvmlDeviceGetPowerUsage", fake_nvml.NOT_SUPPORTED, ["gpu_power"], NOT_SUPPORTED),
        ("nvmlDeviceGetUtilizationRates", fake_nvml.NO_PERMISSION, ["gpu_util"], NO_PERMISSION),
        ("nvmlDeviceGetTemperature", fake_nvml.UNKNOWN, ["gpu_temperature"],
         "the driver says: Unknown Error"),
        ("nvmlDeviceGetFieldValues", fake_nvml.NOT_SUPPORTED,
         ["nvlink_sent", "nvlink_received"], NO_NVLINK),
        ("nvmlDeviceGetFieldValues", fake_nvml.FUNCTION_NOT_FOUND,
         ["nvlink_sent", "nvlink_received"], TOO_OLD),
        ("nvmlDeviceGetPcieThroughput", fake_nvml.NOT_SUPPORTED,
         ["pcie_sent", "pcie_received"], NOT_SUPPORTED),
        ("nvmlDeviceGetComputeRunningProcesses", fake_nvml.UNKNOWN, [], ""),
    ],
)  # fmt: skip
def test_a_driver_that_fails_half_way_gives_the_other_values_and_the_reason(
    function: str, error: int, names: list[str], reason: str
) -> None:
    reading = read_twice(FakeNvml(errors={function: error}))
    assert reading.missing == {"gpu:GPU-0": dict.fromkeys(names, reason)}
    assert reading.values["gpu:GPU-0"].keys() == GPU.keys() - set(names)


def test_what_a_gpu_cannot_answer_is_asked_once_and_what_failed_is_asked_again() -> None:
    nvml = FakeNvml(
        errors={
            "nvmlDeviceGetPowerUsage": fake_nvml.NOT_SUPPORTED,
            "nvmlDeviceGetTemperature": fake_nvml.UNKNOWN,
        }
    )
    reader = GpuReader(nvml, ["GPU-0"])
    readings = [reader.read() for _ in range(3)]
    assert nvml.asked.count("nvmlDeviceGetPowerUsage") == 1
    assert nvml.asked.count("nvmlDeviceGetTemperature") == 3
    assert all(reading.missing == readings[0].missing for reading in readings)
    del nvml.errors["nvmlDeviceGetTemperature"]
    assert reader.read().missing == {"gpu:GPU-0": {"gpu_power": NOT_SUPPORTED}}


def test_a_gpu_that_falls_off_the_bus_loses_its_values_and_the_others_keep_theirs() -> None:
    nvml = FakeNvml(2)
    reader = GpuReader(nvml, ["GPU-0", "GPU-1"])
    assert set(reader.read().values) == {"gpu:GPU-0", "gpu:GPU-1"}
    nvml.lost = {1}
    reading = reader.read()
    reader.measure_pcie()
    assert set(reading.values) == {"gpu:GPU-0"}
    assert reading.missing["gpu:GPU-1"] == dict.fromkeys(GPU, LOST)
    assert reading.missing["gpu:GPU-0"] == {}
    nvml.lost = set()
    assert "gpu_util" in reader.read().values["gpu:GPU-1"]


def test_a_gpu_that_the_driver_does_not_list_is_missing() -> None:
    reading = GpuReader(FakeNvml(1), ["GPU-7"]).read()
    assert (reading.values, reading.missing) == ({}, {"gpu:GPU-7": dict.fromkeys(GPU, GONE)})


def test_mig_slices_have_memory_and_say_why_there_is_no_more() -> None:
    reading = GpuReader(FakeNvml(2, mig=3), ["GPU-0", "GPU-1"]).read()
    slices = {source: values for source, values in reading.values.items() if source[:3] == "mig"}
    assert slices == {f"mig:MIG-{index}": {"gpu_free_memory": 8 * GIB} for index in range(3)}
    others = dict.fromkeys(GPU.keys() - {"gpu_free_memory"}, OF_WHOLE_GPUS)
    assert reading.missing["mig:MIG-2"] == others
    assert reading.values["gpu:GPU-0"]["gpu_power"] == 612.345


def test_memory_is_listed_by_process_even_if_the_driver_hides_how_much() -> None:
    nvml = FakeNvml(processes={10: 5 * GIB, 11: None})
    assert GpuReader(nvml, ["GPU-0"]).read().memory == {10: 5 * GIB, 11: 0}


def test_links_without_an_answer_of_their_own_have_no_traffic() -> None:
    class WithoutLinks(FakeNvml):
        def nvmlDeviceGetFieldValues(self, handle: str, fields: Any) -> list[SimpleNamespace]:
            return [SimpleNamespace(nvmlReturn=fake_nvml.NOT_SUPPORTED) for _ in fields]

    reading = GpuReader(WithoutLinks(), ["GPU-0"]).read()
    assert reading.missing["gpu:GPU-0"]["nvlink_sent"] == NO_NVLINK


def test_pcie_is_measured_of_one_gpu_at_a_time_with_pauses() -> None:
    now = [0.0]

    class Slow(FakeNvml):
        def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
            now[0] += 0.02
            return 1

    nvml = Slow(2)
    reader = GpuReader(nvml, ["GPU-0", "GPU-1"], clock=lambda: now[0])
    for tenth in range(100):  # ten seconds
        now[0] = max(now[0], tenth / 10)
        reader.measure_pcie()
    assert 40 <= nvml.asked.count("nvmlDeviceGetPcieThroughput") <= 52


def test_processes_are_listed_once_a_second_and_those_on_several_gpus_once() -> None:
    class OnBoth(FakeNvml):
        def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
            return [SimpleNamespace(pid=10, usedGpuMemory=GIB)]

    nvml, now = OnBoth(2), [0.0]
    reader = GpuReader(nvml, ["GPU-0", "GPU-1"], clock=lambda: now[0])
    listed = []
    for seconds in (0.0, 0.5, 0.75, 1.0, 1.25, 2.5):
        now[0] = seconds
        assert reader.read().memory == {10: 2 * GIB}
        listed.append(nvml.asked.count("nvmlDeviceGetComputeRunningProcesses") // 2)
    assert listed == [1, 1, 1, 2, 2, 3]


def test_traffic_is_told_once_and_counted_anew_after_a_gpu_was_lost() -> None:
    now = iter(map(float, range(1000)))
    nvml = FakeNvml()
    reader = GpuReader(nvml, ["GPU-0"], clock=lambda: next(now))
    reader.measure_pcie()
    found = [reader.read().values["gpu:GPU-0"] for _ in range(2)]
    assert ["pcie_sent" in values for values in found] == [True, False]
    assert ["nvlink_sent" in values for values in found] == [False, True]
    nvml.lost = {0}
    reader.read()
    nvml.lost = set()
    assert "nvlink_sent" not in reader.read().values["gpu:GPU-0"]
    assert nvml.asked.count("nvmlDeviceGetHandleByUUID") == 2  # it has another handle now


@pytest.mark.parametrize(("wall_s", "cpu_s", "pause_s"), [(0.02, 0.0, 0.2), (0.02, 0.001, 1.0)])
def test_pauses_between_measurements_of_pcie_are_in_proportion_to_what_they_take(
    monkeypatch: pytest.MonkeyPatch, wall_s: float, cpu_s: float, pause_s: float
) -> None:
    now, cpu = [50.0], [7.0]

    class Slow(FakeNvml):
        def nvmlDeviceGetPcieThroughput(self, handle: str, counter: int) -> int:
            now[0] += wall_s / 2
            cpu[0] += cpu_s / 2
            return 1

    monkeypatch.setattr(gpu_process, "time", SimpleNamespace(thread_time=lambda: cpu[0]))
    nvml = Slow()
    reader = GpuReader(nvml, ["GPU-0"], clock=lambda: now[0])
    reader.measure_pcie()
    for seconds, num in ((pause_s - 0.001, 2), (pause_s + 0.001, 4)):
        now[0] = 50.0 + seconds
        reader.measure_pcie()
        assert nvml.asked.count("nvmlDeviceGetPcieThroughput") == num


def test_without_gpus_nothing_is_measured() -> None:
    reader = GpuReader(FakeNvml(), [])
    reader.measure_pcie()
    assert reader.read() == GpuReading()


def test_what_the_bindings_do_not_know_and_slices_are_asked_for_once() -> None:
    class Old(FakeNvml):
        nvmlDeviceGetTemperature = property()

    reader = GpuReader(Old(), ["GPU-0"])
    assert reader.read().missing["gpu:GPU-0"] == {"gpu_temperature": BINDINGS_TOO_OLD}
    nvml = FakeNvml(errors={"nvmlDeviceGetPcieThroughput": fake_nvml.NOT_SUPPORTED})
    reader = GpuReader(nvml, ["GPU-0"])
    for _ in range(3):
        reader.read()
        reader._pcie_at = 0.0
        reader.measure_pcie()
    assert nvml.asked.count("nvmlDeviceGetPcieThroughput") == 1
    assert nvml.asked.count("nvmlDeviceGetMigMode") == 1
    nvml = FakeNvml(2, mig=3)
    GpuReader(nvml, ["GPU-0", "GPU-1"]).read()
    assert nvml.asked.count("nvmlDeviceGetMigDeviceHandleByIndex") == 7  # of the first one


@pytest.mark.parametrize("error", [fake_nvml.UNINITIALIZED, fake_nvml.UNKNOWN])
def test_a_driver_that_was_shut_down_tells_nothing_of_a_gpu(error: int) -> None:
    nvml = FakeNvml(errors={"nvmlDeviceGetPowerUsage": error})
    is_lost = error == fake_nvml.UNINITIALIZED
    reading = GpuReader(nvml, ["GPU-0"]).read()
    assert reading.values.keys() == (set() if is_lost else {"gpu:GPU-0"})
    assert len(reading.missing["gpu:GPU-0"]) == (len(GPU) if is_lost else 1)


def test_slices_that_cannot_be_read_are_an_error_of_their_gpu() -> None:
    nvml = FakeNvml(mig=2, errors={"nvmlDeviceGetMigDeviceHandleByIndex": fake_nvml.UNKNOWN})
    reading = GpuReader(nvml, ["GPU-0"]).read()
    assert reading.values == {}
    assert set(reading.missing["gpu:GPU-0"].values()) == {"the driver says: Unknown Error"}
