"""Runs gangs: one task per run starts the gang, waits for its end and records how it ended.

All agents of this process share the Runner. A run belongs to the agent that was ordered to start
it, even if its ranks are on several agents: that agent gets its commands and sends its reports.
If a gang is on several computers, the run here has only the ranks of this process; the master ends
the ranks elsewhere.

Gangs do not depend on the master: without one they train on, and their files grow. A command that
was carried out before is ignored, so the master may repeat any command.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from det_jupyter.agent.devices.neighbours import Neighbours
from det_jupyter.agent.devices.watch import WatchPlan
from det_jupyter.agent.runs.active_run import ActiveRun, LivingGang
from det_jupyter.agent.runs.gang import Gang, GangState
from det_jupyter.agent.runs.held_parts import HeldParts
from det_jupyter.agent.runs.memory_watch import MemoryWatch
from det_jupyter.agent.runs.remote_master import RemoteMaster
from det_jupyter.agent.runs.run import AgentRun, new_run
from det_jupyter.agent.runs.run_end import with_details, write_end
from det_jupyter.agent.runs.specs import make_specs
from det_jupyter.agent.runs.survivors import end_part, saved_by_survivors, watch_part
from det_jupyter.agent.runs.working_folder import prepare_working_folder
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.rank_processes import (
    RankExit,
    RankProcesses,
    StartFailed,
    kill_group,
    until_gone,
    write_records,
)
from det_jupyter.agent.tunnel.dialing import Unreached
from det_jupyter.agent.tunnel.interfaces import used_interfaces
from det_jupyter.agent.tunnel.part import LinkedPart
from det_jupyter.contract.host.run_processes import kill_run_processes
from det_jupyter.contract.messages import (
    CloseRun,
    ExtendGang,
    GangExited,
    KillGang,
    Leave,
    Loss,
    PassOrders,
    RunCommand,
    SignalGang,
    SlotView,
    StartGang,
    TakeSamples,
)
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import LaunchError

logger = logging.getLogger(__name__)

Prepare: TypeAlias = Callable[[AgentRun], Coroutine[Any, Any, None]]

_SIGNAL_S = 0.3  # time between signals that were sent to all processes of this computer


class Runner:
    """All runs of this process's agents.

    Args:
        agents: Their ids; the first also reports adopted runs of agents that are not among them.
        adopted: Runs that an earlier agent process left open.
        launcher: Starts ranks.
        lifeline_fd: Read end of a pipe that closes when this process exits.
        socket_dir: Short 0700 folder for IPC sockets.
        num_threads: Threads of each rank.
        prepare: Fetches what a run needs to this computer; None: that is there.
        remote: The master, if it is on another computer.
    """

    def __init__(
        self,
        *,
        agents: Sequence[str],
        adopted: list[AgentRun],
        launcher: Launcher,
        lifeline_fd: int,
        socket_dir: Path,
        num_threads: int,
        prepare: Prepare | None = None,
        remote: RemoteMaster | None = None,
    ) -> None:
        self.news = asyncio.Event()  # set when there may be something to report
        self.leave_ordered = asyncio.Event()
        self.hurried = asyncio.Event()
        self.deadline: float | None = None  # when this process is to have exited (loop's time)
        self.memory = MemoryWatch()
        self.devices: dict[str, WatchPlan] = {}  # how the devices are watched, by agent
        self.neighbours: Neighbours | None = None  # other masters that use this computer's slots
        self._runs: dict[str, dict[str, AgentRun]] = {agent_id: {} for agent_id in agents}
        for run in adopted:
            owners = [home for home in run.plan.homes if home in self._runs]
            self._runs[owners[0] if owners else agents[0]][run.id] = run
        self._active: dict[str, ActiveRun] = {}
        self._parts = HeldParts(self._runs, remote)
        self._watched_until: dict[str, float] = {}  # by agent, in the loop's time
        self._launcher = launcher
        self._make_specs = partial(make_specs, lifeline_fd=lifeline_fd, num_threads=num_threads)
        self._prepare = prepare
        self._remote = remote
        self._remote_agent = agents[0] if remote is not None else ""
        self._socket_dirs = (socket_dir / str(number) for number in count())

    def runs_of(self, agent_id: str) -> Mapping[str, AgentRun]:
        """Return the runs of an agent that the master has not closed, by id (a live mapping)."""
        return self._runs[agent_id]

    def runs(self) -> list[AgentRun]:
        """Return the runs of all agents that the master has not closed."""
        return [run for runs in self._runs.values() for run in runs.values()]

    @property
    def has_living_gangs(self) -> bool:
        """Whether any gang is not over."""
        return bool(self._active)

    def held_slots(self) -> list[SlotView]:
        """Return the slots here of the gangs that are not over."""
        runs = [active.run for active in self._active.values()]
        return [run.plan.slots[rank] for run in runs for rank in run.ranks]

    def living_gangs(self, agent_id: str | None = None) -> list[LivingGang]:
        """Return the gangs that have running ranks, of one agent or of all."""
        return [
            LivingGang(active.run, pids)
            for active in self._active.values()
            if (pids := active.gang.pids)
            and (agent_id is None or active.run.id in self._runs[agent_id])
        ]

    def is_watched(self, agent_id: str) -> bool:
        """Return whether the master has requested samples of an agent's computer (TakeSamples)."""
        until = self._watched_until.get(agent_id)
        return until is not None and asyncio.get_running_loop().time() < until

    def carry_out(self, command: RunCommand, *, agent_id: str) -> None:
        """Carry out a command of the master to one agent, or begin to."""
        level = logging.DEBUG if isinstance(command, TakeSamples) else logging.INFO
        allocation = command.plan if isinstance(command, StartGang) else command
        allocation_id = getattr(allocation, "allocation_id", "all")
        logger.log(level, "%s allocation=%s", command.kind, allocation_id)
        match command:
            case StartGang():
                self._start(command, self._runs[agent_id])
            case SignalGang():
                if active := self._active.get(command.allocation_id):
                    active.kill_at(asyncio.get_running_loop().time() + command.timeout_s)
                    active.run.raise_signal(command.signal)
            case ExtendGang():
                if active := self._active.get(command.allocation_id):
                    active.run.extend(command.target, is_last=command.target_is_last)
            case PassOrders():
                if active := self._active.get(command.allocation_id):
                    active.run.pass_orders(command)
            case KillGang():
                if run := self._runs[agent_id].get(command.allocation_id):
                    run.is_killed |= command.gives_up_uploads
                if active := self._active.get(command.allocation_id):
                    end_part(active) if command.lets_save else active.kill()
            case CloseRun():
                self._parts.close(command.allocation_id)
                _close(self._runs[agent_id], command.allocation_id)
            case TakeSamples():
                until = asyncio.get_running_loop().time() + command.for_s
                self._watched_until[agent_id] = until
            case Leave():
                self.leave_ordered.set()
            case _:
                assert_never(command)

    def break_off(self, run: AgentRun, error: str, *, no_room: bool) -> None:
        """End a run, whose gang may be over, because one of its checkpoints cannot be stored."""
        if active := self._active.get(run.id):
            active.gang.cannot_save(error, no_room=no_room)
            active.end_ordered.set()
        elif run.exited is not None:
            found = {"error": error, "error_is_final": False, "no_room": no_room}
            run.note_exited(run.exited.model_copy(update={**found, "not_saved": True}))
            run.exit_sent_at = None
        self.news.set()

    def leave_by(self, deadline: float) -> None:
        """Order this process to exit by then (the loop's time), so that gangs can save before."""
        if not self.leave_ordered.is_set():
            self.deadline = deadline
            self.leave_ordered.set()

    def leave_now(self) -> None:
        """Order this process to exit at once; gangs get no more time to save."""
        self.deadline = asyncio.get_running_loop().time()
        self.leave_ordered.set()
        self.hurried.set()

    async def save(self, timeout_s: float) -> None:
        """Request that all gangs save and leave, and wait for those that do up to `timeout_s`."""
        saving = [active.task for active in self._active.values() if active.ask_to_leave()]
        if tasks := [task for task in saving if task is not None]:
            logger.info("the gangs are to save their state and leave, within %.0f s", timeout_s)
            await asyncio.wait(tasks, timeout=timeout_s)

    async def lose(self, loss: Loss, timeout_s: float) -> None:
        """End all gangs because they cannot stay, and wait for them up to `timeout_s`."""
        tasks = [active.task for active in self._active.values() if active.task]
        for active in self._active.values():
            active.lose(loss)
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    def _start(self, command: StartGang, runs: dict[str, AgentRun]) -> None:
        plan = command.plan
        if any(plan.allocation_id in others for others in self._runs.values()):
            return
        # The next agent of this computer gets the order when it registers. As a lost run it would
        # be repeated here at once, until the trial is given up.
        if self.leave_ordered.is_set() and not self._remote_agent:
            return
        run = new_run(
            plan,
            command.link,
            agents=self._runs,
            sockets=next(self._socket_dirs),
            remote_agent=self._remote_agent,
        )
        gang = Gang(
            run.id, run.process_ranks, kill_group=kill_group, may_end_early=plan.is_program
        )
        active = ActiveRun(run=run, gang=gang)
        runs[run.id] = run
        if self.leave_ordered.is_set():  # the order was on its way when this agent began to exit
            gang.lose(Loss.LEAVING)
            self._finish(active, with_details(run, gang.to_report(time.time())))
            return
        try:
            run.prepare()
        except OSError as error:
            gang.not_started(f"the run's folder cannot be made: {error}")
            self._finish(active, with_details(run, gang.to_report(time.time())))
            return
        self._active[run.id] = active
        active.task = asyncio.create_task(self._run_gang(active))

    async def _run_gang(self, active: ActiveRun) -> None:
        run, gang = active.run, active.gang
        try:
            await self._start_and_wait(active)
        except Unreached as error:
            active.cut_off(error.cut)
            gang.not_started()
        except (LaunchError, StartFailed) as error:
            if isinstance(error, StartFailed) and error.loss is not None:
                active.lose(error.loss)
            gang.not_started(str(error), is_final=isinstance(error, LaunchError))
            logger.error("allocation=%s was not started: %s", run.id, error)
        except Exception as error:  # a run without an end would hold its slots forever
            logger.exception("allocation=%s is broken off", run.id)
            what = error_text(error)
            gang.broken_off(f"the agent could not run the ranks: {what}; see agent.log")
            for pid in gang.pids.values():
                await until_gone(pid)
        if run.plan.is_program:  # processes that its ranks started must not journal any more
            await asyncio.to_thread(kill_run_processes, run.dir)
        exited = active.memory.added_to(with_details(run, gang.to_report(time.time())))
        exited = exited.model_copy(update={"faults": active.faults})
        if run.plan.is_program:
            with suppress(OSError, ValueError):  # user code may have removed the folder
                await asyncio.to_thread(write_end, run.plan, run.dir, exited)
        self._finish(active, exited)

    async def _start_and_wait(self, active: ActiveRun) -> None:
        """Start the gang's ranks and wait until all have exited."""
        run, gang = active.run, active.gang
        if not await self._claims_slots(run):
            active.lose(Loss.TAKEN)
            gang.not_started()
            return
        async with AsyncExitStack() as held:
            part = await self._parts.open(run, held)
            if not await self._get_ready(active, part):
                gang.not_started()
                return
            if part is not None:
                run.interfaces = used_interfaces(part.network, run.variables())
            specs = partial(self._make_specs, run, part.network if part is not None else None)
            lease = self._remote.lease if self._remote is not None else None
            lease_number = await lease.hold() if lease is not None else 0
            try:
                processes = await self._launcher.launch(run.plan, specs, active.end_ordered)
            except StartFailed:
                if lease is not None and lease.has_expired_since(lease_number):
                    active.lose(Loss.MASTER)  # the watcher has killed the fork server too
                raise
            if processes is None:
                gang.not_started()
                return
            self._note_started(active, processes)
            with ExitStack() as watched:
                if part is not None:
                    watched.callback(asyncio.create_task(watch_part(active, part)).cancel)
                while not gang.is_over:
                    rank_exit = await processes.exits.get()
                    if lease is not None and lease.has_expired_since(lease_number):
                        active.lose(Loss.MASTER)  # the ranks did not fail, the watcher killed them
                    await self._note_exit(active, rank_exit)
            if part is not None and part.copies is not None:
                self._parts.hold(run.id, held)

    async def _note_exit(self, active: ActiveRun, rank_exit: RankExit) -> None:
        """Record the exit of a rank; if it is the first that failed, let the others save."""
        gang = active.gang
        is_first_failure = gang.state is GangState.RUNNING and rank_exit.exit_code != 0
        if is_first_failure and await self._exits_too():
            active.lose(Loss.LEAVING)
        elif is_first_failure:  # before the other ranks are killed
            gang.ended_at = time.time()
            active.memory = self.memory.look(
                active.run.id, rank_exit.rank, rank_exit.exit_code, gang.pids
            )
            await saved_by_survivors(active, rank_exit)
            await active.find_faults(self.devices)
        gang.rank_exited(rank_exit)

    async def _claims_slots(self, run: AgentRun) -> bool:
        """Take the slots of a run, and return whether no other master was faster."""
        slots = [run.plan.slots[rank].id for rank in run.ranks]
        return self.neighbours is None or await self.neighbours.claim(run.id, slots)

    async def _get_ready(self, active: ActiveRun, part: LinkedPart | None) -> bool:
        """Prepare what the ranks here need, and wait for the other parts of the gang.

        Returns False if the gang's end was ordered meanwhile.
        """
        run = active.run
        if self._prepare is not None and not await active.completes(self._prepare(run)):
            return False
        await prepare_working_folder(run)
        return part is None or await active.completes(part.gather())

    async def _exits_too(self) -> bool:
        """Return whether this agent exits as well.

        Slurm ends a job by SIGTERM to all of its processes, so a rank may have ended before the
        agent has handled its own signal. So an agent elsewhere waits for it for a moment.
        """
        if self._remote is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SIGNAL_S):
                    await self.leave_ordered.wait()
        return self.leave_ordered.is_set()

    def _note_started(self, active: ActiveRun, processes: RankProcesses) -> None:
        run = active.run
        self.memory.started()
        active.started_at = time.time()
        active.gang.started(processes.pids)
        run.note_started(at=time.time(), pids=processes.pids, note=processes.note)
        self.news.set()
        logger.info("allocation=%s started pids=%s: %s", run.id, processes.pids, processes.note)
        try:
            write_records(run.dir, processes.pids)
        except OSError as error:  # only needed on systems without PDEATHSIG
            logger.warning("allocation=%s: %s cannot be written: %s", run.id, run.dir.ranks, error)

    def _finish(self, active: ActiveRun, exited: GangExited) -> None:
        if active.deadline is not None:
            active.deadline.cancel()
        run = active.run
        if self.neighbours is not None:
            self.neighbours.release(run.id)
        run.note_exited(exited)
        logger.info("allocation=%s is over: exit codes %s", run.id, exited.exit_codes)
        self._active.pop(run.id, None)
        self.news.set()


def _close(runs: dict[str, AgentRun], allocation_id: str) -> None:
    run = runs.get(allocation_id)
    if run is None or run.is_alive:
        return
    del runs[allocation_id]
    # In another thread: a script may have written many files (a data set).
    asyncio.get_running_loop().run_in_executor(None, run.close)
