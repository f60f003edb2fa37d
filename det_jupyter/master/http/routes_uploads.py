"""Routes with which agents upload files that ranks have written on other computers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from det_jupyter.contract.messages import StoredCheckpoint, StoredFile, StoredFiles, Wire
from det_jupyter.contract.values.bounds import Count
from det_jupyter.errors import NotFound
from det_jupyter.master.http.responses import JsonResponse, new_routes
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.service.reports.checkpoint_inbox import CheckpointInbox, inside, write_part
from det_jupyter.master.service.service import Service


def upload_routes(service: Service, inbox: CheckpointInbox) -> APIRouter:
    """Return the routes for uploads to the master's data folder."""
    routes = new_routes()
    data_dir = service.store.path.parent

    @routes.put(
        "/agents/{agent_id}/runs/{allocation_id}/checkpoints/{uuid}/files",
        response_model=Wire,
    )
    async def put_part(
        agent_id: str,
        allocation_id: str,
        uuid: str,
        name: str,
        offset: Annotated[Count, Query()],
        body: Request,
    ) -> Response:
        """Store a part of a file of a checkpoint that a run on this agent has saved."""
        part = await body.body()  # read in any case, or the agent may not receive the answer
        trial_of(service, agent_id, allocation_id)
        await asyncio.to_thread(inbox.put, uuid, name, offset, part)
        return JsonResponse(Wire())

    @routes.post(
        "/agents/{agent_id}/runs/{allocation_id}/checkpoints/{uuid}",
        response_model=StoredCheckpoint,
    )
    async def commit(
        agent_id: str, allocation_id: str, uuid: str, stored: StoredFiles
    ) -> Response:
        """Create a checkpoint of the files that were stored, and return its path."""
        trial_of(service, agent_id, allocation_id)
        return JsonResponse(
            await asyncio.to_thread(
                inbox.commit, uuid, stored.files, stored.share, stored.num_shares
            )
        )

    @routes.put("/agents/{agent_id}/runs/{allocation_id}/files", response_model=StoredFile)
    async def put_file(
        agent_id: str,
        allocation_id: str,
        of: Literal["tensorboard", "traces"],
        name: str,
        offset: Annotated[Count, Query()],
        size: Annotated[Count, Query()],
        body: Request,
    ) -> Response:
        """Store a part of a TensorBoard file or trace; `size` is the size of the whole file."""
        part = await body.body()
        trial = trial_of(service, agent_id, allocation_id)
        folder = data_dir / of / str(trial.experiment_id) / str(trial.id)
        path = folder / inside(name)
        await asyncio.to_thread(_write, path, offset, part, size)
        return JsonResponse(StoredFile(path=str(path)))

    return routes


def _write(path: Path, offset: int, part: bytes, size: int) -> None:
    write_part(path, offset, part)
    if offset + len(part) >= size:
        with path.open("rb+") as file:
            file.truncate(size)


def trials_on(service: Service, agent_id: str) -> list[Trial]:
    """Return the trials that hold slots of an agent."""
    return service.machine.indexes.trials_on_agent(agent_id)


def trial_of(service: Service, agent_id: str, allocation_id: str) -> Trial:
    """Return the trial of a run on an agent.

    Raises:
        NotFound: The agent has no such run, or the master has given it up.
    """
    for trial in trials_on(service, agent_id):
        if trial.allocation is not None and trial.allocation.id == allocation_id:
            return trial
    raise NotFound(f"run {allocation_id} is not on agent {agent_id}")
