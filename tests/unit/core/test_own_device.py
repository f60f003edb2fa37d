"""The device of a process that no agent has started."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.host import nvml_driver
from det_jupyter.core.own_device import own_slot
from tests.fake_nvml import DRIVER_NOT_LOADED, FakeNvml


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Return a driver with three GPUs, and let torch be one that can use them."""
    driver = FakeNvml(3)
    monkeypatch.setattr(nvml_driver, "import_module", lambda name: driver)
    torch: Any = SimpleNamespace(version=SimpleNamespace(cuda="12.8"))  # any other use is an error
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return driver


@pytest.mark.parametrize(
    ("shown", "local_rank", "uuid"),
    [(None, 0, "GPU-0"), (None, 2, "GPU-2"), ("2,0", 1, "GPU-0"), ("GPU-1", 0, "GPU-1"),
     ("2", 1, "GPU-2"), ("", 0, ""), ("-1", 0, "")],
)  # fmt: skip
def test_the_device_is_known_without_a_cuda_context(
    driver: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
    shown: str | None,
    local_rank: int,
    uuid: str,
) -> None:
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    slot = own_slot(local_rank)
    assert (slot.id, slot.kind, slot.uuid) == (-1, "cuda" if uuid else "cpu", uuid)
    assert driver.asked[-1] == "nvmlShutdown"


def test_without_a_driver_or_torch_it_is_a_cpu_place(
    driver: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.errors["nvmlInit"] = DRIVER_NOT_LOADED
    assert own_slot(0).kind == "cpu"
    driver.errors.clear()
    assert own_slot(0).kind == "cuda"
    monkeypatch.delitem(sys.modules, "torch")
    assert own_slot(0).kind == "cpu"
