"""Uploads checkpoints that ranks saved on this computer to the master's computer.

    a rank saves            into this computer's data folder, as on the master's computer
    its record is held back until the master has stored the checkpoint, with the journal after it
    its record is sent      with the path of the checkpoint on the master's computer

So training does not wait for an upload, and records refer only to checkpoints that the master has
stored. The end of a run is reported after its last checkpoint was uploaded. Of a run that the
master has given up, nothing is uploaded: its records are skipped there.

The copies on this computer stay until the run is closed, because its code may read and delete
them. Then the latest stays, from which another run on this computer may start.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import httpx

from det_jupyter.agent.link.fetching import remove_folder
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
        self._uploaded: dict[str, list[str]] = {}  # uuids by allocation

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
                self._begin(chunk.allocation_id, record)
                break
            num_bytes += len(line.encode())
        else:
            return chunk.model_copy(update={"text": "".join(lines)})
        if not lines:
            return None
        return chunk.model_copy(update={"text": "".join(lines), "size_bytes": num_bytes})

    def remove_copies(self, runs: Collection[str]) -> None:
        """Remove the checkpoints of runs that are not in `runs`, except for the latest of each."""
        for allocation_id in self._uploaded.keys() - set(runs):
            uuids = self._uploaded.pop(allocation_id)
            task = asyncio.create_task(asyncio.to_thread(self._remove, uuids[:-1]))
            self._tasks[f"remove {allocation_id}"] = task

    def _remove(self, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            remove_folder(self._folder / uuid)

    def _begin(self, allocation_id: str, record: CheckpointSaved) -> None:
        if record.uuid not in self._tasks:
            upload = self._upload(allocation_id, record)
            self._tasks[record.uuid] = asyncio.create_task(upload)

    async def _upload(self, allocation_id: str, record: CheckpointSaved) -> None:
        uuid = record.uuid
        url = f"{self._base}/runs/{quote(allocation_id)}/checkpoints/{quote(uuid)}"
        pause_s, longest_s = _PAUSES_S
        while True:
            try:
                async with open_http(self._credentials) as http:
                    path = await self._upload_files(http, url, self._folder / uuid)
                self._stored[uuid] = path or record.path
                break
            except Exception as error:  # the network, a disk: the run's end waits for this
                logger.warning("checkpoint %s is uploaded again: %s", uuid, error_text(error))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        self._uploaded.setdefault(allocation_id, []).append(uuid)
        self._on_done()

    async def _upload_files(self, http: httpx.AsyncClient, url: str, folder: Path) -> str | None:
        """Upload a checkpoint, and return its path on the master's computer.

        Returns:
            None if the master has no such run any more, or if a rank has deleted the checkpoint
            before it was uploaded; the rank reports the deletion next.
        """
        files = await asyncio.to_thread(_sizes, folder)
        for name, size in files.items():
            with (folder / name).open("rb") as file:
                for offset in range(0, max(1, size), _PART_BYTES):
                    part = await asyncio.to_thread(file.read, _PART_BYTES)
                    place: dict[str, str | int] = {"name": name, "offset": offset}
                    answer = await http.put(f"{url}/files", params=place, content=part)
                    if answer.status_code == httpx.codes.NOT_FOUND:
                        return None
                    answer.raise_for_status()
        answer = await http.post(url, content=StoredFiles(files=files).model_dump_json())
        if answer.status_code == httpx.codes.NOT_FOUND or (
            answer.status_code == httpx.codes.CONFLICT and not files
        ):
            return None
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


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sizes(folder: Path) -> dict[str, int]:
    """Return the files with their sizes; none if the folder does not exist.

    Links to files are uploaded as files. What cannot be uploaded is left out: links to nothing,
    sockets, and names that are not UTF-8.
    """
    sizes = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and _is_utf8(name):
                sizes[name] = path.stat().st_size
            elif os.path.lexists(path):
                logger.error("checkpoint %s: %r cannot be uploaded", folder.name, name)
    return sizes
