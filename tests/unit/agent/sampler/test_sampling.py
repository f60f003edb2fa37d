"""What is sampled, when and for whom; time, processes and GPUs are played."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler import sampler as module
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.gang_processes import ProcessReader
from det_jupyter.agent.sampler.gpu_watch import GpuSample
from det_jupyter.agent.sampler.host_usage import HostReader
from det_jupyter.agent.sampler.readings import Reading
from det_jupyter.agent.sampler.sampler import (
    NO_GPU,
    NO_GPU_OF_RANK,
    NOT_LISTED,
    SampledAgent,
    Sampler,
)
from det_jupyter.contract.messages import SlotView
from tests.integration.agent_support import make_plan, run_of


class Over(Exception):
    """The test's time is over."""


class Computer:
    """Two agents of one computer: the runner of the sampler, its readers and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **gpus: list[str]) -> None:
        self.now = self.until = 100.0
        self.gangs: dict[str, list[LivingGang]] = {"a": [], "b": []}
        self.watched: set[str] = set()
        self.events: list[tuple[float, Callable[[], object]]] = []  # by time
        self.processes: dict[str, Reading] = {}
        self.error: Exception | None = None
        self.sampled_at: list[float] = []
        self.asked: list[Any] = []  # of the network of gangs, of their processes
        self.held: list[Any] = []
        self.gpu_orders: list[tuple[float, object]] = []
        self.take: Callable[[GpuSample | str], None] = lambda _: None
        self.news, self.memory = asyncio.Event(), self
        self.agents = {
            name: SampledAgent(box=SampleBox(lambda: self.now), gpus=gpus.get(name, []))
            for name in self.gangs
        }
        self._sleep = asyncio.sleep
        monkeypatch.setattr(module, "GpuWatch", self._gpus)
        monkeypatch.setattr(module, "in_thread", self._in_thread)
        monkeypatch.setattr(module, "time", self)
        monkeypatch.setattr(asyncio, "sleep", self._let_pass)
        monkeypatch.setattr(HostReader, "read", lambda reader, names: self._read_host(names))
        monkeypatch.setattr(
            ProcessReader, "read", lambda reader, gangs, now: self._read_processes(reader)
        )
        monkeypatch.setattr(
            ProcessReader, "close", lambda reader: self.gpu_orders.append((self.now, "closed"))
        )

    def monotonic(self) -> float:
        return self.now

    async def _let_pass(self, seconds: float) -> None:
        await self._sleep(0)
        self.now = round(self.now + seconds, 3)
        while self.events and self.events[0][0] <= self.now:
            self.events.pop(0)[1]()
        if self.now > self.until:
            raise Over

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return work()

    def _read_host(self, interfaces: list[str]) -> Reading:
        self.sampled_at.append(self.now)
        self.asked.append(interfaces)
        if self.error is not None:
            raise self.error
        return Reading({"memory_free": 1.0})

    def _read_processes(self, reader: ProcessReader) -> dict[str, Reading]:
        reader.source_of = {10: "rank:1.1.1:0", 11: "workers:1.1.1:0", 20: "rank:2.1.1:0"}
        return {name: Reading(dict(read.values)) for name, read in self.processes.items()}

    def _gpus(self, uuids: list[str], *, take: Callable[[GpuSample | str], None]) -> Computer:
        self.gpu_orders.append((self.now, uuids))
        self.take = take
        return self

    def start(self, interval_s: float) -> None:
        """Have the GPUs sampled."""
        self.gpu_orders.append((self.now, interval_s))

    def stop(self) -> None:
        """Have the GPUs sampled no more."""
        if self.gpu_orders[-1][1] != "stop":
            self.gpu_orders.append((self.now, "stop"))

    def living_gangs(self, agent_id: str) -> list[LivingGang]:
        return self.gangs[agent_id]

    def is_watched(self, agent_id: str) -> bool:
        return agent_id in self.watched

    def note(self, held: Any) -> None:
        self.held.append(held)

    def run(self, seconds: float, *events: tuple[float, Callable[[], object]]) -> None:
        """Sample for so long; call what is given at its time, counted from the beginning."""
        self.events = [(self.now + at, event) for at, event in events]
        self.until = self.now + seconds
        with pytest.raises(Over):
            asyncio.run(Sampler(self.agents, runner=cast(Runner, self)).run())

    def values(self, agent: str) -> list[tuple[float, Any]]:
        return [(each.at, each.values) for each in self.agents[agent].box.take(0.0).samples]

    def missing(self, agent: str) -> Any:
        """Return all reasons for missing values that hold now."""
        box = self.agents[agent].box
        box.reconnected()
        return box.take(0.0).missing


@pytest.fixture
def computer(monkeypatch: pytest.MonkeyPatch) -> Computer:
    return Computer(monkeypatch)


def gang(id: str, interval_s: float | None = 1.0, kind: str = "cpu", pid: int = 10) -> LivingGang:
    slots = [SlotView.model_validate({"id": 0, "kind": kind, "index": 0, "name": "any"})]
    run = run_of(make_plan(id, [], slots=slots, sampling_interval_s=interval_s))
    run.interfaces = [f"eth{id[0]}", "eth0"]
    return LivingGang(run, {0: pid})


def test_each_agent_gets_the_computer_and_its_own_ranks(computer: Computer) -> None:
    computer.gangs |= {"a": [gang("1.1.1")], "b": [gang("2.1.1")]}
    computer.processes = {
        "rank:1.1.1:0": Reading({"memory_rss": 5.0}),
        "workers:1.1.1:0": Reading({"num_processes": 2.0}),
        "rank:2.1.1:0": Reading({"memory_rss": 7.0}),
    }
    computer.run(0.5)
    host = {"memory_free": 1.0}
    own = {"rank:1.1.1:0": {"memory_rss": 5.0}, "workers:1.1.1:0": {"num_processes": 2.0}}
    assert computer.values("a") == [(100.0, {"host": host, **own})]
    assert computer.values("b") == [(100.0, {"host": host, "rank:2.1.1:0": {"memory_rss": 7.0}})]
    assert computer.held == [{"rank:1.1.1:0": 5.0, "workers:1.1.1:0": None, "rank:2.1.1:0": 7.0}]
    assert computer.asked == [["eth0", "eth1", "eth2"]]
    assert computer.news.is_set()
    reasons = {name: set(each.values()) for name, each in computer.missing("a").items()}
    assert reasons == {"gpu": {NO_GPU}, "rank:1.1.1:0": {NO_GPU_OF_RANK}}


def test_the_shortest_interval_counts_and_sampling_goes_on_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computer = Computer(monkeypatch, a=["GPU-0"], b=["GPU-1"])
    computer.gangs["a"] = [gang("1.1.1", 3.0), gang("2.1.1", 2.0), gang("3.1.1", None)]
    ends = computer.gangs["a"].clear
    computer.run(20.0, (5.2, ends))
    assert computer.sampled_at == [100.0, 102.0, 104.0, 106.0, 108.0]
    orders = dict.fromkeys(what for _, what in computer.gpu_orders[1:])
    assert computer.gpu_orders[0] == (100.0, ["GPU-0", "GPU-1"])
    assert [*orders] == [2.0, "stop", "closed"]
    assert (110.0, "closed") in computer.gpu_orders  # they were seen last at 105.0


@pytest.mark.parametrize("is_watched", [True, False])
def test_without_a_gang_that_wants_samples_they_are_taken_while_someone_looks(
    computer: Computer, is_watched: bool
) -> None:
    computer.gangs["b"] = [gang("1.1.1", None)]
    computer.watched = {"b"} if is_watched else set()
    computer.run(2.2)
    assert computer.sampled_at == ([100.0, 101.0, 102.0] if is_watched else [])
    assert [at for at, _ in computer.values("b")] == computer.sampled_at
    assert (computer.values("a"), computer.asked[:1]) == ([], [[]] if is_watched else [])


def test_a_gang_that_starts_is_sampled_at_its_interval_from_the_first_look(
    computer: Computer,
) -> None:
    def starts() -> None:
        computer.gangs["a"] = [gang("1.1.1", 0.8)]

    computer.watched = {"a"}
    computer.run(3.2, (1.3, starts))
    assert computer.sampled_at == [100.0, 101.0, 102.0, 102.8]


def test_a_late_sample_moves_those_that_follow(computer: Computer) -> None:
    def sleep() -> None:
        computer.now += 10

    computer.watched = {"a"}
    computer.run(13.2, (1.5, sleep))
    assert computer.sampled_at == [100.0, 101.0, 111.5, 112.5]


def test_reasons_go_with_the_rank_that_they_are_of(computer: Computer) -> None:
    computer.gangs["a"] = [gang("1.1.1")]
    computer.processes = {"rank:1.1.1:0": Reading()}
    computer.run(1.5, (0.5, computer.gangs["a"].clear))
    assert computer.missing("a").keys() == {"gpu"}


def test_a_computer_that_cannot_be_sampled_says_why_and_is_tried_again(
    computer: Computer, caplog: pytest.LogCaptureFixture
) -> None:
    computer.watched = {"a"}
    computer.error = OSError("no descriptor is free")

    def changes() -> None:
        computer.error = OSError("another reason")

    def works() -> None:
        computer.error = None

    computer.run(1.2)
    assert set(computer.missing("a")["host"].values()) == {
        "the computer could not be sampled: OSError: no descriptor is free"
    }
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    computer.run(2.2, (0.5, changes), (1.5, works))
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert len(computer.values("a")) == 1
    assert "host" not in computer.missing("a")


GPU_SAMPLE = GpuSample(
    values={"gpu:GPU-0": {"gpu_util": 50.0}},
    missing={"gpu:GPU-0": {"gpu_power": "not supported"}},
    memory={10: 5.0, 11: 2.0, 20: 9.0, 99: 1.0},
)


def test_gpus_and_their_memory_are_those_of_the_agents_own_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computer = Computer(monkeypatch, a=["GPU-0"], b=["GPU-0"])
    computer.gangs |= {
        "a": [gang("1.1.1", kind="cuda"), gang("3.1.1", kind="cuda")],
        "b": [gang("2.1.1", kind="cuda")],
    }
    computer.processes = {f"rank:{id}.1.1:0": Reading({"memory_rss": 1.0}) for id in (1, 2, 3)}
    computer.run(1.2, (0.5, lambda: computer.take(GPU_SAMPLE)))
    (_, sample), (_, of_other) = computer.values("a")[1], computer.values("b")[1]
    used = {"rank:1.1.1:0": {"gpu_memory": 5.0}, "workers:1.1.1:0": {"gpu_memory": 2.0}}
    assert sample == {**GPU_SAMPLE.values, **used}
    assert of_other == {**GPU_SAMPLE.values, "rank:2.1.1:0": {"gpu_memory": 9.0}}
    own = {"gpu:GPU-0": {"gpu_power": "not supported"}}
    assert computer.missing("a") == {**own, "rank:3.1.1:0": {"gpu_memory": NOT_LISTED}}
    assert computer.missing("b") == own


def test_the_problem_of_a_driver_is_that_of_its_gpus_and_of_the_ranks_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computer = Computer(monkeypatch, a=["GPU-0", "GPU-1"])
    computer.gangs |= {"a": [gang("1.1.1", kind="cuda")], "b": [gang("2.1.1")]}
    computer.processes = {"rank:1.1.1:0": Reading({"memory_rss": 1.0})}
    computer.run(1.5, (0.5, lambda: computer.take("the driver hangs")))
    missing = computer.missing("a")
    assert missing.keys() == {"gpu:GPU-0", "gpu:GPU-1", "rank:1.1.1:0"}
    assert {reason for each in missing.values() for reason in each.values()} == {
        "the driver hangs"
    }
    assert not any(name.startswith("gpu:") for name in computer.missing("b"))
