"""Who counts as a stranger on our devices, when that is news, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.devices.identify import command_line, kernel_of
from det_jupyter.agent.devices.nvml import DeviceUse, NvmlProbe, ProcessUse
from det_jupyter.agent.devices.occupancy import Occupancy, has_changed
from det_jupyter.agent.link.outbox import ReportOutbox
from det_jupyter.contract.host.nvml_driver import DriverError
from det_jupyter.contract.messages import DeviceProcess, DevicesSeen, SlotView

MIB, GIB = 1 << 20, 1 << 30
GPUS = [SlotView(id=i, kind="cuda", index=i, name="GPU", uuid=f"GPU-{i}") for i in range(2)]


class FakeProbe:
    """A driver that says what it is told to; a device that it is not told of is broken."""

    def __init__(self, *uses: DeviceUse) -> None:
        self.uses = dict(enumerate(uses))

    def read(self, slot: SlotView) -> DeviceUse:
        if slot.index not in self.uses:
            raise DriverError("GPU is lost")
        return self.uses[slot.index]


def use(*processes: ProcessUse, used: int = 0, busy: set[int] | None = None) -> DeviceUse:
    return DeviceUse(processes=list(processes), used_bytes=used, busy_pids=busy)


def computes(pid: int, memory: int = GIB) -> ProcessUse:
    return ProcessUse(pid=pid, memory_bytes=memory)


def draws(pid: int, memory: int) -> ProcessUse:
    return ProcessUse(pid=pid, memory_bytes=memory, is_compute=False)


def make(
    probe: FakeProbe,
    *,
    own: Sequence[int] = (),
    unseen: Sequence[int] = (),
    named: Callable[[int], str] = lambda pid: f"program {pid}",
) -> Occupancy:
    """Return what is made of `probe`; pids in `unseen` are nobody's on this computer."""

    def identify(process: ProcessUse, now: float) -> DeviceProcess | None:
        if process.pid in unseen:
            return None
        return DeviceProcess(
            pid=process.pid, command=named(process.pid), memory_bytes=process.memory_bytes
        )

    return Occupancy(GPUS, probe=probe.read, identify=identify, is_own=lambda pid: pid in own)


def looks(
    occupancy: Occupancy, *times: float, held: Sequence[SlotView] = ()
) -> list[dict[int, list[int]]]:
    """Return the pids seen on each slot, at each of these times."""
    return [
        {slot: [process.pid for process in who] for slot, who in occupancy.read(now, held).items()}
        for now in times
    ]


def test_a_process_that_computes_is_a_stranger_unless_it_is_ours() -> None:
    occupancy = make(FakeProbe(use(computes(11), computes(10)), use(computes(11))), own=[11])
    assert looks(occupancy, 0.0) == [{0: [10]}]


@pytest.mark.parametrize(
    ("memory", "counts"), [(300 * MIB, False), (500 * MIB, False), (501 * MIB, True)]
)
def test_a_desktop_is_none_but_what_draws_with_much_memory_is(memory: int, counts: bool) -> None:
    occupancy = make(FakeProbe(use(draws(10, memory)), use()))
    assert looks(occupancy, 0.0) == [{0: [10]} if counts else {}]


def test_services_of_the_driver_are_none() -> None:
    occupancy = make(
        FakeProbe(use(computes(10)), use()), named=lambda pid: "nvidia-cuda-mps-server"
    )
    assert looks(occupancy, 0.0) == [{}]


def test_a_rank_that_has_just_ended_is_still_ours() -> None:
    own = [10]
    probe = FakeProbe(use(computes(10)), use())
    occupancy = Occupancy(
        GPUS,
        probe=probe.read,
        identify=lambda process, now: DeviceProcess(pid=process.pid, command="defunct"),
        is_own=lambda pid: pid in own,
    )
    assert looks(occupancy, 0.0) == [{}]
    own.clear()
    assert looks(occupancy, 2.0) == [{}]
    probe.uses[0] = use()
    assert looks(occupancy, 4.0) == [{}]
    probe.uses[0] = use(computes(10))  # the number is somebody else's by now
    assert looks(occupancy, 6.0) == [{0: [10]}]


