"""Errors of devices: from the kernel's log and NVML to slots that are lost, and back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.agent.devices.health import DeviceHealth
from det_jupyter.agent.devices.kernel_log import KernelLog
from det_jupyter.agent.devices.nvml import NvmlProbe, cuda_devices
from det_jupyter.agent.devices.xid_log import XidMessage, parse_xids
from det_jupyter.contract.messages import DeviceFault, SlotView
from tests import fake_nvml
from tests.fake_nvml import FakeNvml

GPUS = [SlotView(id=i, kind="cuda", index=i + 4, name="H100", uuid=f"GPU-{i}") for i in range(2)]
FELL = (
    "NVRM: Xid (PCI:0000:3c:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (FELL, [XidMessage("0:3c:0", 79, None)]),
        (
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 00000010, MMU Fault",
            [XidMessage("0:3b:0", 31, 4711)],
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 13, pid='4711', name=python, Graphics Exception",
            [XidMessage("0:3b:0", 13, 4711)],
        ),
        ("NVRM: Xid (PCI:0001:00:00): 48, DBE", [XidMessage("1:0:0", 48, None)]),
        ("NVRM: Xid (0000:3b:00): 43, Ch 00000001", [XidMessage("0:3b:0", 43, None)]),
        (
            "NVRM: Xid (PCI:0000:3b:00 GPU-I:02): 94, pid=9, name=python3, Contained",
            [XidMessage("0:3b:0", 94, 9)],
        ),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-6fd0", []),
        ("python: NVRM: Xid (nothing)", []),
    ],
)
def test_errors_of_gpus_are_found_in_the_log(message: str, found: list[XidMessage]) -> None:
    assert parse_xids(["usb 1-1: new device", message]) == found


class Devices:
    """Two GPUs with a driver and a kernel's log of our own."""

    def __init__(self, folder: Path) -> None:
        self.nvml = FakeNvml(2)
        self.probe = NvmlProbe(self.nvml)
        self.log = folder / "kmsg"
        self.log.touch()
        self.health = DeviceHealth(GPUS, KernelLog(self.log))
        self.look(0.0)

    def look(self, now: float) -> dict[int, str]:
        self.health.note_log(now)
        self.probe.check(GPUS, self.health, now)
        return {slot: str(fault) for slot, fault in self.health.lost.items()}

    def write(self, message: str) -> None:
        with self.log.open("a") as file:
            file.write(f"3,1,2,-;{message}\n")


@pytest.fixture
def devices(tmp_path: Path) -> Devices:
    return Devices(tmp_path)


def test_a_gpu_that_fell_off_the_bus_is_lost_until_nvml_reaches_it_again(devices: Devices) -> None:
    devices.write(FELL)
    assert devices.look(1.0) == {1: "GPU 5 is lost (Xid 79: it has fallen off the bus)"}
    devices.nvml.lost = {1}
    assert devices.look(3.0) == devices.look(700.0) == devices.look(1.0)
    assert devices.health.lost[1].at == 1.0
    devices.nvml.lost = set()
    assert devices.look(900.0) == {}


def test_without_the_kernels_log_nvml_finds_it(devices: Devices) -> None:
    devices.nvml.lost = {0}
    assert devices.look(5.0) == {0: "GPU 4 is lost (its driver does not reach it)"}
    devices.nvml.lost = set()
    assert devices.look(14.0).keys() == {0}, "its loss may not have been reported yet"
    assert devices.look(15.0) == {}


def test_an_uncorrected_error_ends_with_the_reset_that_clears_its_count(devices: Devices) -> None:
    devices.nvml.uncorrected = {"GPU-1": 1}
    devices.nvml.events = [("GPU-1", 48)]
    assert devices.look(1.0) == {1: "GPU 5 is lost (Xid 48: uncorrectable memory error)"}
    assert devices.look(400.0)
    devices.nvml.uncorrected = {"GPU-1": 0}
    assert devices.look(401.0) == {}


def test_a_lost_gpu_that_nvml_always_reaches_is_tried_again_later(devices: Devices) -> None:
    devices.nvml.events = [("GPU-0", 119)]
    assert devices.look(1.0).keys() == devices.look(600.0).keys() == {0}
    assert devices.look(601.0) == {}


def test_errors_of_programs_take_no_gpu_away(devices: Devices) -> None:
    devices.nvml.events = [("GPU-0", 31), ("GPU-0", 63), ("GPU-1", 12345)]
    assert devices.look(1.0) == {}
    found = devices.health.faults_of([0, 1], 0.5, [7])
    assert {slot: fault.xid for slot, fault in found.items()} == {0: 63, 1: 12345}
    assert str(found[1]) == "GPU 5 had an error (Xid 12345)"
    assert devices.health.faults_of([0, 1], 1.5, [7]) == {}, "before the gang was started"


def test_an_error_of_another_program_explains_no_crash(devices: Devices) -> None:
    for pid in (os.getpid(), 1 << 22):
        devices.write(f"NVRM: Xid (PCI:0000:3b:00): 31, pid={pid}, name=python3, MMU Fault")
        devices.look(100.0 * pid)
    (found,) = devices.health.faults_of([0], 0.0, []).values()
    assert found.pid == 1 << 22, "of no process here: of one in a container, perhaps of ours"
    (found,) = devices.health.faults_of([0], 0.0, [os.getpid()]).values()
    assert found.pid == os.getpid(), "the first explains the second"


