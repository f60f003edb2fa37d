"""Which agents a process is, and which slots each offers."""

from __future__ import annotations

import logging
import os
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.devices.offered_slots import (
    discover_slots,
    offered_agents,
    threads_per_slot,
)


class FakeNvmlError(Exception):
    pass


def fake_nvml(num_devices: int, *, broken: str = "") -> Any:
    """Return a module that says what NVML would; `broken` names the call that fails."""

    def call(name: str, result: Any) -> Any:
        def function(*arguments: Any) -> Any:
            if name == broken:
                raise FakeNvmlError(f"{name} does not work")
            return result(*arguments) if callable(result) else result

        return function

    return SimpleNamespace(
        NVMLError=FakeNvmlError,
        nvmlInit=call("nvmlInit", None),
        nvmlShutdown=call("nvmlShutdown", None),
        nvmlDeviceGetCount=call("nvmlDeviceGetCount", num_devices),
        nvmlDeviceGetHandleByIndex=call("nvmlDeviceGetHandleByIndex", lambda index: index),
        nvmlDeviceGetName=call("nvmlDeviceGetName", lambda handle: b"H100"),
        nvmlDeviceGetUUID=call("nvmlDeviceGetUUID", lambda handle: f"GPU-{'abcd'[handle]}0-1"),
        nvmlDeviceGetMemoryInfo=call(
            "nvmlDeviceGetMemoryInfo", lambda handle: SimpleNamespace(total=80 << 30)
        ),
    )


def test_every_cuda_device_is_a_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, ended = fake_nvml(2), list[str]()
    nvml.nvmlShutdown = lambda: ended.append("NVML")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    slots = discover_slots({})
    assert ended == ["NVML"]
    assert [(slot.id, slot.kind, slot.index, slot.name, slot.uuid) for slot in slots] == [
        (0, "cuda", 0, "H100", "GPU-a0-1"),
        (1, "cuda", 1, "H100", "GPU-b0-1"),
    ]
    assert slots[0].memory_bytes == 80 << 30


@pytest.mark.parametrize(
    ("variable", "indices"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("3,1", [3, 1]),
        (" 2 , 0 ", [2, 0]),
        ("GPU-c0-1", [2]),
        ("GPU-d,GPU-a", [3, 0]),
        ("GPU-b0,0", [1, 0]),
        ("1,-1,2", [1]),
        ("0,9,1", [0]),
        ("2,GPU-x,1", [2]),
        ("1,GPU-,2", [1]),  # the beginning of four UUIDs
    ],
)
def test_cuda_visible_devices_chooses_and_orders(
    monkeypatch: pytest.MonkeyPatch, variable: str, indices: list[int]
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(4))
    slots = discover_slots({"CUDA_VISIBLE_DEVICES": variable})
    assert [(slot.id, slot.kind, slot.index) for slot in slots] == [
        (id, "cuda", index) for id, index in enumerate(indices)
    ]


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        ("", []),
        ("-1", []),
        ("0,0", ["names a device twice; all are hidden"]),
        ("GPU-a0,0", ["names a device twice; all are hidden"]),
        ("9", ["names no device; it and what follows are hidden"]),
    ],
)
def test_hidden_devices_leave_cpu_slots(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    told: list[str],
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    slots = discover_slots({"CUDA_VISIBLE_DEVICES": variable})
    assert [(slot.id, slot.kind, slot.index) for slot in slots] == [
        (0, "cpu", 0),
        (1, "cpu", 1),
        (2, "cpu", 2),
    ]
    assert caplog.messages == [f"CUDA_VISIBLE_DEVICES: {variable!r} {each}" for each in told]


def test_wanted_cpu_slots_win_over_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2))
    slots = discover_slots({"DET_JUPYTER_CPU_SLOTS": "3"})
    assert [slot.kind for slot in slots] == ["cpu", "cpu", "cpu"]


def test_device_without_memory_of_its_own_is_a_slot_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    nvml = fake_nvml(2, broken="nvmlDeviceGetMemoryInfo")
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert [(slot.kind, slot.memory_bytes) for slot in discover_slots({})] == [
        ("cuda", 0),
        ("cuda", 0),
    ]
    assert [text.partition(":")[0] for text in caplog.messages] == [
        "the memory of a CUDA device is not known"
    ] * 2


def test_part_of_a_gpu_is_refused_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2))
    slots = discover_slots({"CUDA_VISIBLE_DEVICES": "MIG-a0-1"})
    assert {slot.kind for slot in slots} == {"cpu"}
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == (
        "CUDA_VISIBLE_DEVICES: 'MIG-a0-1' is a part of a GPU (MIG), which is not supported; it "
        "and what follows are hidden. Name whole GPUs, by index or GPU-…, and switch MIG off for "
        "them: nvidia-smi -mig 0"
    )


