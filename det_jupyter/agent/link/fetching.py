"""Fetches the files that a run needs before it starts.

    blobs            captured code and the context directory, addressed by content: each is fetched
                     once, and removed when it was not used for a week
    checkpoints      those that the run starts from, and later those that its code reads
                     (core/wanted.py): in the master's own folder, or in a bucket (bucket_files.py)
    environment      values of variables, which may be secrets: only kept in memory

On the master's computer these are checkpoints in buckets; it has the others there. If the
configuration has a folder for checkpoints, it must be the same on both computers: the
master creates a file there, and the agent checks that it exists.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import httpx

from det_jupyter.agent.link.bucket_files import BucketFiles
from det_jupyter.agent.link.master_link import agent_path, open_http, refusal_text
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.tasks import run_all
from det_jupyter.contract.messages import (
    AgentCredentials,
    CheckpointRef,
    Loss,
    RemoteStart,
    StoredFiles,
)
from det_jupyter.contract.trial.captured import blobs_of
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import BucketProblem, DetError, LaunchError, MasterUnreachable
from det_jupyter.storage.buckets.storage import copies_dir

logger = logging.getLogger(__name__)

_RETRIED_S = 60.0  # longer than the master may be away before the gang is ended (FENCE_S)
_UPLOADED_S = 600.0  # how long to wait for a checkpoint that is on its way to the master
_FOLDER_S = 30.0  # how long a shared folder may take to answer; it may never
_PAUSE_S = 0.5
_REQUESTS_S = 0.1
_REST_S = 1.0  # pause while no run alive has a folder of requests
_AT_ONCE = 4
_PART_BYTES = 1 << 20
_TRIM_S = 3600.0
_KEPT_S = 7 * 24 * 3600.0


class RunFiles:
    """Prepares the files of this agent's runs.

    Args:
        credentials: Credentials of the agent, if the master is on another computer.
    """

    def __init__(self, credentials: AgentCredentials | None) -> None:
        self._credentials = credentials
        self._agent = credentials.agent if credentials else ""
        self._base = agent_path(self._agent)
        self._buckets = BucketFiles()
        self._blobs = BlobStore.of(paths.data_dir())
        self._checkpoints = paths.data_dir() / "checkpoints"
        # By checkpoint or blob: several trials may need the same one.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def prepare(self, run: AgentRun) -> None:
        """Fetch the run's files; set its environment and the paths of its checkpoints.

        While the master cannot be reached, for example because it is restarted, this is tried
        again for a limited time.

        Raises:
            LaunchError: The folder of its checkpoints is not the master's, or they cannot be saved
                in their bucket.
            StartFailed: A file could not be fetched or stored; another attempt may succeed.
        """
        if self._credentials is not None:
            await self._prepare_elsewhere(run, self._credentials.url)
        try:
            await self._buckets.prepare(run)
        except OSError as error:
            raise StartFailed(
                f"what the run starts from could not be fetched: {error_text(error)}"
            ) from None

    async def _prepare_elsewhere(self, run: AgentRun, master: str) -> None:
        deadline = time.monotonic() + _RETRIED_S
        try:
            while True:
                try:
                    async with open_http(self._credentials) as http:
                        return await self._prepare(http, run)
                except httpx.TransportError as error:
                    if time.monotonic() > deadline:
                        raise
                    logger.info("allocation=%s is prepared again: %s", run.id, error_text(error))
                await asyncio.sleep(_PAUSE_S)
        except (httpx.HTTPError, OSError, MasterUnreachable, DetError) as error:
            if isinstance(error, LaunchError):
                raise
            is_away = isinstance(error, (httpx.TransportError, MasterUnreachable))
            raise StartFailed(
                f"what the run needs could not be fetched from {master}: {_reason(error)}",
                Loss.MASTER if is_away else None,
            ) from None

    async def _prepare(self, http: httpx.AsyncClient, run: AgentRun) -> None:
        answer = await http.post(f"{self._base}/runs/{run.id}/start")
        await _check_accepted(answer)
        start = RemoteStart.model_validate_json(answer.content)
        if start.storage is None:
            run.dir.wanted.mkdir(mode=0o700, exist_ok=True)
        if start.storage is not None and start.probe:
            await _check_shared(self._agent, Path(start.storage), start.probe)
        limit = asyncio.Semaphore(_AT_ONCE)
        capsule = run.plan.capsule
        await run_all(self._fetch_blob(http, digest, limit) for digest in blobs_of(capsule))
        for uuid, files in start.checkpoints.items():
            await self._fetch_checkpoint(http, uuid, files, limit)
        run.set_plan(
            run.plan.model_copy(
                update={
                    "checkpoint": self._here(run.plan.checkpoint, start),
                    "warm_start": self._here(run.plan.warm_start, start),
                }
            )
        )
        run.environment = {}
        if capsule.environment is not None:
            answer = await http.get(f"{self._base}/blobs/{capsule.environment}")
            await _check_accepted(answer)
            run.environment = json.loads(answer.content)["values"]

    def _here(self, ref: CheckpointRef | None, start: RemoteStart) -> CheckpointRef | None:
        """Return a checkpoint with its path on this computer."""
        if ref is None or ref.uuid not in start.checkpoints:
            return ref
        return ref.model_copy(update={"path": str(self._checkpoints / ref.uuid)})

    async def _fetch_blob(
        self, http: httpx.AsyncClient, digest: str, limit: asyncio.Semaphore
    ) -> None:
        async with self._locks[digest]:
            with suppress(FileNotFoundError):
                os.utime(self._blobs.path(digest))  # for `remove_unused`
                return
            async with limit, http.stream("GET", f"{self._base}/blobs/{digest}") as answer:
                await _check_accepted(answer)
                with self._blobs.receiving(digest) as take:
                    async for part in answer.aiter_bytes(_PART_BYTES):
                        await asyncio.to_thread(take, part)

    async def _fetch_checkpoint(
        self, http: httpx.AsyncClient, uuid: str, files: dict[str, int], limit: asyncio.Semaphore
    ) -> None:
        folder = self._checkpoints / uuid
        async with self._locks[uuid]:
            if folder.is_dir():
                os.utime(folder)
                return
            draft = self._checkpoints / f".fetched-{uuid}"
            shutil.rmtree(draft, ignore_errors=True)
            url = f"{self._base}/checkpoints/{uuid}/files"
            await run_all(_fetch_file(http, url, name, draft, limit) for name in files)
            draft.rename(folder)

    async def serve_ranks(self, runs: Mapping[str, AgentRun]) -> None:
        """Fetch checkpoints that ranks request (core/wanted.py), until cancelled.

        Args:
            runs: The agent's open runs (live).
        """
        tasks: dict[Path, asyncio.Task[None]] = {}
        try:
            while True:
                alive = [run for run in runs.values() if run.is_alive and run.dir.wanted.is_dir()]
                for run in alive:
                    with suppress(OSError):  # for example, no file can be opened: looked up again
                        for request in run.dir.wanted.glob("*.json"):
                            if request not in tasks:
                                tasks[request] = asyncio.create_task(self._serve(run, request))
                for request in [request for request, task in tasks.items() if task.done()]:
                    del tasks[request]
                await asyncio.sleep(_REQUESTS_S if alive or tasks else _REST_S)
        finally:
            for task in tasks.values():
                task.cancel()

    async def _serve(self, run: AgentRun, request: Path) -> None:
        problem = ""
        try:
            wanted = json.loads(request.read_bytes())
            fetch = self._buckets.fetch_wanted if run.plan.bucket else self._fetch_wanted
            await fetch(run, str(wanted["uuid"]), is_saved=bool(wanted["is_saved"]))
        except Exception as error:  # of the request, the network or a disk: the rank raises it
            problem = _reason(error)
        logger.info("allocation=%s has requested a checkpoint: %s", run.id, problem or "fetched")
        with suppress(OSError):  # the run has ended, and its folder was removed
            request.unlink()
            paths.write_private(request.with_suffix(".done"), problem)

    async def _fetch_wanted(self, run: AgentRun, uuid: str, *, is_saved: bool) -> None:
        deadline = time.monotonic() + (_UPLOADED_S if is_saved else _RETRIED_S)
        while True:
            try:
                async with open_http(self._credentials) as http:
                    path = f"{self._base}/runs/{quote(run.id)}/checkpoints/{quote(uuid)}"
                    answer = await http.get(path)
                    await _check_accepted(answer)
                    files = StoredFiles.model_validate_json(answer.content).files
                    limit = asyncio.Semaphore(_AT_ONCE)
                    return await self._fetch_checkpoint(http, uuid, files, limit)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            except httpx.HTTPStatusError as error:
                is_absent = error.response.status_code == httpx.codes.NOT_FOUND
                if not (is_absent and is_saved) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_PAUSE_S)

    async def keep_trimmed(self, runs: Callable[[], Iterable[AgentRun]]) -> None:
        """Remove what is unused every hour, until cancelled.

        Args:
            runs: Returns the open runs of this process. They may use blobs, or wait for uploads,
                so whatever was used since the beginning of the oldest run is kept.
        """
        begun: dict[str, float] = {}  # by run: when it was not open yet
        looked_at = 0.0  # runs that are open by then belonged to an earlier agent process
        while True:
            begun = {run.id: begun.get(run.id, looked_at) for run in runs()}
            looked_at = time.time()
            oldest = min(begun.values(), default=looked_at)
            await asyncio.to_thread(self.remove_unused, min(oldest, looked_at - _KEPT_S))
            await asyncio.sleep(_TRIM_S)

    def remove_unused(self, before: float) -> None:
        """Remove blobs, checkpoints and files of trials that were last used before this time.

        On the master's computer only copies of checkpoints that are in buckets.
        """
        data_dir = paths.data_dir()
        copies = list(copies_dir(data_dir).glob("*"))
        if self._credentials is not None:
            copies += [*self._blobs.root.glob("??/*"), *self._checkpoints.glob("*")]
        for path in copies:
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    remove_folder(path) if path.is_dir() else path.unlink()
        if self._credentials is None:
            return
        for path in [*data_dir.glob("tensorboard/*/*"), *data_dir.glob("traces/*/*")]:
            with suppress(OSError):
                if max(each.stat().st_mtime for each in (path, *path.rglob("*"))) < before:
                    shutil.rmtree(path, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a checkpoint, if it exists; its files all disappear at once."""
    doomed = folder.with_name(f".removed-{folder.name.lstrip('.')}")
    with suppress(OSError):
        folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


