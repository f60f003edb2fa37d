"""Carries gangs: one task per run starts it, follows it to its end, and notes what happened.

All agents of this process share it. A run is the business of the agent that was told to start it,
though its ranks may be on several of them: that one hears of it from the master and tells of it.

Gangs do not depend on the master: while there is none they train on and their files grow. What was
ordered already is ignored, so the master may repeat any command.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import assert_never

from det_jupyter.agent.launch.processes import (
    RankProcesses,
    StartFailed,
    kill_group,
    until_gone,
    write_records,
)
from det_jupyter.agent.launch.spawn import Spawner
from det_jupyter.agent.launch.zygotes import Zygote, Zygotes
from det_jupyter.agent.runs.gang import Gang
from det_jupyter.agent.runs.places import check_agents
from det_jupyter.agent.runs.run import Run, new_run
from det_jupyter.errors import LaunchError
from det_jupyter.system.processes import is_frozen
from det_jupyter.wire import (
    AgentCommand,
    CloseRun,
    ExtendGang,
    GangPlan,
    KillGang,
    Leave,
    RankSpec,
    SignalGang,
    SlotView,
    StartGang,
    ZygoteReady,
)
from det_jupyter.words import error_text

logger = logging.getLogger(__name__)

_WARMUP_S = 60.0  # a zygote that takes longer is not waited for
_LOOK_S = 1.0  # how often it is seen whether one is stopped meanwhile


@dataclass(slots=True, kw_only=True, eq=False)
class _Carried:
    """A run whose gang is ours, with what is needed to end it."""

    run: Run
    gang: Gang
    end_ordered: asyncio.Event = field(default_factory=asyncio.Event)
    deadline: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None

    def kill(self) -> None:
        """End it by order of the master, or at the deadline that the master set."""
        self.gang.kill()
        self.end_ordered.set()

    def abandon(self) -> None:
        """End it because the agent leaves."""
        self.gang.abandon()
        self.end_ordered.set()

    def kill_at(self, deadline: float) -> None:
        """Kill it at that time of the loop's clock, unless it was to be killed before."""
        if self.deadline is not None:
            deadline = min(deadline, self.deadline.when())
            self.deadline.cancel()
        self.deadline = asyncio.get_running_loop().call_at(deadline, self._kill_late)

    def _kill_late(self) -> None:
        logger.warning("allocation=%s did not leave in time: killed", self.run.id)
        self.kill()