@pytest.mark.parametrize(("num_slots", "num_threads"), [(1, 5), (2, 2), (5, 1), (8, 1)])
def test_slots_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, num_slots: int, num_threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(5)))
    assert threads_per_slot(num_slots) == num_threads


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetUUID"])
def test_any_failure_of_nvml_means_no_gpu_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(2, broken=broken))
    assert {slot.kind for slot in discover_slots({})} == {"cpu"}
    assert f"{broken} does not work" in caplog.text


def test_nvml_that_is_not_installed_means_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert {slot.kind for slot in discover_slots({})} == {"cpu"}


def test_cpu_places_are_one_per_core_that_we_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2, 5})
    assert [slot.index for slot in discover_slots({})] == [0, 1, 2]


@pytest.mark.parametrize(("given", "num_slots"), [("2", 2), ("8", 3), ("", 3), ("0", 3), ("x", 3)])
def test_a_job_of_slurm_bounds_the_cores(
    monkeypatch: pytest.MonkeyPatch, given: str, num_slots: int
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", given)
    assert len(discover_slots(os.environ)) == num_slots
    assert threads_per_slot(1) == num_slots


@pytest.mark.parametrize("given", ["0", "-2", "two", "", "1.5"])
def test_bad_number_of_cpu_slots_is_an_error_in_the_log_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, given: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert len(discover_slots({"DET_JUPYTER_CPU_SLOTS": given})) == 2
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == (
        f"DET_JUPYTER_CPU_SLOTS: got {given!r}, expected a whole number of at least 1; "
        "it is ignored"
    )


@pytest.fixture
def two_cores_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def offered(options: list[str], **environ: str) -> list[tuple[str, int]]:
    offers = offered_agents(options, environ, hostname="here")
    return [(offer.agent_id, len(offer.slots)) for offer in offers]


@pytest.mark.usefixtures("two_cores_and_no_gpu")
def test_without_a_word_there_is_one_agent_of_the_computers_name() -> None:
    assert offered([]) == [("here", 2)]
    assert offered([], DET_JUPYTER_CPU_SLOTS="5") == [("here", 5)]
    assert offered([], DET_JUPYTER_AGENTS=" ") == [("here", 2)]


@pytest.mark.usefixtures("two_cores_and_no_gpu")
def test_agents_come_from_the_command_line_or_else_the_variable() -> None:
    variable = "left=cpu:8  right=cpu:4"
    assert offered([], DET_JUPYTER_AGENTS=variable) == [("left", 8), ("right", 4)]
    assert offered(["a-1.b_2=cpu:1"], DET_JUPYTER_AGENTS=variable) == [("a-1.b_2", 1)]
    assert offered([], DET_JUPYTER_AGENTS="a=cpu:3", DET_JUPYTER_CPU_SLOTS="5") == [("a", 3)]


@pytest.mark.usefixtures("two_cores_and_no_gpu")
@pytest.mark.parametrize(
    "word", ["left", "left=cpu", "=cpu:1", "left=cpu:0", "left=cuda:1", "a/b=cpu:1", "a=cpu:-1"]
)
def test_bad_agent_is_an_error_in_the_log_and_ignored(
    word: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert offered([], DET_JUPYTER_AGENTS=word) == [("here", 2)]
    assert offered([word, "good=cpu:1"]) == [("good", 1)]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    expected = f"got {word!r}, expected NAME=cpu:N, such as left=cpu:8; ignored"
    assert said == [f"DET_JUPYTER_AGENTS: {expected}", f"--agent: {expected}"]


@pytest.mark.usefixtures("two_cores_and_no_gpu")
def test_all_problems_go_along_for_people() -> None:
    (offer,) = offered_agents(["a=cpu:1", "b", "a=cpu:2"], {}, hostname="here")
    assert offer.problems == (
        "--agent: got 'b', expected NAME=cpu:N, such as left=cpu:8; ignored",
        "--agent: got 'a=cpu:2', but there is an agent a already; ignored",
    )


@pytest.mark.usefixtures("two_cores_and_no_gpu")
def test_gpus_of_amd_are_said_not_to_be_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    def problems(*options: str, **environ: str) -> tuple[str, ...]:
        return offered_agents(options, environ, hostname="here")[0].problems

    monkeypatch.setattr(metadata, "version", lambda name: {"torch": "2.8.0+rocm6.4"}[name])
    (said,) = problems()
    assert said.startswith("GPUs of AMD (ROCm) are not supported")
    assert problems("a=cpu:1") == problems(DET_JUPYTER_CPU_SLOTS="1") == ()
    monkeypatch.setattr(metadata, "version", lambda name: {"torch": "2.8.0+cpu"}[name])
    assert problems() == ()
