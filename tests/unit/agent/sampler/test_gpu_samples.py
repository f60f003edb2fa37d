"""The lines that the process prints which reads GPUs, and when it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.sampler import gpu_process
from det_jupyter.contract.host.nvml_driver import DriverError
from tests.fake_nvml import GIB, FakeNvml


class Time:
    """The time and the standard input of the process: what is sent to it, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *sent: bytes | None) -> None:
        self.now = 100.0
        self.waits: list[float] = []
        self._sent = list(sent)  # None: nothing arrives until the next sample is due

        def select(readers: Sequence[int], _: object, __: object, wait_s: float) -> Any:
            assert [*readers] == [0]
            self.waits.append(wait_s)
            self.now += wait_s
            if self._sent[0] is None:
                self._sent.pop(0)
                return [], [], []
            return [0], [], []

        def read(descriptor: int, num: int) -> bytes:
            assert descriptor == 0
            data = self._sent.pop(0)
            assert data is not None
            return data

        monkeypatch.setattr(gpu_process, "select", SimpleNamespace(select=select))
        monkeypatch.setattr(gpu_process, "os", SimpleNamespace(read=read))
        clock = SimpleNamespace(monotonic=lambda: self.now, thread_time=lambda: 0.0)
        monkeypatch.setattr(gpu_process, "time", clock)


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def drive(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml) -> None:
    monkeypatch.setattr(gpu_process, "initialised_nvml", lambda: nvml)


def test_samples_are_printed_as_often_as_was_said_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drive(monkeypatch, FakeNvml(processes={7: GIB}))
    time = Time(monkeypatch, None, b"9.0\n0.5\n", None, b"")
    assert gpu_process.main(2.0, ["GPU-0"]) == 0
    assert time.waits == [2.0, 2.0, 0.5, 0.5]
    first, *others = printed(capsys)
    assert first["values"]["gpu:GPU-0"]["gpu_util"] == 87
    assert first["memory"] == {"7": GIB}
    assert "missing" in first  # said once, and again only when it changes
    assert [line.keys() for line in others] == [{"values", "memory"}] * 3


def test_a_late_sample_is_not_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, FakeNvml())
    time = Time(monkeypatch, None, None, b"")
    read = gpu_process.GpuReader.read

    def slow(reader: gpu_process.GpuReader) -> gpu_process.GpuReading:
        time.now += 5.0 if len(time.waits) == 1 else 0.0
        return read(reader)

    monkeypatch.setattr(gpu_process.GpuReader, "read", slow)
    assert gpu_process.main(2.0, ["GPU-0"]) == 0
    assert time.waits == [2.0, 0.0, 2.0]


def test_without_a_driver_the_reason_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise DriverError("NVML does not work: no driver")

    monkeypatch.setattr(gpu_process, "initialised_nvml", fail)
    assert gpu_process.main(1.0, ["GPU-0"]) == 1
    assert printed(capsys) == [{"failed": "NVML does not work: no driver"}]


def test_a_driver_that_reads_nothing_any_more_is_opened_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nvml = FakeNvml()
    drive(monkeypatch, nvml)
    time = Time(monkeypatch, *[None] * 20)
    read, fails = gpu_process.GpuReader.read, [True, False, *[True] * 5]

    def failing(reader: gpu_process.GpuReader) -> gpu_process.GpuReading:
        nvml.lost = {0} if fails[len(time.waits)] else set()
        return read(reader)

    monkeypatch.setattr(gpu_process.GpuReader, "read", failing)
    assert gpu_process.main(1.0, ["GPU-0"]) == 1
    lines = printed(capsys)
    assert [any(line["values"].values()) for line in lines] == [not each for each in fails]
    assert ["missing" in line for line in lines] == [True] * 3 + [False] * 4


def test_an_agent_that_is_gone_ends_it_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    drive(monkeypatch, FakeNvml())
    Time(monkeypatch)

    def write(_: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=write))
    assert gpu_process.main(1.0, ["GPU-0"]) == 0