def test_a_pid_that_nobody_has_here_is_an_unknown_process_at_the_second_look() -> None:
    occupancy = make(FakeProbe(use(computes(10, 3 * GIB)), use()), unseen=[10])
    assert occupancy.read(0.0, []) == {}
    assert occupancy.read(2.0, []) == {
        0: [DeviceProcess(pid=10, command="unknown process", memory_bytes=3 * GIB)]
    }


def test_several_processes_without_a_pid_are_all_told() -> None:
    occupancy = make(FakeProbe(use(computes(0), computes(0)), use()), unseen=[0])
    assert looks(occupancy, 0.0, 2.0) == [{}, {0: [0, 0]}]


def test_memory_that_nobody_has_is_an_unknown_process() -> None:
    occupancy = make(FakeProbe(use(used=GIB + MIB), use(used=GIB)))
    assert occupancy.read(0.0, []) == {}
    assert occupancy.read(2.0, []) == {
        0: [DeviceProcess(pid=0, command="unknown process", memory_bytes=GIB + MIB)]
    }


def test_memory_is_not_unclaimed_where_somebody_computes_or_draws_with_it() -> None:
    occupancy = make(
        FakeProbe(use(computes(10, 0), used=9 * GIB), use(draws(11, 400 * MIB), used=GIB)),
        own=[10],
    )
    assert looks(occupancy, 0.0, 2.0) == [{}, {}]


def test_what_nobody_seems_to_be_is_ours_where_a_gang_is_or_just_was() -> None:
    probe = FakeProbe(use(computes(10), used=9 * GIB), use(used=9 * GIB))
    occupancy = make(probe, unseen=[10])
    assert looks(occupancy, 0.0, 2.0, held=[GPUS[0]]) == [{}, {1: [0]}]
    assert looks(occupancy, 4.0, 6.9) == [{1: [0]}, {1: [0]}]
    assert looks(occupancy, 7.0, 9.0) == [{1: [0]}, {0: [10], 1: [0]}]


def test_a_gang_on_cpu_places_claims_no_device() -> None:
    place = SlotView(id=-1, kind="cpu", index=0, name="CPU")
    occupancy = make(FakeProbe(use(used=9 * GIB), use()))
    assert looks(occupancy, 0.0, 2.0, held=[place]) == [{}, {0: [0]}]


def test_a_known_stranger_is_told_even_where_a_gang_of_ours_is() -> None:
    occupancy = make(FakeProbe(use(computes(10), computes(11)), use()), own=[11])
    assert looks(occupancy, 0.0, held=GPUS) == [{0: [10]}]


def idle_since(occupancy: Occupancy, now: float) -> float | None:
    (process,) = occupancy.read(now, [])[0]
    return process.idle_since


def test_who_has_not_computed_for_ten_seconds_is_idle_since_it_last_did() -> None:
    probe = FakeProbe(use(computes(10), busy=set()), use())
    occupancy = make(probe)
    assert [idle_since(occupancy, now) for now in (0.0, 8.0, 10.0)] == [None, None, 0.0]
    probe.uses[0] = use(computes(10), busy={10, 99})
    assert idle_since(occupancy, 12.0) is None
    probe.uses[0] = use(computes(10), busy={99})
    assert [idle_since(occupancy, now) for now in (20.0, 22.0, 60.0)] == [None, 12.0, 12.0]


def test_where_the_driver_cannot_say_nobody_is_called_idle() -> None:
    occupancy = make(FakeProbe(use(computes(10), busy=None), use()))
    assert [idle_since(occupancy, now) for now in (0.0, 100.0)] == [None, None]


def test_a_device_that_fails_stays_as_it_was_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    probe = FakeProbe(use(computes(10)), use(computes(11)))
    occupancy = make(probe)
    assert looks(occupancy, 0.0) == [{0: [10], 1: [11]}]
    del probe.uses[0]
    probe.uses[1] = use()
    assert looks(occupancy, 2.0, 4.0) == [{0: [10]}, {0: [10]}]
    probe.uses[0] = use()
    assert looks(occupancy, 6.0) == [{}]
    warning = "the processes on a device are not known now: GPU is lost"
    assert [record.getMessage() for record in caplog.records] == [warning]
    del probe.uses[0]
    assert looks(occupancy, 8.0) == [{}]
    assert [record.getMessage() for record in caplog.records] == [warning] * 2


