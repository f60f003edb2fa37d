"""Routes for agents: registration, commands, reports; files for those on other computers."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    AgentCommand,
    AgentReports,
    ClockReading,
    Offsets,
    OtherVersion,
    RegisterAgent,
    RemoteStart,
    StoredFiles,
)
from det_jupyter.contract.trial.captured import blobs_of, private_blobs_of
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.http.responses import JsonResponse, LinesResponse, new_routes
from det_jupyter.master.http.routes_uploads import trial_of, trials_on
from det_jupyter.master.machine.model.events import UnmanagedHeard
from det_jupyter.master.machine.rules.retention import may_read, start_checkpoints
from det_jupyter.master.service.reports.checkpoint_inbox import CheckpointInbox
from det_jupyter.master.service.service import Service
from det_jupyter.storage.kinds import folder_at

_IPV4_IN_IPV6 = "::ffff:"  # prefix of an IPv4 address on a listener for IPv4 and IPv6
_PROBE_PREFIX = ".det-probe-"
_PROBE_S = 60.0  # the age at which a probe is removed
_PROBED_S = 20.0  # time for a folder to answer; one on a network may never answer
HEARTBEAT_S = 5.0  # an agent that receives nothing for longer looks for another master


def agent_routes(service: Service, *, is_remote: bool = False) -> APIRouter:
    """Return the routes of every agent.

    Args:
        service: The master's service.
        is_remote: Whether the agents that use them are on other computers.
    """
    routes = new_routes()

    @routes.post("/agents/{agent_id}/register", response_model=Offsets)
    async def register(
        agent_id: str, registration: RegisterAgent | OtherVersion, request: Request
    ) -> Response:
        """Register an agent; return how many bytes are stored of each file of its runs."""
        peer = request.client.host.removeprefix(_IPV4_IN_IPV6) if request.client else ""
        return JsonResponse(
            service.register(agent_id, registration, is_remote=is_remote, peer=peer)
        )

    @routes.get("/agents/{agent_id}/commands", response_model=AgentCommand)
    async def commands(agent_id: str, session: str) -> Response:
        """Stream commands for an agent as JSON lines, endlessly."""
        link = service.links.get(agent_id, session)
        return LinesResponse(link.stream(HEARTBEAT_S))

    @routes.post("/agents/{agent_id}/reports", response_model=Offsets)
    async def reports(agent_id: str, reports: AgentReports) -> Response:
        """Store a batch of reports; return how many bytes are stored of each file in it."""
        return JsonResponse(service.take_reports(agent_id, reports))

    return routes


def unmanaged_routes(service: Service) -> APIRouter:
    """Return the route of runs that users have started by hand."""
    routes = new_routes()

    @routes.post("/unmanaged/{allocation_id}/reports", response_model=Offsets)
    async def reports(allocation_id: str, reports: AgentReports) -> Response:
        """Store a batch of reports; return how many bytes are stored of each file in it."""
        agent_id, was_silent = service.unmanaged.hear(allocation_id)
        if was_silent:
            service.take(UnmanagedHeard(allocation_id=allocation_id, silent_since=None))
        return JsonResponse(service.take_reports_of(agent_id, reports))

    return routes


def remote_routes(service: Service, inbox: CheckpointInbox) -> APIRouter:
    """Return the routes for agents that cannot read the master's data folder."""
    routes = new_routes()
    blobs = BlobStore.of(service.store.path.parent)

    @routes.get("/agents/{agent_id}/clock", response_model=ClockReading)
    async def clock(agent_id: str) -> Response:
        """Return the time on the master's clock."""
        return JsonResponse(ClockReading(at=time.time()))

    @routes.get("/agents/{agent_id}/blobs/{digest}")
    async def blob(agent_id: str, digest: str) -> Response:
        """Return a blob of a trial that holds slots of this agent."""
        capsules = [
            service.machine.state.experiment(trial.experiment_id).capsule
            for trial in trials_on(service, agent_id)
        ]
        if not any(digest in blobs_of(each) | private_blobs_of(each) for each in capsules):
            raise NotFound(f"blob {digest[:12]} is not part of a trial on agent {agent_id}")
        path = blobs.path(digest)
        if not path.is_file():
            raise NotFound(f"blob {digest[:12]} is not stored any more")
        return FileResponse(path, media_type="application/octet-stream")

    @routes.post("/agents/{agent_id}/runs/{allocation_id}/start", response_model=RemoteStart)
    async def start(agent_id: str, allocation_id: str) -> Response:
        """Return what an agent needs to start a run that the master has commanded."""
        trial = trial_of(service, agent_id, allocation_id)
        experiment = service.machine.state.experiment(trial.experiment_id)
        location = experiment.location
        uuids = start_checkpoints(trial)
        files = await asyncio.to_thread(lambda: {uuid: inbox.files(uuid) for uuid in uuids})
        return JsonResponse(
            RemoteStart(
                storage=location,
                probe=await _probe_at(location) if location else "",
                checkpoints={uuid: each for uuid, each in files.items() if each},
            )
        )

    @routes.get(
        "/agents/{agent_id}/runs/{allocation_id}/checkpoints/{uuid}", response_model=StoredFiles
    )
    async def checkpoint_files(agent_id: str, allocation_id: str, uuid: str) -> Response:
        """Return the files of a checkpoint that the code of a run on this agent reads."""
        trial = trial_of(service, agent_id, allocation_id)
        files = {}
        if may_read(service.machine.state, trial, uuid):
            files = await asyncio.to_thread(inbox.files, uuid)
        if not files:
            raise NotFound(
                f"the master's computer has no checkpoint {uuid} of experiment "
                f"{trial.experiment_id}"
            )
        return JsonResponse(StoredFiles(files=files))

    @routes.get("/agents/{agent_id}/checkpoints/{uuid}/files")
    async def checkpoint_file(agent_id: str, uuid: str, name: str) -> Response:
        """Return a file of a checkpoint that a trial on this agent may read."""
        if not any(
            may_read(service.machine.state, trial, uuid) for trial in trials_on(service, agent_id)
        ):
            raise NotFound(f"checkpoint {uuid} is not one of a trial on agent {agent_id}")
        path = inbox.path(uuid, name)
        if not path.is_file():
            raise NotFound(f"checkpoint {uuid} has no file {name}")
        return FileResponse(path, media_type="application/octet-stream")

    return routes


async def _probe_at(location: str) -> str:
    """Call `_make_probe`, with a time limit.

    Raises:
        DetError: The folder does not answer.
    """
    try:
        async with asyncio.timeout(_PROBED_S):
            return await asyncio.to_thread(_make_probe, location)
    except TimeoutError:
        raise DetError(
            f"checkpoint_storage: {location} on the master's computer does not answer within "
            f"{_PROBED_S:g} s; see whether its server can be reached"
        ) from None


def _make_probe(location: str) -> str:
    """Create a file in a folder of checkpoints; the agent removes it if it has the same folder.

    Returns:
        The file's name; "" if the location is no folder.
    """
    folder = folder_at(location)
    if folder is None:
        return ""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Remove old probes: agents with another checkpoint folder do not delete them.
    for path in folder.glob(f"{_PROBE_PREFIX}*"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < time.time() - _PROBE_S:
                path.unlink()
    descriptor, name = tempfile.mkstemp(prefix=_PROBE_PREFIX, dir=folder)
    os.close(descriptor)
    return Path(name).name