def test_the_log_and_nvml_report_one_error_once(devices: Devices) -> None:
    devices.write(FELL)
    devices.nvml.events = [("GPU-1", 79)]
    devices.look(1.0)
    assert len(devices.health._faults[1]) == 1


def test_an_error_of_nvml_that_is_no_loss_changes_nothing(devices: Devices) -> None:
    devices.nvml.errors = {"nvmlDeviceGetMemoryInfo": fake_nvml.UNKNOWN}
    assert devices.look(1.0) == {}
    devices.nvml.errors, devices.nvml.events = {}, [("GPU-1", 95)]
    devices.nvml.uncorrected = {"GPU-1": 2}
    devices.look(2.0)
    devices.nvml.errors = {"nvmlDeviceGetHandleByUUID": fake_nvml.UNKNOWN}
    assert devices.look(3.0).keys() == {1}


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMemoryInfo"])
def test_a_lost_gpu_is_not_back_because_nvml_raises_another_error(
    devices: Devices, function: str
) -> None:
    """After Xid 79 drivers answer "GPU is lost" or "Unknown Error", in turns."""
    devices.nvml.lost = {0}
    devices.look(5.0)
    devices.nvml.lost, devices.nvml.errors = set(), {function: fake_nvml.UNKNOWN}
    assert devices.look(20.0).keys() == devices.look(700.0).keys() == {0}
    devices.nvml.errors = {}
    assert devices.look(702.0) == {}


def test_a_gpu_that_shares_the_computers_memory_comes_back_too(devices: Devices) -> None:
    devices.nvml.errors = {"nvmlDeviceGetMemoryInfo": fake_nvml.NOT_SUPPORTED}
    devices.nvml.events = [("GPU-0", 119)]
    assert devices.look(1.0).keys() == {0}
    assert devices.look(601.0) == {}


def test_a_loss_explains_no_crash_once_the_gpu_is_back(devices: Devices) -> None:
    """The master would take the slot away, and the agent would have no change to report."""
    devices.nvml.lost = {0}
    devices.look(5.0)
    assert devices.health.faults_of([0], 0.0, [])[0].is_lost
    devices.nvml.lost = set()
    assert devices.look(20.0) == {}
    assert devices.health.faults_of([0], 0.0, []) == {}


def test_a_clock_that_is_set_back_keeps_no_gpu_lost(devices: Devices) -> None:
    devices.nvml.events = [("GPU-0", 119)]
    assert devices.look(10_000.0).keys() == {0}
    assert devices.look(100.0) == {}


def test_other_gpus_are_offered_if_one_is_lost_when_the_agent_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nvml = FakeNvml(3, lost=[1])
    monkeypatch.setattr("det_jupyter.agent.devices.nvml.initialised_nvml", lambda: nvml)
    assert [device.index for device in cuda_devices()] == [0, 2]


def test_a_gpu_that_was_not_reached_once_is_lost_for_long_when_it_has_an_error_later(
    devices: Devices,
) -> None:
    devices.nvml.lost = {0}
    devices.look(5.0)
    devices.nvml.lost = set()
    assert devices.look(20.0) == {}
    devices.nvml.events = [("GPU-0", 119)]
    assert devices.look(30.0).keys() == devices.look(100.0).keys() == devices.look(629.0).keys()
    assert devices.look(630.0) == {}


def test_a_loss_is_told_once_however_long_it_lasts(devices: Devices) -> None:
    devices.nvml.lost = {0}
    devices.look(5.0)
    assert devices.look(100.0).keys() == {0}
    assert devices.health.faults_of([0], 5.0, []).keys() == {0}
    assert devices.health.faults_of([0], 5.1, []) == {}


@pytest.mark.parametrize(("after_s", "is_another"), [(10.0, False), (10.5, True)])
def test_the_same_error_10_seconds_later_is_another_one(
    devices: Devices, after_s: float, is_another: bool
) -> None:
    for now in (1.0, 1.0 + after_s):
        devices.nvml.events = [("GPU-0", 31)]
        devices.look(now)
    assert (devices.health.faults_of([0], 2.0, []) != {}) is is_another


def test_faults_of_simulated_devices_explain_crashes_too() -> None:
    health = DeviceHealth(GPUS)
    first, second = (DeviceFault(index=4, at=at, xid=79) for at in (1.0, 2.0))
    for lost in ({0: first}, {0: first}, {0: second}):
        health.set_lost(lost)
    assert health.lost == {0: second}
    assert health.faults_of([0], 1.0, []) == {0: first}
    assert health.faults_of([0], 1.5, []) == {0: second}
    health.set_lost({})
    assert (health.lost, health.faults_of([0], 1.0, [])) == ({}, {})


def test_a_gpu_is_located_once_and_all_of_its_errors_are_asked_for(devices: Devices) -> None:
    devices.nvml.events = [("GPU-0", 31), ("GPU-0", 13), ("GPU-1", 63)]
    devices.look(1.0)
    found = devices.health.faults_of([0, 1], 0.0, [])
    assert {slot: fault.xid for slot, fault in found.items()} == {0: 31, 1: 63}
    assert devices.nvml.asked.count("nvmlDeviceGetPciInfo") == 2
    assert devices.nvml.asked.count("nvmlDeviceRegisterEvents") == 2
