"""The agent as a program: puts the parts together, and serves.

Imported when the first fork server has been started (`__main__.py`): these imports are heavy.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import time
import uuid

from det_jupyter.agent.devices.slots import offered_agents, threads_per_slot
from det_jupyter.agent.devices.watch import watch, watch_plan
from det_jupyter.agent.link.service import Service, serve
from det_jupyter.agent.runs.frozen import report_frozen
from det_jupyter.agent.runs.run import adopt_runs
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.sampler import SampledAgent, Sampler
from det_jupyter.agent.sockets import socket_folder
from det_jupyter.agent.starting.launcher import Launcher
from det_jupyter.agent.starting.spawn import Spawner
from det_jupyter.agent.starting.zygote_process import ZygoteProcess
from det_jupyter.agent.starting.zygotes import Zygotes
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock import ClockWatch
from det_jupyter.contract.host.programs import keep_trimmed


async def run(first: ZygoteProcess, lifeline_fd: int, options: argparse.Namespace) -> None:
    """Serve until ordered to leave, or until nothing needs this process."""
    offers = offered_agents(options.agent, os.environ, hostname=socket.gethostname())
    adopted = adopt_runs(now=time.time())
    with socket_folder() as folder:
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
        )
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, spawner.reap)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, runner.leave_ordered.set)
        session = uuid.uuid4().hex
        services = []
        sampled = {}
        watches = [loop.create_task(keep_trimmed(paths.agent_log().name, "zygote-*.out"))]
        for offer in offers:
            devices = watch_plan(offer, os.environ, is_first=offer is offers[0])
            box = SampleBox()
            gpus = [slot.uuid for slot in offer.slots if slot.kind == "cuda"]
            sampled[offer.agent_id] = SampledAgent(box=box, gpus=gpus)
            service = Service(
                offer=offer,
                session=session,
                runner=runner,
                is_watched=devices is not None,
                samples=box,
            )
            services.append(service)
            if devices is not None:
                look = watch(
                    devices,
                    clock=time.time,
                    steps=ClockWatch(),
                    held=runner.held_slots,
                    report=service.note_devices,
                )
                watches.append(loop.create_task(look))
        watches.append(loop.create_task(Sampler(sampled, runner=runner).run()))
        watches.append(loop.create_task(report_frozen(runner.living_gangs)))
        try:
            await serve(services, runner=runner, leave_after_s=options.leave_after_s)
        finally:
            for task in watches:
                task.cancel()
            await zygotes.close()
