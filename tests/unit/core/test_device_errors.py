"""What is added to the errors of CUDA. No GPU is used: torch's numbers are stood in for."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import torch

from det_jupyter.contract.messages import GangPlan
from det_jupyter.contract.values.device_memory import DeviceHolder, DeviceShortage
from det_jupyter.core.device_errors import device_shortage, more_about
from det_jupyter.core.failures import batch_size_of
from tests.fake_nvml import NOT_FOUND, FakeNvml

GB = 10**9


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Stand in for torch's numbers: 79 of 80 GB in use; and for the driver."""
    nvml = FakeNvml(processes={os.getpid(): 78 * GB})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (GB, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 70 * GB)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 78 * GB)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="0"))
    monkeypatch.setattr("det_jupyter.core.device_errors.initialised_nvml", lambda: nvml)
    return nvml


ERROR = torch.cuda.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.usefixtures("gpu")
def test_out_of_memory_names_what_held_it() -> None:
    shortage = device_shortage(ERROR, batch_size=64)
    assert shortage == DeviceShortage(
        total=80 * GB, used=79 * GB, allocated=70 * GB, reserved=78 * GB, batch_size=64
    )
    assert str(shortage) == (
        "of 80 GB: this rank's tensors 70 GB, reserved by its allocator and not in use 8.0 GB, "
        "its CUDA context and other processes 1.0 GB; try smaller batches (64 records per rank "
        "now) with aggregation_frequency, mixed_precision, sharding"
    )
    assert more_about(ERROR) == "", "the master adds it"


def test_other_processes_are_named_with_their_memory(gpu: FakeNvml) -> None:
    gpu.processes = {os.getpid(): 30 * GB, os.getppid(): 40 * GB, 1 << 22: None}
    shortage = device_shortage(ERROR)
    assert shortage is not None
    parent = psutil.Process(os.getppid()).name()
    assert shortage.others == (
        DeviceHolder(pid=os.getppid(), name=parent, num_bytes=40 * GB),
        DeviceHolder(pid=1 << 22, name="another process", num_bytes=0),
    )
    shortage = replace(shortage, allocated=10 * GB, reserved=30 * GB)
    assert f"{parent} (pid {os.getppid()}) 40 GB" in str(shortage)
    assert f"its CUDA context 9.0 GB; try ending the other processes ({os.getppid()}, " in str(
        shortage
    )
    assert "expandable_segments:True" in str(shortage)


def test_pids_of_the_host_are_not_taken_for_processes_of_a_container(gpu: FakeNvml) -> None:
    gpu.processes = {os.getppid(): 40 * GB}
    shortage = device_shortage(ERROR)
    assert shortage is not None
    assert shortage.others == ()
    gpu.errors = {"nvmlDeviceGetHandleByUUID": NOT_FOUND}
    assert device_shortage(ERROR) == shortage


@pytest.mark.usefixtures("gpu")
def test_a_gpu_that_answers_no_more_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert device_shortage(ERROR) is None


@pytest.mark.parametrize(
    ("hparams", "sizes"),
    [
        ({"global_batch_size": 7}, [4, 3]),
        ({}, [None, None]),
        ({"global_batch_size": "7"}, [None, None]),
    ],
)
def test_the_size_of_a_batch_is_that_of_the_rank(
    hparams: dict[str, Any], sizes: list[int | None]
) -> None:
    plan = cast("GangPlan", SimpleNamespace(hparams=hparams, slots=["a", "b"]))
    assert [batch_size_of(plan, rank) for rank in (0, 1)] == sizes


@pytest.mark.parametrize(
    ("message", "begin"),
    [
        ("CUDA error: device-side assert triggered", "a kernel on this rank's GPU failed"),
        ("CUDA error: an illegal memory access was encountered", "a kernel on this rank's GPU"),
        ("CUDA error: unspecified launch failure", "a kernel on this rank's GPU"),
        ("CUDA error: GPU has fallen off the bus", "this rank's GPU has failed"),
        ("CUDA error: uncorrectable ECC error encountered", "this rank's GPU has failed"),
        ("CUDA error: invalid device ordinal", ""),
        ("mat1 and mat2 shapes cannot be multiplied", ""),
    ],
)
def test_a_gpu_that_failed_is_told_from_a_kernel_that_did(message: str, begin: str) -> None:
    text = more_about(RuntimeError(message))
    assert text.startswith(begin)
    assert bool(text) is bool(begin)


@pytest.mark.usefixtures("gpu")
def test_versions_of_torch_before_2_5_have_the_addition_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every failure of a rank is described by it, so it must not fail itself."""
    monkeypatch.delattr(torch, "OutOfMemoryError")
    assert device_shortage(ERROR) is not None
    assert device_shortage(ValueError("mine")) is None


def test_other_errors_have_no_addition() -> None:
    assert more_about(ValueError("CUDA error: unknown error")) == ""


def test_a_tensor_that_is_sent_to_a_gpu_on_a_cpu_slot_says_what_to_use() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        torch.zeros(1).cuda()
    assert more_about(caught.value).startswith(
        "this rank has no GPU: its slot is a CPU; `x.to(context.device)` or "
    )
    assert more_about(RuntimeError("No CUDA GPUs are available")) != ""
