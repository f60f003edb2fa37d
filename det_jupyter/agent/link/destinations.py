"""Where an agent uploads the checkpoints of a run: the master's folder, or a bucket.

    send      the files of a share, some of which may be there from an earlier attempt
    commit    the checkpoint is there once the files of all shares are; share 0 is the chief's

Both may be repeated, and each call makes one attempt.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from det_jupyter.agent.link.master_link import agent_path, open_http
from det_jupyter.agent.link.sending import RequestRefused, commit, send_checkpoint, send_trace
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import AgentCredentials, StoredCheckpoint
from det_jupyter.contract.messages.disks import MASTERS
from det_jupyter.errors import BucketProblem, MasterUnreachable
from det_jupyter.storage.buckets.process import transfers


class UploadDestination(Protocol):
    """Where checkpoints are uploaded to.

    Attributes:
        name: Name of the destination, for messages.
    """

    name: str

    async def send(
        self, uuid: str, folder: Path, share: int = 0, num_shares: int = 1
    ) -> StoredCheckpoint | None:
        """Send the files of a share, and commit them; see `commit`."""

    async def commit(
        self, uuid: str, folder: Path, share: int, num_shares: int
    ) -> StoredCheckpoint | None:
        """Commit the files of a share that were sent.

        Args:
            uuid: The checkpoint.
            folder: With the files of the share.
            share: Which of the agents that have files of it this is.
            num_shares: How many have some.

        Returns:
            None if a rank has deleted the checkpoint before it was uploaded (it reports that
            next), or if nothing of the run is stored any more.

        Raises:
            Exception: This attempt has failed.
        """

    async def find_wait(self, error: Exception, run: AgentRun | None) -> str | None:
        """Return why an attempt that has failed is repeated without an end.

        "" if a disk there is full; None if it is not repeated so.

        Args:
            error: With which it has failed.
            run: The run of a checkpoint.
        """


class MasterFolder:
    """The folder of the master's computer.

    Args:
        credentials: Credentials of the agent; None if it is on that computer.
        agent_id: The agent.
        run_id: The run.
    """

    name = MASTERS

    def __init__(self, credentials: AgentCredentials | None, agent_id: str, run_id: str) -> None:
        self._credentials = credentials
        self._path = agent_path(agent_id)
        self._run = f"{self._path}/runs/{quote(run_id)}"

    async def send(
        self, uuid: str, folder: Path, share: int = 0, num_shares: int = 1
    ) -> StoredCheckpoint | None:
        """Send the files in parts; see sending.py."""
        async with open_http(self._credentials) as http:
            return await send_checkpoint(http, self._url(uuid), folder, share, num_shares)

    async def commit(
        self, uuid: str, folder: Path, share: int, num_shares: int
    ) -> StoredCheckpoint | None:
        """Ask the master to make the checkpoint."""
        async with open_http(self._credentials) as http:
            return await commit(http, self._url(uuid), folder, share, num_shares)

    async def send_trace(self, path: Path) -> str | None:
        """Send the file of a trace; return its path there, None if the run is given up."""
        async with open_http(self._credentials) as http:
            return await send_trace(http, f"{self._run}/files", path)

    async def find_wait(self, error: Exception, run: AgentRun | None) -> str | None:
        """Wait while the master answers nothing, or while the run lives and its disk is full."""
        if isinstance(error, httpx.TransportError | MasterUnreachable):
            return None if await self._is_answered() else f"{MASTERS} does not answer"
        is_alive = run is not None and run.is_alive
        return "" if is_alive and isinstance(error, RequestRefused) and error.no_room else None

    def _url(self, uuid: str) -> str:
        return f"{self._run}/checkpoints/{quote(uuid)}"

    async def _is_answered(self) -> bool:
        """Return whether the master answers a small request, with whatever status."""
        try:
            async with open_http(self._credentials) as http:
                await http.get(f"{self._path}/clock")
        except (httpx.TransportError, MasterUnreachable):
            return False
        except OSError:  # of this computer: no descriptor is free, for example
            return True
        return True


class Bucket:
    """A bucket; see storage/buckets/objects.py.

    Args:
        location: Location of the storage.
    """

    def __init__(self, location: str) -> None:
        self.name = location
        self._seen: dict[str, tuple[int, float]] = {}  # by uuid: objects, and since when so many

    async def send(
        self, uuid: str, folder: Path, share: int = 0, num_shares: int = 1
    ) -> StoredCheckpoint | None:
        """Put the files that are not there yet, and the list of them."""
        if folder.is_dir():
            await self._ask("put", uuid, folder=str(folder), share=share)
        return await self.commit(uuid, folder, share, num_shares)

    async def commit(
        self, uuid: str, folder: Path, share: int, num_shares: int
    ) -> StoredCheckpoint | None:
        """Create metadata.json, if this is share 0 and the lists of all shares are there."""
        path = f"{self.name}/{uuid}"
        if not folder.is_dir():  # removed by an earlier agent process, or deleted by a rank
            is_there = await self._ask("discard", uuid)  # does nothing if it is committed
            return StoredCheckpoint(path=path) if is_there else None
        is_there, num = await self._ask(
            "commit", uuid, folder=str(folder), share=share, num_shares=num_shares
        )
        if is_there:
            self._seen.pop(uuid, None)
            return StoredCheckpoint(path=path)
        now = time.monotonic()
        if self._seen.get(uuid, (0, now))[0] != num:
            self._seen[uuid] = num, now
        return StoredCheckpoint(path="", silent_s=now - self._seen[uuid][1])

    async def find_wait(self, error: Exception, run: AgentRun | None) -> str | None:
        """Wait while the bucket is away, also if the run has ended, unless it was killed."""
        is_away = isinstance(error, BucketProblem) and error.kind == "away"
        return str(error) if is_away and not (run is not None and run.is_killed) else None

    async def _ask(self, call: str, uuid: str, **given: object) -> Any:
        return await in_thread(partial(transfers.ask, call, self.name, uuid, **given))
