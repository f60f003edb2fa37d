"""The folder that a run's ranks work in: the notebook's, or a copy of the context directory."""

from __future__ import annotations

import asyncio
import socket

from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.context_dir import unpack_context
from det_jupyter.errors import LaunchError, NotFound

_FOLDER_S = 30.0  # how long a working folder may take to answer


async def prepare_working_folder(run: AgentRun) -> None:
    """Unpack the context directory; without one, check that the working folder exists.

    A folder on a network may never answer.

    Raises:
        LaunchError: The folder or the stored context directory does not exist.
        StartFailed: The copy could not be written, or the folder does not answer; another attempt
            may succeed.
    """
    limit_s = _FOLDER_S if run.plan.capsule.context is None else None  # to unpack takes its time
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.to_thread(_prepare, run)  # a thread cannot be cancelled
    except TimeoutError:
        raise StartFailed(
            f"{run.plan.cwd} on {socket.gethostname()} does not answer within {_FOLDER_S:g} s; if "
            "it is on a network, see whether its server can be reached"
        ) from None


def _prepare(run: AgentRun) -> None:
    context = run.plan.capsule.context
    if context is None:
        if problem := paths.find_missing_folder(run.plan.cwd):
            raise LaunchError(_without_folder(run) if run.remote_agent else problem)
        return
    try:
        unpack_context(context, BlobStore.of(paths.data_dir()), run.dir.work)
    except NotFound as error:
        raise LaunchError(f"the context directory is not stored any more: {error}") from None
    except OSError as error:  # such as a full disk, which may have room later
        raise StartFailed(
            f"cannot unpack the context directory to {run.dir.work}: {error}"
        ) from None


def _without_folder(run: AgentRun) -> str:
    return (
        f"agent {run.remote_agent} has no folder {run.plan.cwd}, where the notebook is, and "
        "the ranks run in it; submit with a context directory, which is sent there, or make "
        "the folder on that computer"
    )