def process(pid: int = 1, memory: int = 1000, **changes: Any) -> DeviceProcess:
    return DeviceProcess(pid=pid, command="c", memory_bytes=memory, **changes)


@pytest.mark.parametrize(
    ("after", "is_news"),
    [
        ({0: [process()]}, False),
        ({0: [process(memory=1100)]}, False),
        ({0: [process(memory=900)]}, False),
        ({0: [process(memory=1101)]}, True),
        ({0: [process(memory=899)]}, True),
        ({0: [process(2)]}, True),
        ({0: [process(), process(2)]}, True),
        ({0: []}, True),
        ({1: [process()]}, True),
        ({}, True),
        ({0: [process(idle_since=5.0)]}, True),
        ({0: [process(notebook="a.ipynb")]}, True),
    ],
)
def test_news_is_who_idle_or_busy_and_a_tenth_of_memory(
    after: dict[int, list[DeviceProcess]], is_news: bool
) -> None:
    assert has_changed({0: [process()]}, after) is is_news


def test_staying_idle_and_another_order_are_no_news() -> None:
    before = {0: [process(1, idle_since=5.0), process(2)]}
    assert not has_changed(before, {0: [process(2), process(1, idle_since=6.0)]})
    assert has_changed({0: [process(memory=0)]}, {0: [process(memory=1)]})
    assert has_changed(before, {0: [process(1, idle_since=5.0), process(2, idle_since=5.0)]})
    assert has_changed({**before, 1: [process()]}, {**before, 1: [process(), process(2)]})


@given(st.dictionaries(st.integers(0, 3), st.lists(st.integers(1, 9).map(process), max_size=3)))
def test_the_same_is_never_news(seen: dict[int, list[DeviceProcess]]) -> None:
    assert not has_changed(seen, {slot: [*who] for slot, who in seen.items()})


@pytest.mark.parametrize(
    ("words", "kernel_id"),
    [
        (["python", "-m", "ipykernel_launcher", "-f", "/r/kernel-ab-12.json"], "ab-12"),
        (["python", "-m", "ipykernel", "--f=/r/kernel-7.json"], "7"),
        (["python", "-m", "ipykernel", "--IPKernelApp.connection_file=kernel-7.json"], "7"),
        (["python", "train.py", "-f", "/r/config.json"], None),
        (["python", "-m", "ipykernel_launcher"], None),
        ([], None),
    ],
)
def test_a_kernel_is_known_by_its_connection_file(words: list[str], kernel_id: str | None) -> None:
    assert kernel_of(words) == kernel_id


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["/opt/venv/bin/python3", "train.py", "--lr", "0.1"], "python3 train.py --lr 0.1"),
        (["python", "-c", "import torch\nwhile True: pass", "x"], "python -c … x"),
        (["run", "--api-key=12", "--hf_token", "34", "-v"], "run --api-key=… --hf_token … -v"),
        (["run", "WANDB_API_KEY=12", "PASSWORD=34"], "run WANDB_API_KEY=… PASSWORD=…"),
        (["run", "https://ada:pw@host/x"], "run https://…@host/x"),
        (["run", "two\n  lines\t"], "run two lines"),
        (["/a/" + "x" * 100], "x" * 79 + "…"),
        (["/a/" + "x" * 80], "x" * 80),
        ([], ""),
    ],
)
def test_a_command_is_told_in_short_and_without_secrets(words: list[str], line: str) -> None:
    assert command_line(words) == line


class FakeNvmlError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


def raising(value: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise FakeNvmlError(value)

    return fail


def sample(pid: int, at: int, sm: int = 0, memory: int = 0) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, timeStamp=at, smUtil=sm, memUtil=memory, encUtil=0, decUtil=0)