async def _check_accepted(answer: httpx.Response) -> None:
    """Raise HTTPStatusError if the master refuses a request; its answer is read for `_reason`."""
    if answer.is_error:
        await answer.aread()
    answer.raise_for_status()


def _reason(error: Exception) -> str:
    """Return the message of an error of a request, or the sentences of the master's refusal."""
    if isinstance(error, httpx.HTTPStatusError):
        return refusal_text(error.response.status_code, error.response.content)
    return str(error) if isinstance(error, BucketProblem) else error_text(error)


async def _fetch_file(
    http: httpx.AsyncClient, url: str, name: str, folder: Path, limit: asyncio.Semaphore
) -> None:
    path = folder / name
    async with limit, http.stream("GET", url, params={"name": name}) as answer:
        await _check_accepted(answer)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("wb") as file:
            async for part in answer.aiter_bytes(_PART_BYTES):
                await asyncio.to_thread(file.write, part)


async def _check_shared(agent: str, folder: Path, probe: str) -> None:
    """Check that the folder contains the file that the master has created, and remove the file.

    Raises:
        LaunchError: The folder does not contain the file, or does not answer.
    """
    try:
        async with asyncio.timeout(_FOLDER_S):
            await asyncio.to_thread((folder / probe).unlink)
    except TimeoutError:
        raise LaunchError(
            f"checkpoint_storage: {folder} on agent {agent} does not answer within "
            f"{_FOLDER_S:g} s; see there whether its server can be reached"
        ) from None
    except OSError as error:
        raise LaunchError(
            f"checkpoint_storage: {folder} on agent {agent} is not the folder that the master's "
            f"computer has ({error.strerror}); mount it on both computers, or leave host_path "
            "out: then the agent uploads its checkpoints to the master"
        ) from None