class Runner:
    """All runs of this process's agents.

    Args:
        agents: Their names; the first also has what was left by agents that are no more.
        adopted: What a dead predecessor left open.
        zygotes: Where ranks are forked from.
        spawner: Where ranks are started afresh.
        lifeline_fd: Read end of the pipe that tells ranks of our death.
        socket_dir: Short 0700 folder for IPC sockets.
        num_threads: Each rank's share of the cores.
    """

    def __init__(
        self,
        *,
        agents: Sequence[str],
        adopted: list[Run],
        zygotes: Zygotes,
        spawner: Spawner,
        lifeline_fd: int,
        socket_dir: Path,
        num_threads: int,
    ) -> None:
        self.news = asyncio.Event()  # there may be something to tell the master
        self.leave_ordered = asyncio.Event()
        self._runs: dict[str, dict[str, Run]] = {agent_id: {} for agent_id in agents}
        for run in adopted:
            self._runs[_heir(run.plan, agents)][run.id] = run
        self._carried: dict[str, _Carried] = {}  # those that are not over
        self._zygotes = zygotes
        self._spawner = spawner
        self._lifeline_fd = lifeline_fd
        self._num_threads = num_threads
        self._socket_dirs = (socket_dir / str(number) for number in count())

    def runs_of(self, agent_id: str) -> Mapping[str, Run]:
        """The runs of an agent that the master has not closed; stays up to date."""
        return self._runs[agent_id]

    @property
    def has_living_gangs(self) -> bool:
        """Whether any gang is not over."""
        return bool(self._carried)

    def held_slots(self) -> list[SlotView]:
        """Return what the gangs that are not over have."""
        return [slot for carried in self._carried.values() for slot in carried.run.plan.slots]

    def obey(self, command: AgentCommand, *, agent_id: str) -> None:
        """Carry out what the master has told an agent to do, or begin to."""
        logger.info("%s allocation=%s", command.kind, _allocation_of(command))
        match command:
            case StartGang():
                self._start(command.plan, self._runs[agent_id])
            case SignalGang():
                self._signal(command)
            case ExtendGang():
                if carried := self._carried.get(command.allocation_id):
                    carried.run.extend(command.target, is_last=command.target_is_last)
            case KillGang():
                if carried := self._carried.get(command.allocation_id):
                    carried.kill()
            case CloseRun():
                _close(self._runs[agent_id], command.allocation_id)
            case Leave():
                self.leave_ordered.set()
            case _:
                assert_never(command)

    async def abandon(self, timeout_s: float) -> None:
        """End all gangs because the agent leaves."""
        tasks = [carried.task for carried in self._carried.values() if carried.task]
        for carried in self._carried.values():
            carried.abandon()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _start(self, plan: GangPlan, runs: dict[str, Run]) -> None:
        if any(plan.allocation_id in others for others in self._runs.values()):
            return
        run = new_run(plan, sockets=next(self._socket_dirs))
        carried = _Carried(run=run, gang=Gang(run.id, run.world_size, kill_group=kill_group))
        runs[run.id] = run
        try:
            run.prepare()
        except OSError as error:
            carried.gang.not_started(f"the run's folder cannot be made: {error}", is_final=False)
            self._finish(carried)
            return
        self._carried[run.id] = carried
        carried.task = asyncio.create_task(self._carry(carried))

    def _signal(self, command: SignalGang) -> None:
        if carried := self._carried.get(command.allocation_id):
            carried.kill_at(asyncio.get_running_loop().time() + command.timeout_s)
            carried.run.raise_signal(command.signal)

    async def _carry(self, carried: _Carried) -> None:
        run, gang = carried.run, carried.gang
        try:
            await self._follow(carried)
        except (LaunchError, StartFailed) as error:
            gang.not_started(str(error), is_final=isinstance(error, LaunchError))
            logger.error("allocation=%s was not started: %s", run.id, error)
        except Exception as error:  # a run that never ends would hold its slots for ever
            logger.exception("allocation=%s is broken off", run.id)
            what = error_text(error)
            gang.broken_off(f"the agent could not carry the ranks: {what}; see agent.log")
            for pid in gang.living:
                await until_gone(pid)
        self._finish(carried)

    async def _follow(self, carried: _Carried) -> None:
        """Start the gang's ranks and stay until they are all gone."""
        gang = carried.gang
        processes = await self._launch(carried)
        if processes is None:
            gang.not_started("", is_final=False)
            return
        self._note_started(carried, processes)
        while not gang.is_over:
            gang.rank_exited(await processes.exits.get())

    async def _launch(self, carried: _Carried) -> RankProcesses | None:
        """Start all ranks and return them; None if the end was ordered before any existed.

        Once asked for, ranks are waited for even if their end is ordered meanwhile: somebody has
        to know of them.
        """
        run = carried.run
        check_agents(run.plan, self._runs)
        zygote = await self._zygotes.get(run.plan.python)
        ready = await self._readiness(zygote, carried.end_ordered)
        if carried.end_ordered.is_set():
            return None
        if ready is not None:
            _check_torch(run.plan, ready)
        reason = _why_not_ready(zygote) if ready is None else ready.unsafe
        if not reason:
            answer = await zygote.fork_gang(self._specs(run))
            if isinstance(answer, RankProcesses):
                return answer
            if carried.end_ordered.is_set():
                return None
            reason = answer.reason
        logger.warning("allocation=%s: ranks are started afresh: %s", run.id, reason)
        return self._spawner.spawn_gang(self._specs(run), note=f"started afresh: {reason}")

    def _specs(self, run: Run) -> list[RankSpec]:
        return run.specs(lifeline_fd=self._lifeline_fd, num_threads=self._num_threads)

    async def _readiness(self, zygote: Zygote, end_ordered: asyncio.Event) -> ZygoteReady | None:
        """Wait for the zygote to be ready, or for what makes waiting pointless."""
        ready = asyncio.create_task(zygote.ready())
        ended = asyncio.create_task(end_ordered.wait())
        deadline = time.monotonic() + _WARMUP_S
        num_frozen = 0  # looks in a row: one that is traced stops for an instant now and then
        while num_frozen < 2 and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(
                {ready, ended}, timeout=min(left, _LOOK_S), return_when=asyncio.FIRST_COMPLETED
            )
            if ready.done() or ended.done():
                break
            num_frozen = num_frozen + 1 if is_frozen(zygote.pid) else 0
        ended.cancel()
        if ready.done():
            return ready.result()
        ready.cancel()
        return None

    def _note_started(self, carried: _Carried, processes: RankProcesses) -> None:
        run = carried.run
        carried.gang.started(processes.pids)
        run.note_started(at=time.time(), pids=processes.pids, note=processes.note)
        self.news.set()
        logger.info("allocation=%s started pids=%s: %s", run.id, processes.pids, processes.note)
        try:
            write_records(run.dir, processes.pids)
        except OSError as error:  # it serves only a successor, on systems without PDEATHSIG
            logger.warning("allocation=%s: %s cannot be written: %s", run.id, run.dir.ranks, error)

    def _finish(self, carried: _Carried) -> None:
        if carried.deadline is not None:
            carried.deadline.cancel()
        run = carried.run
        run.note_exited(run.with_circumstances(carried.gang.to_report(time.time())))
        logger.info("allocation=%s is over: exit codes %s", run.id, carried.gang.exit_codes)
        self._carried.pop(run.id, None)
        self.news.set()


def _why_not_ready(zygote: Zygote) -> str:
    if is_frozen(zygote.pid):
        return f"the zygote (process {zygote.pid}) is stopped; `kill -CONT {zygote.pid}` wakes it"
    return f"the zygote was not ready after {_WARMUP_S:.0f} s"


def _heir(plan: GangPlan, agents: Sequence[str]) -> str:
    """Return the agent that speaks for a run of a predecessor."""
    told = plan.agent_ids[0] if plan.agent_ids else ""
    return told if told in agents else agents[0]


def _close(runs: dict[str, Run], allocation_id: str) -> None:
    run = runs.get(allocation_id)
    if run is None or run.is_alive:
        return
    run.close()
    del runs[allocation_id]


def _check_torch(plan: GangPlan, ready: ZygoteReady) -> None:
    """Refuse what would fail in every rank, and by a message that helps less."""
    if ready.torch_cuda is None and any(slot.kind == "cuda" for slot in plan.slots):
        raise LaunchError(
            f"the torch of {plan.python} is a CPU build but the slots are GPUs; install a CUDA "
            "build of torch there, or set DET_JUPYTER_CPU_SLOTS to train on CPU cores"
        )


def _allocation_of(command: AgentCommand) -> str:
    match command:
        case StartGang():
            return command.plan.allocation_id
        case Leave():
            return "all"
        case _:
            return command.allocation_id
