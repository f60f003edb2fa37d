"""Uploads checkpoints that ranks saved on this computer to the master's computer.

    a rank saves            into this computer's data folder, as on the master's computer
    its record is held back until the master has stored the checkpoint, with the journal after it
    its record is sent      with the path of the checkpoint on the master's computer

So training does not wait for an upload, and records refer only to checkpoints that the master has
stored. The end of a run is reported after its last checkpoint was uploaded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx

from det_jupyter.agent.link.master_link import agent_path, open_http
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials, Chunk, StoredCheckpoint, StoredFiles
from det_jupyter.contract.run.journal import CheckpointSaved, parse_line, to_line
from det_jupyter.contract.values.text import error_text

logger = logging.getLogger(__name__)

_PART_BYTES = 4 * 1024 * 1024
_PAUSES_S = (0.2, 5.0)  # first and longest pause between two attempts


class Uploads:
    """The checkpoints that are being uploaded to the master.

    Args:
        credentials: Of the agent.
        on_done: Called after each upload.
    """

    def __init__(self, credentials: AgentCredentials, on_done: Callable[[], None]) -> None:
        self._credentials = credentials
        self._base = agent_path(credentials.agent)
        self._on_done = on_done
        self._folder = paths.data_dir() / "checkpoints"
        self._stored: dict[str, str] = {}  # paths on the master's computer, by uuid
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._latest: dict[str, str] = {}  # the last one that was uploaded, by allocation

    def sendable(self, chunk: Chunk) -> Chunk | None:
        """Return the part of a journal's chunk that can be sent now; None if there is none.

        It ends before the record of the first checkpoint that is not uploaded, and starts the
        upload.
        """
        if '"checkpoint"' not in chunk.text:
            return chunk
        lines, num_bytes = [], 0
        for line in chunk.text.splitlines(keepends=True):
            record = _saved(line)
            if record is None or Path(record.path).parent != self._folder:
                lines.append(line)
            elif record.uuid in self._stored:
                lines.append(to_line(replace(record, path=self._stored[record.uuid])))
            else:
                self._begin(chunk.allocation_id, record.uuid)
                break
            num_bytes += len(line.encode())
        else:
            return chunk.model_copy(update={"text": "".join(lines)})
        if not lines:
            return None
        return chunk.model_copy(update={"text": "".join(lines), "size_bytes": num_bytes})

    def _begin(self, allocation_id: str, uuid: str) -> None:
        if uuid not in self._tasks:
            self._tasks[uuid] = asyncio.create_task(self._upload(allocation_id, uuid))

    async def _upload(self, allocation_id: str, uuid: str) -> None:
        pause_s, longest_s = _PAUSES_S
        while True:
            try:
                async with open_http(self._credentials) as http:
                    self._stored[uuid] = await self._upload_files(http, uuid)
                break
            except Exception as error:  # the network, a disk: the run's end waits for this
                logger.warning("checkpoint %s is brought again: %s", uuid, error_text(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        before = self._latest.get(allocation_id)
        self._latest[allocation_id] = uuid
        if before is not None:  # a run on this agent may start from the latest
            await asyncio.to_thread(shutil.rmtree, self._folder / before, ignore_errors=True)
        self._on_done()

    async def _upload_files(self, http: httpx.AsyncClient, uuid: str) -> str:
        """Upload a checkpoint, and return its path on the master's computer."""
        folder, url = self._folder / uuid, f"{self._base}/checkpoints/{uuid}"
        if not folder.is_dir():  # deleted by its rank, which reports the deletion next
            return str(folder)
        files = await asyncio.to_thread(_sizes, folder)
        for name, size in files.items():
            with (folder / name).open("rb") as file:
                for offset in range(0, max(1, size), _PART_BYTES):
                    part = await asyncio.to_thread(file.read, _PART_BYTES)
                    answer = await http.put(
                        f"{url}/files/{name}", params={"offset": offset}, content=part
                    )
                    answer.raise_for_status()
        answer = await http.post(url, content=StoredFiles(files=files).model_dump_json())
        answer.raise_for_status()
        return StoredCheckpoint.model_validate_json(answer.content).path

    async def close(self) -> None:
        """Stop the uploads; the next agent process does those that are not complete."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


def _saved(line: str) -> CheckpointSaved | None:
    if '"checkpoint"' not in line:
        return None
    try:
        record = parse_line(line)
    except ValueError:  # the master quarantines the line
        return None
    return record if isinstance(record, CheckpointSaved) else None


def _sizes(folder: Path) -> dict[str, int]:
    return {
        Path(parent, name).relative_to(folder).as_posix(): Path(parent, name).stat().st_size
        for parent, _, names in os.walk(folder)
        for name in names
    }
