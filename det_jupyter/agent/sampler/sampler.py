"""Samples the computer, its GPUs and the processes of gangs for all agents of this process.

    host, processes     read in another thread, because a read of /proc can block
    GPUs                read by another process (gpu_watch.py), because a driver can hang

The two do not wait for each other, and a sample has the values of one of them. An agent is sampled
while one of its gangs has a sampling interval, or the master has requested samples of it
(TakeSamples). Otherwise nothing is read and no process runs. The shortest interval of all counts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.memory_watch import MemoryWatch
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.gang_processes import ProcessReader
from det_jupyter.agent.sampler.gpu_watch import GpuSample, GpuWatch
from det_jupyter.agent.sampler.host_usage import HostReader
from det_jupyter.agent.sampler.readings import Reading, Values
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.values.measures import GPU, HOST
from det_jupyter.contract.values.text import error_text

logger = logging.getLogger(__name__)

_DEFAULT_INTERVAL_S = 1.0  # interval if no gang has one
_CHECK_S = 0.5  # how often it is checked whether anything is to be sampled
_LINGER_S = 5.0  # sampling continues for this time: the next trial often starts soon
_READ_S = 10.0  # time limit of a reading

HANGS = "reading /proc has not returned: a process, or a file system, hangs in the kernel"
NO_GPU = "this agent has no GPU: its slots are CPU places"
NO_GPU_OF_RANK = "this rank has no GPU"
NOT_LISTED = (
    "the driver lists no process of this rank: it has not used its GPU yet, or the driver has "
    "other process ids, as in a container"
)


class GangSource(Protocol):
    """What has the gangs: a Runner, or the follower of one run."""

    memory: MemoryWatch
    news: asyncio.Event

    def living_gangs(self, agent_id: str) -> list[LivingGang]: ...
    def is_watched(self, agent_id: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAgent:
    """An agent that can be sampled."""

    box: SampleBox  # receives the samples
    gpus: Sequence[str] = ()  # UUIDs of the GPUs that it offers


@dataclass(slots=True)
class _Demand:
    """The gangs to sample now, by agent, and the interval."""

    gangs: dict[str, list[LivingGang]]
    interval_s: float


@dataclass(slots=True)
class _Readers:
    """The readers of one period of sampling; their rates begin with it."""

    host: HostReader = field(default_factory=HostReader)
    processes: ProcessReader = field(default_factory=ProcessReader)


class Sampler:
    """Samples for all agents of this process.

    Args:
        agents: The agents of this process, by id.
    """

    def __init__(self, agents: Mapping[str, SampledAgent], *, runner: GangSource) -> None:
        self._agents = agents
        self._runner = runner
        self._readers: _Readers | None = None
        self._demand: _Demand | None = None
        self._until = 0.0
        self._sources: dict[str, set[str]] = {agent_id: set() for agent_id in agents}
        uuids = [uuid for agent in agents.values() for uuid in agent.gpus]
        self._gpus = GpuWatch(uuids, take=self._take_gpus) if uuids else None
        self._gpu_problem = ""
        self._last_error = ""
        self._pending: asyncio.Task[tuple[Reading, dict[str, Reading]]] | None = None
        self._gpu_users: set[str] = set()  # sources with GPU memory

    async def run(self) -> None:
        """Sample while there is a demand; runs until cancelled."""
        due = 0.0
        try:
            while True:
                demand = self._demand = self._find_demand()
                now = time.monotonic()
                if demand is None:
                    self._stop()
                    due = 0.0
                    await asyncio.sleep(_CHECK_S)
                    continue
                due = min(due, now + demand.interval_s)
                if self._gpus is not None:
                    self._gpus.start(demand.interval_s)
                if now >= due:
                    await self._sample(demand)
                    due += demand.interval_s
                    if due <= now:  # the first sample, or a late one
                        due = now + demand.interval_s
                await asyncio.sleep(max(0.0, min(_CHECK_S, due - time.monotonic())))
        finally:
            self._stop()

    def _find_demand(self) -> _Demand | None:
        gangs: dict[str, list[LivingGang]] = {}
        intervals: list[float] = []
        for agent_id in self._agents:
            sampled = [
                gang
                for gang in self._runner.living_gangs(agent_id)
                if gang.run.plan.sampling_interval_s is not None
            ]
            if sampled or self._runner.is_watched(agent_id):
                gangs[agent_id] = sampled
                intervals += [gang.run.plan.sampling_interval_s or 0.0 for gang in sampled]
        now = time.monotonic()
        if gangs:
            self._until = now + _LINGER_S
            return _Demand(gangs, min(intervals, default=_DEFAULT_INTERVAL_S))
        if self._demand is not None and now < self._until:
            nothing: dict[str, list[LivingGang]] = {
                agent_id: [] for agent_id in self._demand.gangs
            }
            return _Demand(nothing, self._demand.interval_s)
        return None

    def _stop(self) -> None:
        if self._gpus is not None:
            self._gpus.stop()
        readers, self._readers = self._readers, None
        pending, self._pending = self._pending, None
        if readers is not None and pending is not None:  # a reading still uses the files
            pending.add_done_callback(lambda _: readers.processes.close())
        elif readers is not None:
            readers.processes.close()

    async def _sample(self, demand: _Demand) -> None:
        readers = self._readers = self._readers or _Readers()
        gangs = [gang for of_agent in demand.gangs.values() for gang in of_agent]
        try:
            host, processes = await self._read(readers, gangs)
        except Exception as error:  # gangs are not affected, and the next sample may succeed
            if error_text(error) != self._last_error:
                logger.exception("the computer cannot be sampled now; the next sample is tried")
            self._last_error = error_text(error)
            reason = f"the computer could not be sampled: {error_text(error)}"
            host, processes = Reading(missing=dict.fromkeys(HOST, reason)), {}
        held = {source: read.values.get("memory_rss") for source, read in processes.items()}
        self._runner.memory.note(held)
        for agent_id, of_agent in demand.gangs.items():
            keys = {
                f"{gang.run.id}:{rank}": gang.run.plan.slots[rank].kind == "cuda"
                for gang in of_agent
                for rank in gang.pids
            }
            readings = {"host": host}
            for key, has_gpu in keys.items():
                rank, workers = f"rank:{key}", f"workers:{key}"
                readings |= {
                    name: processes[name] for name in (rank, workers) if name in processes
                }
                if rank in readings:
                    readings[rank].missing |= self._gpu_memory_missing(rank, has_gpu=has_gpu)
            self._put(agent_id, readings)

    async def _read(
        self, readers: _Readers, gangs: Sequence[LivingGang]
    ) -> tuple[Reading, dict[str, Reading]]:
        """Read in another thread; while a reading hangs, no other one starts."""
        if self._pending is None:
            self._pending = asyncio.create_task(in_thread(partial(_read, readers, gangs)))
        pending = self._pending
        await asyncio.wait([pending], timeout=_READ_S)
        if not pending.done():
            raise TimeoutError(HANGS)
        self._pending = None
        return pending.result()

    def _gpu_memory_missing(self, rank: str, *, has_gpu: bool) -> dict[str, str]:
        if not has_gpu:
            return {"gpu_memory": NO_GPU_OF_RANK}
        if rank in self._gpu_users:
            return {}
        return {"gpu_memory": self._gpu_problem or NOT_LISTED}

    def _put(self, agent_id: str, readings: Mapping[str, Reading]) -> None:
        agent = self._agents[agent_id]
        if not agent.gpus:
            agent.box.set_missing("gpu", dict.fromkeys(GPU, NO_GPU))
        agent.box.drop(self._sources[agent_id] - readings.keys())
        self._sources[agent_id] = set(readings)
        for source, reading in readings.items():
            agent.box.set_missing(source, reading.missing)
        agent.box.put({source: reading.values for source, reading in readings.items()})
        self._runner.news.set()

    def _take_gpus(self, taken: GpuSample | str) -> None:
        if self._demand is None:
            return
        self._gpu_problem = taken if isinstance(taken, str) else ""
        self._gpu_users.clear()
        for agent_id, gangs in self._demand.gangs.items():
            agent = self._agents[agent_id]
            if not agent.gpus:
                continue
            if isinstance(taken, str):
                for uuid in agent.gpus:
                    agent.box.set_missing(f"gpu:{uuid}", dict.fromkeys(GPU, taken))
                continue
            for source, reasons in (taken.missing or {}).items():
                agent.box.set_missing(source, reasons)
            allocations = {gang.run.id for gang in gangs}
            agent.box.put(dict(taken.values) | self._gpu_memory(taken, allocations))
        self._runner.news.set()

    def _gpu_memory(self, sample: GpuSample, allocations: Set[str]) -> dict[str, Values]:
        """Return the GPU memory of an agent's ranks and workers; add them to `_gpu_users`."""
        source_of = self._readers.processes.source_of if self._readers is not None else {}
        values: dict[str, Values] = {}
        for pid, used in sample.memory.items():
            source = source_of.get(pid)
            if source is not None and source.split(":")[1] in allocations:
                of_source = values.setdefault(source, {"gpu_memory": 0.0})
                of_source["gpu_memory"] += used
        self._gpu_users |= values.keys()
        return values


def _read(readers: _Readers, gangs: Sequence[LivingGang]) -> tuple[Reading, dict[str, Reading]]:
    interfaces = {name for gang in gangs for name in gang.run.interfaces}
    return readers.host.read(sorted(interfaces)), readers.processes.read(gangs, time.monotonic())
