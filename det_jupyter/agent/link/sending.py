"""Sends files of runs to the master, in parts. Each function makes one attempt."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from det_jupyter.agent.link.master_link import refusal_text
from det_jupyter.contract.messages import StoredCheckpoint, StoredFile, StoredFiles
from det_jupyter.errors import problems_in
from det_jupyter.storage.listing import sizes_in

_PART_BYTES = 4 * 1024 * 1024


class RequestRefused(Exception):
    """The master has answered with an error."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status_code = answer.status_code
        if self.no_room:
            super().__init__(f"on the master's computer, {problems_in(answer.content)}")
        else:
            super().__init__(refusal_text(answer.status_code, answer.content))

    @property
    def no_room(self) -> bool:
        """Whether the master's disk is full."""
        return self.status_code == httpx.codes.INSUFFICIENT_STORAGE

    @property
    def is_given_up(self) -> bool:
        """Whether the master has no such run any more."""
        return self.status_code == httpx.codes.NOT_FOUND


async def send_checkpoint(
    http: httpx.AsyncClient, url: str, folder: Path, share: int = 0, num_shares: int = 1
) -> StoredCheckpoint | None:
    """Send an agent's files of a checkpoint, and commit them.

    Args:
        http: The client.
        url: Route of the checkpoint.
        folder: Folder with the files.
        share: Index of this agent among the agents that have files of the checkpoint.
        num_shares: Number of these agents.

    Returns:
        None if the master has no such run any more, or if a rank has deleted the checkpoint before
        it was uploaded; the rank reports the deletion next.

    Raises:
        RequestRefused: The master has answered with an error.
        OSError: A file cannot be read.
    """
    try:
        for name, size in (await asyncio.to_thread(sizes_in, folder)).items():
            await send_file(http, f"{url}/files", folder / name, {"name": name}, 0, size)
    except RequestRefused as refused:
        if refused.is_given_up:
            return None
        raise
    return await commit(http, url, folder, share, num_shares)


async def commit(
    http: httpx.AsyncClient, url: str, folder: Path, share: int, num_shares: int
) -> StoredCheckpoint | None:
    """Commit an agent's files that were sent; see `send_checkpoint`."""
    files = await asyncio.to_thread(sizes_in, folder)
    stored = StoredFiles(files=files, share=share, num_shares=num_shares)
    answer = await http.post(url, content=stored.model_dump_json())
    is_deleted = answer.status_code == httpx.codes.CONFLICT and not files
    if answer.status_code == httpx.codes.NOT_FOUND or is_deleted:
        return None
    if answer.is_error:
        raise RequestRefused(answer)
    return StoredCheckpoint.model_validate_json(answer.content)


async def send_file(
    http: httpx.AsyncClient,
    url: str,
    path: Path,
    place: dict[str, str | int],
    offset: int,
    size: int,
) -> bytes:
    """Send a file's bytes from `offset` to `size`, and return the last answer.

    Args:
        http: The client.
        url: The route.
        path: The file.
        place: Its name, and other parameters of the route.
        offset: Position of the first byte to send.
        size: Position after the last byte. A request is also sent for an empty file.

    Raises:
        RequestRefused: The master has answered with an error.
        OSError: The file cannot be read.
    """
    content = b""
    with path.open("rb") as file:
        file.seek(offset)
        while True:
            part = await asyncio.to_thread(file.read, min(_PART_BYTES, size - offset))
            answer = await http.put(url, params={**place, "offset": offset}, content=part)
            if answer.is_error:
                raise RequestRefused(answer)
            content, offset = answer.content, offset + len(part)
            if offset >= size or not part:
                return content


async def send_trace(http: httpx.AsyncClient, url: str, path: Path) -> str | None:
    """Send the file of a trace; return its path at the master, None if the run is given up."""
    size = path.stat().st_size
    place: dict[str, str | int] = {"of": "traces", "name": path.name, "size": size}
    try:
        content = await send_file(http, url, path, place, 0, size)
    except RequestRefused as refused:
        if refused.is_given_up:
            return None
        raise
    return StoredFile.model_validate_json(content).path
