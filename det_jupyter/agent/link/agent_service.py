"""Keeps an agent connected to its master: registers, carries out commands, sends reports.

    searching   no master: reads master.json again, with pauses    -> connected
    connected   one loop carries out commands,                     -> searching, when either loop
                one sends batches from the outbox                     loses the connection

A process with several agents has a connection for each. `serve` maintains them until one of these:

    the master orders an agent to leave, or the process gets SIGTERM (or SIGINT): then its gangs
      first save their state and leave, as far as they can within the grace time; a SIGINT after
      that ends them at once
    the master refuses the token of an agent, which it never accepts again
    no gang runs, and no agent has had a connection for long

Then the process ends. Gangs do not depend on the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from det_jupyter._version import __version__
from det_jupyter.agent.devices.neighbours import Claims, Neighbours, with_claims
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link.console_tunnels import ConsoleTunnels, announce_kernels
from det_jupyter.agent.link.master_link import MasterLink, open_link
from det_jupyter.agent.link.outbox import ReportOutbox
from det_jupyter.agent.link.trial_files import TrialFiles
from det_jupyter.agent.link.uploads import Uploads
from det_jupyter.agent.runs.lease import Lease
from det_jupyter.agent.runs.remote_master import RemoteMaster
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.contract.host.clock_steps import booted_at
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentCredentials,
    AgentReports,
    CheckConnections,
    DevicesSeen,
    DisksSeen,
    Loss,
    OpenTunnel,
    RegisterAgent,
    RunCommand,
    RunReport,
    StartGang,
    WantSlots,
)
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.errors import AgentDismissed, MasterUnreachable

logger = logging.getLogger(__name__)

BEAT_S = 3.0  # longest time between two requests, which are the heartbeat of this agent
_POLL_S = 0.05  # how often the files of running gangs are checked for new lines
_REST_S = 0.1  # pause after a batch, which limits requests to ten a second
_WAIT_S = 1.0  # pause when no gang runs, or when the master stores nothing
_PAUSES_S = (0.1, 1.0)  # first and longest pause between two attempts to connect
_IDLE_POLL_S = 0.2  # how often `serve` checks whether this process is needed
_DEVICES_S = 2.0  # how long a slow driver may delay the first registration
_STEADY_S = 5.0  # a connection that lasted this long resets the pauses
_EXITS_POLL_S = 0.01  # how often it is checked whether the master has stored the ends
_ENDING_S = 1.0  # time to end the gangs, and again to report their ends
_REMOTE_ENDING_S = 10.0  # a remote agent uploads checkpoints before it reports the ends
_RESERVE_S = 5.0  # of a grace time, at most half: for the uploads if gangs do not leave
_EXIT_S = 1.0  # of a grace time: for the end of this process


class AgentService:
    """The connection of one agent to its master.

    Args:
        offer: The agent's id and slots.
        session: Random id of this agent process.
        is_watched: Whether `note_devices` will be called; then registration waits for it.
        samples: The samples of this computer.
        credentials: If the master is on another computer.
        remote: What runs need of that master.
        address: This computer's address for other agents; "": the one that the master sees.
    """

    def __init__(
        self,
        *,
        offer: Offer,
        session: str,
        runner: Runner,
        is_watched: bool = False,
        samples: SampleBox | None = None,
        credentials: AgentCredentials | None = None,
        remote: RemoteMaster | None = None,
        address: str = "",
    ) -> None:
        self._on_answer = remote.lease.renew if remote else None
        self._offer = offer
        self._session = session
        self._runner = runner
        self._runs = runner.runs_of(offer.agent_id)
        self._uploads = Uploads(offer.agent_id, credentials, runner.news.set, runner.break_off)
        self._files = TrialFiles(credentials, self._runs) if credentials else None
        self._outbox = ReportOutbox(self._runs, samples, self._uploads, self._files)
        self._devices: DevicesSeen | None = None
        self._claims: Claims = {}  # of other masters
        self._seen: DevicesSeen | None = None  # both together
        self.neighbours: Neighbours | None = None
        self._devices_seen = asyncio.Event()
        if not is_watched:
            self._devices_seen.set()
        self._credentials = credentials
        self._address = address
        self._listener = remote.listener if remote else None
        # Referenced, so that they are not garbage-collected.
        self._checks: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()
        self._must_register = False  # whether the master has yet to store that there are no slots
        self.dismissal = ""  # why the master will never accept this agent again
        self._is_closed = False
        self._is_linked = False
        self._linked_until = time.monotonic()

    @property
    def unlinked_s(self) -> float:
        """Seconds since this agent last had a connection to a master; 0 while it has one."""
        return 0.0 if self._is_linked else time.monotonic() - self._linked_until

    def note_devices(self, seen: DevicesSeen) -> None:
        """Send the processes on the devices, now and with each registration."""
        self._devices = seen
        self._devices_seen.set()
        self._note_seen(is_shared=self._seen is not None and self._seen.is_shared)

    def note_claims(self, claims: Claims, is_shared: bool) -> None:
        """Send the slots that other masters have claimed, now and with each registration."""
        self._claims = claims
        self._note_seen(is_shared=is_shared)

    def _note_seen(self, *, is_shared: bool) -> None:
        seen = self._devices or DevicesSeen(at=time.time(), processes={})
        processes = with_claims(seen.processes, self._claims)
        self._seen = seen.model_copy(update={"processes": processes, "is_shared": is_shared})
        self._outbox.note_devices(self._seen)
        self._runner.news.set()

    def note_disks(self, seen: DisksSeen) -> None:
        """Send how full the disks are, with the next request."""
        self._outbox.note_disks(seen)

    def leave(self) -> None:
        """Register without slots if the master is elsewhere, so that it starts nothing here."""
        if self._credentials:
            self._must_register = self._is_linked
            self._leaving.set()

    def close(self) -> None:
        """Do not connect again. The caller cancels `keep_linked` next."""
        self._is_closed = True

    async def report_exits(self, left_s: float | None = None) -> None:
        """Wait until the master has stored that this agent exits, for a limited time.

        The master has to store the ends of all runs and, on another computer, that the agent has
        no slots.

        Args:
            left_s: Time that is left for that; None: the usual time.
        """
        if self.dismissal:
            return
        if left_s is None:
            left_s = _REMOTE_ENDING_S if self._credentials else _ENDING_S
        deadline = time.monotonic() + left_s
        while (self._is_linked or self._leaving.is_set()) and time.monotonic() < deadline:
            is_stored = all(run.exit_sent_at is not None for run in self._runs.values())
            if is_stored and not self._must_register:
                return
            await asyncio.sleep(_EXITS_POLL_S)

    async def keep_linked(self) -> None:
        """Connect to the master, and again after each failure; runs until cancelled."""
        sending = asyncio.create_task(self._files.keep_sent()) if self._files else None
        try:
            await self._keep_linked()
        finally:
            if sending is not None:
                sending.cancel()
            await self._uploads.close()

    async def _keep_linked(self) -> None:
        with suppress(TimeoutError):  # the master must not start trials on GPUs in use
            async with asyncio.timeout(_DEVICES_S):
                await self._devices_seen.wait()
        pauses, reason = growing_pauses(*_PAUSES_S), ""
        while not (
            self._is_closed or self.dismissal
        ):  # a TaskGroup that fails hides that it was cancelled
            began = time.monotonic()
            try:
                await self._serve_connection()
            except* AgentDismissed as dismissed:
                self.dismissal = str(dismissed.exceptions[0])
                self._runner.leave_ordered.set()
            except* MasterUnreachable as unreachable:
                reason = _log_disconnect(unreachable, reason)
            except* Exception as unexpected:  # for example, no file can be opened
                reason = _log_disconnect(unexpected, reason)
            if time.monotonic() - began > _STEADY_S:
                pauses, reason = growing_pauses(*_PAUSES_S), ""
            await asyncio.sleep(next(pauses))

    async def _serve_connection(self) -> None:
        async with (
            open_link(
                agent_id=self._offer.agent_id,
                session=self._session,
                credentials=self._credentials,
                on_answer=self._on_answer,
            ) as link,
            ConsoleTunnels(self._credentials, self._runs) as tunnels,
        ):
            ahead_s = await link.clock_ahead_s() if self._credentials else 0.0
            is_leaving = self._leaving.is_set()
            offsets = await link.register(self._registration(ahead_s))
            self._must_register = self._must_register and not is_leaving
            self._outbox.reconnected(offsets.offsets)
            logger.info("agent=%s linked to the master", self._offer.agent_id)
            self._is_linked = True
            try:
                async with asyncio.TaskGroup() as group:
                    if not is_leaving:
                        group.create_task(self._until_leaving())
                    if self._credentials:
                        group.create_task(announce_kernels(link, self._runs))
                    group.create_task(self._carry_out_commands(link, tunnels))
                    group.create_task(self._send_reports(link))
            finally:
                self._is_linked = False
                self._linked_until = time.monotonic()
                if self.neighbours is not None:  # nothing starts here without a master
                    self.neighbours.want([], [])

    def _registration(self, clock_ahead_s: float) -> RegisterAgent:
        runs, own = self._runs.values(), ProcessIdentity.of(os.getpid())
        return RegisterAgent(
            protocol=PROTOCOL,
            version=__version__,
            session=self._session,
            hostname=own.host,
            pid=own.pid,
            birth=own.birth,
            slots=[] if self._leaving.is_set() else self._offer.slots,
            runs=[RunReport(allocation_id=run.id, alive=run.is_alive) for run in runs],
            devices=self._seen.processes if self._seen is not None else {},
            lost=self._seen.lost if self._seen is not None else {},
            is_shared=self._seen is not None and self._seen.is_shared,
            problems=list(self._offer.problems),
            versions=installed_versions() if self._credentials else {},
            address=self._address,
            port=self._listener.port if self._listener else 0,
            clock_ahead_s=clock_ahead_s,
            booted_at=booted_at(),
        )

    async def _carry_out_commands(self, link: MasterLink, tunnels: ConsoleTunnels) -> None:
        async for command in link.commands():
            try:
                if isinstance(command, OpenTunnel):
                    tunnels.open(command)
                elif isinstance(command, CheckConnections):
                    self._begin_check(link, command)
                elif isinstance(command, WantSlots):
                    if self.neighbours is not None:
                        self.neighbours.want(command.sizes, command.slot_ids)
                else:
                    self._runner.carry_out(self._adapted(command), agent_id=self._offer.agent_id)
            except Exception:  # a command that fails must not end other gangs
                logger.exception("the command %s failed", command.kind)
        raise MasterUnreachable("the master closed the connection")

    def _begin_check(self, link: MasterLink, command: CheckConnections) -> None:
        if self._listener is not None:
            agent = self._offer.agent_id
            task = asyncio.create_task(link.check(command, agent=agent, listener=self._listener))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _until_leaving(self) -> None:
        await self._leaving.wait()
        raise MasterUnreachable("this agent registers again, without slots, because it exits")

    def _adapted(self, command: RunCommand) -> RunCommand:
        """Return a command with the interpreter of this computer, if the master is elsewhere."""
        if self._credentials is None or not isinstance(command, StartGang):
            return command
        plan = command.plan.model_copy(update={"python": sys.executable})
        return command.model_copy(update={"plan": plan})

    async def _send_reports(self, link: MasterLink) -> None:
        sent_at = time.monotonic()
        while True:
            self._runner.news.clear()
            batch = self._outbox.next_batch(time.monotonic())
            silent_s = time.monotonic() - sent_at
            if not batch.reports and silent_s < BEAT_S:
                await self._await_news(min(self._poll_s(), BEAT_S - silent_s))
                continue
            sent_at = time.monotonic()
            answer = await link.report(
                AgentReports(session=self._session, booted_at=booted_at(), reports=batch.reports)
            )
            self._outbox.note_sent(batch, time.monotonic())
            has_moved = self._outbox.set_offsets(answer.offsets)
            if self._outbox.expects_offsets(batch) and not has_moved:
                logger.warning("the master's offsets do not move")
                await asyncio.sleep(_WAIT_S)
            elif batch.is_last:
                await self._await_news(_REST_S)

    def _poll_s(self) -> float:
        """Return how long to wait for an event: new lines in files set none and are polled for."""
        if any(run.is_alive for run in self._runs.values()):
            return _POLL_S
        return _WAIT_S if self._runs else BEAT_S

    async def _await_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._runner.news.wait()
        except TimeoutError:
            return


async def keep_lease(lease: Lease, runner: Runner) -> None:
    """End all gangs when the master has not answered for long, and keep the lease watched.

    See lease.py; runs until cancelled.
    """
    while True:
        lease.keep_watched()
        if not runner.has_living_gangs:
            lease.release()
        elif lease.unanswered_s > lease.fence_s:
            logger.error(
                "the master has not answered for %g s: the gangs are ended", lease.fence_s
            )
            await runner.lose(Loss.MASTER, _ENDING_S)
        await asyncio.sleep(_IDLE_POLL_S)


async def serve(services: Sequence[AgentService], *, runner: Runner, leave_after_s: float) -> None:
    """Serve until the master orders an agent to leave, or until no agent is needed.

    Args:
        leave_after_s: How long to stay without a master and without a gang.
    """
    links = [asyncio.create_task(service.keep_linked()) for service in services]
    order = asyncio.create_task(runner.leave_ordered.wait())
    idling = asyncio.create_task(_until_not_needed(services, runner, leave_after_s))
    tasks = [*links, order, idling]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for service in services:
            service.leave()
        saving = asyncio.create_task(_save_and_report(services, runner))
        hurried = asyncio.create_task(runner.hurried.wait())
        tasks += [saving, hurried]
        await asyncio.wait([saving, hurried], return_when=asyncio.FIRST_COMPLETED)
        if not saving.done():
            saving.cancel()
            await _end_and_report(services, runner)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises the task's exception
    finally:
        for service in services:
            service.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _save_and_report(services: Sequence[AgentService], runner: Runner) -> None:
    if (left_s := _left_s(runner)) is not None:
        await runner.save(max(left_s - _RESERVE_S, left_s / 2))
    await _end_and_report(services, runner)


async def _end_and_report(services: Sequence[AgentService], runner: Runner) -> None:
    await runner.lose(Loss.LEAVING, _ENDING_S)
    await asyncio.gather(*(service.report_exits(_left_s(runner)) for service in services))


def _left_s(runner: Runner) -> float | None:
    """Return the seconds until this process begins to exit; None if no time was set."""
    if runner.deadline is None:
        return None
    return max(_ENDING_S, runner.deadline - _EXIT_S - asyncio.get_running_loop().time())


async def _until_not_needed(
    services: Sequence[AgentService], runner: Runner, leave_after_s: float
) -> None:
    while (
        runner.has_living_gangs or min(service.unlinked_s for service in services) < leave_after_s
    ):
        await asyncio.sleep(_IDLE_POLL_S)


def _log_disconnect(group: ExceptionGroup[Exception], before: str) -> str:
    """Log why there is no connection, unless `before` is the same reason; return the reason."""
    reason = str(group.exceptions[0])
    if reason == before:
        return reason
    if group.subgroup(MasterUnreachable):
        logger.info("no master: %s", reason)
    else:
        logger.error("the link to the master broke; it is tried again", exc_info=group)
    return reason