def fake_nvml(**calls: Any) -> Any:
    """Return a module that says what NVML would of a device with one process that computes."""
    seen = SimpleNamespace(pid=10, usedGpuMemory=GIB)
    answers = {
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: [seen],
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: [],
        "nvmlDeviceGetMemoryInfo": lambda handle, version: SimpleNamespace(used=2 * GIB),
        "nvmlDeviceGetProcessUtilization": lambda handle, since: [],
    }
    constants = {"NVMLError": FakeNvmlError, "NVML_ERROR_NOT_FOUND": 6, "nvmlMemory_v2": 2}
    return SimpleNamespace(**{**constants, **answers, **calls})


def test_the_driver_is_asked_by_the_devices_uuid() -> None:
    assert NvmlProbe(fake_nvml()).read(GPUS[0]) == DeviceUse(
        processes=[ProcessUse(pid=10, memory_bytes=GIB, is_compute=True)],
        used_bytes=2 * GIB,
        busy_pids=set(),
    )


def test_a_process_that_computes_and_draws_computes() -> None:
    drawing = [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (10, 11)]
    nvml = fake_nvml(nvmlDeviceGetGraphicsRunningProcesses=lambda handle: drawing)
    processes = NvmlProbe(nvml).read(GPUS[0]).processes
    assert [(p.pid, p.is_compute, p.memory_bytes) for p in processes] == [
        (10, True, GIB),
        (11, False, 0),
    ]


def test_busy_is_who_has_computed_since_the_last_look() -> None:
    asked: list[int] = []
    answers = iter([
        [sample(10, 100, sm=5), sample(11, 110), sample(12, 120, memory=1)],
        [sample(10, 100, sm=5), sample(11, 130, sm=1)],
        [],
    ])  # fmt: skip

    def utilisation(handle: str, since: int) -> list[SimpleNamespace]:
        asked.append(since)
        return next(answers)

    probe = NvmlProbe(fake_nvml(nvmlDeviceGetProcessUtilization=utilisation))
    assert [probe.read(GPUS[0]).busy_pids for _ in range(3)] == [{10, 12}, {11}, set()]
    assert asked == [0, 120, 130]


@pytest.mark.parametrize(("error", "busy"), [(6, set()), (3, None)])
def test_no_sample_is_nobody_busy_but_no_support_is_not_known(
    error: int, busy: set[int] | None
) -> None:
    nvml = fake_nvml(nvmlDeviceGetProcessUtilization=raising(error))
    assert NvmlProbe(nvml).read(GPUS[0]).busy_pids == busy


def test_a_driver_that_does_not_count_memory_apart_claims_none() -> None:
    assert NvmlProbe(fake_nvml(nvmlDeviceGetMemoryInfo=raising(3))).read(GPUS[0]).used_bytes == 0


def test_a_driver_that_does_not_answer_is_named_with_the_device() -> None:
    with pytest.raises(DriverError, match=r"GPU \(GPU-0\): NVML error 15"):
        NvmlProbe(fake_nvml(nvmlDeviceGetHandleByUUID=raising(15))).read(GPUS[0])


def told(outbox: ReportOutbox) -> list[DevicesSeen]:
    """Return what is told of devices in the next batch, which the master gets."""
    batch = outbox.next_batch(now=0.0)
    outbox.note_sent(batch, now=0.0)
    return [report for report in batch.reports if isinstance(report, DevicesSeen)]


def test_devices_are_told_once_and_again_to_each_new_master() -> None:
    outbox = ReportOutbox({})
    assert told(outbox) == []
    first, second = (DevicesSeen(at=at, processes={}) for at in (1.0, 2.0))
    outbox.note_devices(first)
    assert outbox.next_batch(now=0.0).reports == [first]
    assert [told(outbox), told(outbox)] == [[first], []]
    outbox.reconnected({})
    assert told(outbox) == [first]
    batch_before = outbox.next_batch(now=0.0)
    outbox.note_devices(second)
    outbox.note_sent(batch_before, now=0.0)
    assert [told(outbox), told(outbox)] == [[second], []]
