"""What is added to the errors of CUDA. No GPU is used: torch's numbers are stood in for."""

from __future__ import annotations

import pytest
import torch

from det_jupyter.core.device_errors import DeviceMemory, describe_memory, more_about

GB = 10**9


def numbers(monkeypatch: pytest.MonkeyPatch, *, free: int, allocated: int, reserved: int) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 80 * GB))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: allocated)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: reserved)


def test_out_of_memory_names_what_held_it(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers(monkeypatch, free=GB, allocated=70 * GB, reserved=78 * GB)
    assert more_about(torch.OutOfMemoryError("CUDA out of memory.")) == (
        "of 80 GB: this rank's tensors 70 GB, reserved by its allocator and not in use 8.0 GB, "
        "its CUDA context and other processes 1.0 GB; try smaller batches with "
        "aggregation_frequency, mixed_precision, sharding"
    )


def test_memory_of_others_and_fragments_have_remedies_of_their_own() -> None:
    memory = DeviceMemory(total=80 * GB, used=79 * GB, allocated=10 * GB, reserved=30 * GB)
    text = describe_memory(memory)
    assert "other processes 49 GB; try ending the other processes" in text
    assert "expandable_segments:True" in text


def test_a_gpu_that_answers_no_more_adds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    assert more_about(torch.OutOfMemoryError("CUDA out of memory.")) == ""


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


def test_versions_of_torch_before_2_5_have_the_addition_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every failure of a rank is described by it, so it must not fail itself."""
    numbers(monkeypatch, free=GB, allocated=70 * GB, reserved=78 * GB)
    monkeypatch.delattr(torch, "OutOfMemoryError")
    assert more_about(torch.cuda.OutOfMemoryError("CUDA out of memory.")).startswith("of 80 GB")
    assert more_about(ValueError("mine")) == ""


def test_other_errors_have_no_addition() -> None:
    assert more_about(ValueError("CUDA error: unknown error")) == ""
