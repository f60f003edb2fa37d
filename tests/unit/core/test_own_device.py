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
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
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


@pytest.mark.parametrize(
    ("variables", "initialised", "uuid"),
    [({}, False, ""), ({"CUDA_VISIBLE_DEVICES": "0,1"}, False, ""),
     ({"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-2"}, False, "GPU-2"),
     ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, False, ""),
     ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False, "GPU-1"), ({}, True, "GPU-0")],
)  # fmt: skip
def test_of_several_models_a_number_is_no_device_unless_cuda_counts_as_nvml_does(
    driver: FakeNvml,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    *,
    initialised: bool,
    uuid: str,
) -> None:
    driver.models = ["T4", "H100", "H100"]
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        get_device_properties=lambda index: SimpleNamespace(uuid=[1, 0, 2][index]),
    )
    monkeypatch.setattr(sys.modules["torch"], "cuda", cuda, raising=False)
    slot = own_slot(1)
    assert (slot.kind, slot.uuid, slot.index) == ("cuda", uuid, 1)
    assert slot.name == ("H100 or T4" if not uuid else "T4" if uuid == "GPU-0" else "H100")
    assert caplog.messages == [] if uuid else "CUDA_DEVICE_ORDER=PCI_BUS_ID" in caplog.text


def test_a_lost_device_hides_no_other(driver: FakeNvml) -> None:
    driver.lost = {2}
    assert own_slot(0).uuid == "GPU-0"


def test_torch_for_rocm_is_said_not_to_be_supported(
    driver: FakeNvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch: Any = SimpleNamespace(version=SimpleNamespace(cuda=None, hip="6.2"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert {own_slot(rank).kind for rank in (0, 1)} == {"cpu"}
    assert caplog.messages == [
        "GPUs of AMD (ROCm) are not supported: they are shown as CPU places"
    ]
