"""Builds the objects of an agent process and serves until the agent ends.

`__main__.py` imports this module after it has started the first fork server, because these imports
take long.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import time
import uuid
from dataclasses import replace
from importlib.util import find_spec
from urllib.parse import urlsplit

from pydantic import ValidationError

from det_jupyter.agent.devices.neighbours import Neighbours, open_shared
from det_jupyter.agent.devices.offered_slots import offered_agents, threads_per_slot
from det_jupyter.agent.devices.watch import watch, watch_plan
from det_jupyter.agent.hangs.gang_watch import watch_gangs
from det_jupyter.agent.link.agent_service import AgentService, keep_lease, serve
from det_jupyter.agent.link.fetching import RunFiles
from det_jupyter.agent.runs.lease import FENCE_S, Lease
from det_jupyter.agent.runs.rank_places import watch_places
from det_jupyter.agent.runs.remote_master import RemoteMaster
from det_jupyter.agent.runs.room_watch import watch_room
from det_jupyter.agent.runs.run import adopt_runs
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.runs.stopped_processes import report_stopped
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.sampler import SampledAgent, Sampler
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygote_process import ZygoteProcess
from det_jupyter.agent.starting.zygotes import Zygotes
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import ClockWatch
from det_jupyter.contract.host.daemons import keep_trimmed
from det_jupyter.contract.host.inheritance import find_remains
from det_jupyter.contract.host.interrupts import Interrupts
from det_jupyter.contract.host.socket_folders import socket_folder
from det_jupyter.contract.messages import AgentCredentials
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)


async def run_agent(
    first: ZygoteProcess, lifeline_fd: int, options: argparse.Namespace, credentials: str
) -> None:
    """Serve until the master orders an agent to leave, or until no agent is needed any more.

    Args:
        first: The fork server of this process's interpreter, just started.
        lifeline_fd: Read end of a pipe that closes when this process ends.
        options: The command line (`__main__.py`).
        credentials: JSON of AgentCredentials, if the master is on another computer; or "".
    """
    _note_absence_of_sniffio()
    remote = _parse_credentials(credentials) if credentials else None
    files = RunFiles(remote)
    master = None
    if remote:
        master = RemoteMaster(
            address=urlsplit(remote.url).hostname or "",
            lease=Lease(options.fence_after_s or FENCE_S),
            listener=await _listen(options.port),
        )
    name = remote.agent if remote else socket.gethostname()
    remains = () if remote else find_remains()
    offers = offered_agents(options.agent, os.environ, hostname=name, problems=remains)
    shared, shared_slots, problem = open_shared(offers, os.environ)
    if problem:
        offers[0] = replace(offers[0], problems=(*offers[0].problems, problem))
    adopted = adopt_runs(now=time.time())
    with socket_folder(paths.agent_sockets()) as folder:
        spawner = Spawner()
        zygotes = Zygotes(lifeline_fd=lifeline_fd, target=options.target)
        await zygotes.adopt(first)
        runner = Runner(
            agents=[offer.agent_id for offer in offers],
            adopted=adopted,
            launcher=Launcher(zygotes, spawner),
            lifeline_fd=lifeline_fd,
            socket_dir=folder,
            num_threads=threads_per_slot(sum(len(offer.slots) for offer in offers)),
            prepare=files.prepare,
            remote=master,
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, spawner.reap)
        interrupts = Interrupts(loop.time)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leave, runner, number, options.grace_s, interrupts)
        session = uuid.uuid4().hex
        services = []
        sampled = {}
        watches = [loop.create_task(keep_trimmed(paths.agent_log().name, "zygote-*.out"))]
        for offer in offers:
            devices = watch_plan(offer, os.environ, is_first=offer is offers[0])
            box = SampleBox()
            gpus = [slot.uuid for slot in offer.slots if slot.kind == "cuda"]
            sampled[offer.agent_id] = SampledAgent(box=box, gpus=gpus)
            service = AgentService(
                offer=offer,
                session=session,
                runner=runner,
                is_watched=devices is not None,
                samples=box,
                credentials=remote,
                remote=master,
                address=options.address,
            )
            services.append(service)
            watches.append(loop.create_task(files.serve_ranks(runner.runs_of(offer.agent_id))))
            if devices is not None:
                runner.devices[offer.agent_id] = devices
                watching = watch(
                    devices,
                    clock=time.time,
                    steps=ClockWatch(),
                    held=runner.held_slots,
                    report=service.note_devices,
                )
                watches.append(loop.create_task(watching))
        if shared is not None:
            neighbours = Neighbours(shared, shared_slots, services[0].note_claims)
            runner.neighbours = services[0].neighbours = neighbours
            watches.append(loop.create_task(neighbours.watch()))
        watches.append(loop.create_task(files.keep_trimmed(runner.runs)))
        if master:
            watches.append(loop.create_task(keep_lease(master.lease, runner)))
        watches.append(loop.create_task(Sampler(sampled, runner=runner).run()))
        note_disks = services[0].note_disks if remote else None
        watches.append(loop.create_task(watch_room(runner, note_disks)))
        watches.append(loop.create_task(report_stopped(runner.living_gangs)))
        watches.append(loop.create_task(watch_gangs(runner.living_gangs, runner.news.set)))
        watches.append(loop.create_task(watch_places(runner.living_gangs, runner.news)))
        try:
            await serve(services, runner=runner, leave_after_s=options.leave_after_s)
        finally:
            for task in watches:
                task.cancel()
            if master:
                master.listener.close()
            await zygotes.close()
            if master:
                await master.lease.close()
    if remote and services[0].dismissal:
        sys.exit(f"agent {name} ends: {remote.url}: {services[0].dismissal}")


def leave(runner: Runner, number: int, grace_s: float, interrupts: Interrupts) -> None:
    """Order an agent to exit because of a signal, at once if it is its second Ctrl-C."""
    if number == signal.SIGINT and not interrupts.note():
        return
    if number == signal.SIGINT and runner.leave_ordered.is_set():
        runner.leave_now()
        return
    again = "; Ctrl-C once more ends all at once" if number == signal.SIGINT else ""
    logger.info("trials save their state and leave, within %g s%s", grace_s, again)
    runner.leave_by(asyncio.get_running_loop().time() + grace_s)


async def _listen(port: int) -> GangListener:
    listener = GangListener()
    try:
        await listener.open(port)
    except DetError as error:
        sys.exit(str(error))
    return listener


def _note_absence_of_sniffio() -> None:
    """Let `import sniffio` fail at once where it is not installed.

    httpcore imports it four times in each request, and Python would search all folders each time.
    """
    if find_spec("sniffio") is None:
        sys.modules["sniffio"] = None  # type: ignore[assignment]  # known to be missing


def _parse_credentials(text: str) -> AgentCredentials:
    try:
        return AgentCredentials.model_validate_json(text)
    except ValidationError:
        sys.exit("stdin: expected the credentials of an agent, as JSON, with an https:// address")
