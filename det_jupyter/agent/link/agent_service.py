"""Keeps an agent connected to its master: registers, carries out commands, sends reports.

    searching   no master: read its file again, with pauses    -> connected
    connected   one loop carries out commands,                 -> searching, when either loop
                one sends batches from the outbox                 loses the master

A process with several agents has a connection for each. `serve` keeps them up until the master
orders an agent to leave, which ends the process, or until no agent has had a master for long and
no gang lives. Gangs do not depend on any of this.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress

from det_jupyter._version import __version__
from det_jupyter.agent.devices.offered_slots import Offer
from det_jupyter.agent.link.master_link import MasterLink, open_link
from det_jupyter.agent.link.outbox import Outbox
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.contract.host.processes import Process
from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentReports,
    DevicesSeen,
    RegisterAgent,
    RunReport,
)
from det_jupyter.errors import MasterUnreachable

logger = logging.getLogger(__name__)

BEAT_S = 3.0  # longest time between two requests: the master sees that this agent lives
_LOOK_S = 0.05  # how often files of living gangs are checked for new lines
_REST_S = 0.1  # pause after a batch, so that a chatty gang costs ten requests a second at most
_WAIT_S = 1.0  # when no gang lives, or the master stores nothing
_PAUSES_S = (0.1, 1.0)  # first and longest pause between two attempts to connect
_IDLE_LOOK_S = 0.2  # how often `serve` checks whether this process is needed
_FIRST_LOOK_S = 2.0  # how long a slow driver may delay the first registration
_STEADY_S = 5.0  # a connection of this length resets the pauses
_GOODBYE_S = 1.0  # to end the gangs, and again to report their ends


class Service:
    """The connection of one agent.

    Args:
        session: New for each agent process.
        is_watched: Whether a watch will call `note_devices`.
    """

    def __init__(
        self,
        *,
        offer: Offer,
        session: str,
        runner: Runner,
        is_watched: bool = False,
        samples: SampleBox | None = None,
    ) -> None:
        self._offer = offer
        self._session = session
        self._runner = runner
        self._runs = runner.runs_of(offer.agent_id)
        self._outbox = Outbox(self._runs, samples)
        self._seen: DevicesSeen | None = None
        self._have_looked = asyncio.Event()
        if not is_watched:
            self._have_looked.set()
        self._is_linked = False
        self._linked_until = time.monotonic()

    @property
    def alone_s(self) -> float:
        """Seconds without a master."""
        return 0.0 if self._is_linked else time.monotonic() - self._linked_until

    def note_devices(self, seen: DevicesSeen) -> None:
        """Send the processes on the devices: now, and with each registration."""
        self._seen = seen
        self._have_looked.set()
        self._outbox.note_devices(seen)
        self._runner.news.set()

    async def report_exits(self) -> None:
        """Wait until the master has the ends of all runs, for a second at most."""
        deadline = time.monotonic() + _GOODBYE_S
        while self._is_linked and time.monotonic() < deadline:
            if all(run.exit_sent_at is not None for run in self._runs.values()):
                return
            await asyncio.sleep(0.01)

    async def keep_linked(self) -> None:
        """Connect to the master, again after each failure, until canceled."""
        with suppress(TimeoutError):  # no trial should start on a GPU that others use
            async with asyncio.timeout(_FIRST_LOOK_S):
                await self._have_looked.wait()
        pause_s, longest_s = _PAUSES_S
        complaint = ""
        while True:
            began = time.monotonic()
            try:
                await self._stay_linked()
            except* MasterUnreachable as unreachable:
                complaint = _complain(unreachable, complaint)
            except* Exception as unexpected:  # no file can be opened, for example
                complaint = _complain(unexpected, complaint)
            if time.monotonic() - began > _STEADY_S:
                pause_s, complaint = _PAUSES_S[0], ""
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    async def _stay_linked(self) -> None:
        async with open_link(agent_id=self._offer.agent_id, session=self._session) as link:
            offsets = await link.register(self._registration())
            self._outbox.reconnected(offsets.offsets)
            logger.info("agent=%s linked to the master", self._offer.agent_id)
            self._is_linked = True
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._obey(link))
                    group.create_task(self._ship(link))
            finally:
                self._is_linked = False
                self._linked_until = time.monotonic()

    def _registration(self) -> RegisterAgent:
        runs, us = self._runs.values(), Process.of(os.getpid())
        return RegisterAgent(
            protocol=PROTOCOL,
            version=__version__,
            session=self._session,
            hostname=us.host,
            pid=us.pid,
            birth=us.birth,
            slots=self._offer.slots,
            runs=[RunReport(allocation_id=run.id, alive=run.is_alive) for run in runs],
            devices=self._seen.processes if self._seen is not None else {},
            problems=list(self._offer.problems),
        )

    async def _obey(self, link: MasterLink) -> None:
        async for command in link.commands():
            try:
                self._runner.obey(command, agent_id=self._offer.agent_id)
            except Exception:  # a command that fails must not end other gangs
                logger.exception("the command %s failed", command.kind)
        raise MasterUnreachable("the master closed the connection")

    async def _ship(self, link: MasterLink) -> None:
        sent_at = time.monotonic()
        while True:
            self._runner.news.clear()
            batch = self._outbox.next_batch(time.monotonic())
            quiet_s = time.monotonic() - sent_at
            if not batch.reports and quiet_s < BEAT_S:
                await self._await_news(min(self._patience_s(), BEAT_S - quiet_s))
                continue
            sent_at = time.monotonic()
            answer = await link.report(AgentReports(session=self._session, reports=batch.reports))
            self._outbox.note_sent(batch, time.monotonic())
            has_moved = self._outbox.set_offsets(answer.offsets)
            if self._outbox.waits_for(batch) and not has_moved:
                logger.warning("the master's offsets do not move")
                await asyncio.sleep(_WAIT_S)
            elif batch.is_last:
                await self._await_news(_REST_S)

    def _patience_s(self) -> float:
        """Return how long to wait for news: new lines in files set no event."""
        if any(run.is_alive for run in self._runs.values()):
            return _LOOK_S
        return _WAIT_S if self._runs else BEAT_S

    async def _await_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._runner.news.wait()
        except TimeoutError:
            return


async def serve(services: Sequence[Service], *, runner: Runner, leave_after_s: float) -> None:
    """Work until the master orders this process to leave, or nothing needs it.

    Args:
        leave_after_s: How long to stay without a master and without a living gang.
    """
    links = [asyncio.create_task(service.keep_linked()) for service in services]
    order = asyncio.create_task(runner.leave_ordered.wait())
    idling = asyncio.create_task(_until_not_needed(services, runner, leave_after_s))
    tasks = [*links, order, idling]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await runner.abandon(_GOODBYE_S)
        await asyncio.gather(*(service.report_exits() for service in services))
        for task in tasks:
            if task.done():
                task.result()  # raises what it ended with
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_not_needed(
    services: Sequence[Service], runner: Runner, leave_after_s: float
) -> None:
    while runner.has_living_gangs or min(service.alone_s for service in services) < leave_after_s:
        await asyncio.sleep(_IDLE_LOOK_S)


def _complain(group: ExceptionGroup[Exception], before: str) -> str:
    """Log why there is no connection, unless the last attempt failed alike; return the reason."""
    complaint = str(group.exceptions[0])
    if complaint == before:
        return complaint
    if group.subgroup(MasterUnreachable):
        logger.info("no master: %s", complaint)
    else:
        logger.error("the link to the master broke; it is tried again", exc_info=group)
    return complaint
