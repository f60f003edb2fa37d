"""Connects programs on the master's computer to kernels of ranks on this one.

    a kernel has started    its key is sent to the master, which then accepts connections to it
    OpenTunnel              one connection: a unix socket here, and two requests to the master

        zmq, there ── unix socket ── master ══ GET (bytes down), POST (bytes up) ══ here ── kernel

The bytes are not read. Each direction waits for its slower end, so it holds little memory. A
tunnel ends when either end closes the connection, and all end with the link to the master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from det_jupyter.agent.link.master_link import MasterLink, agent_path, open_http
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.connection_files import read_connection_file, socket_path
from det_jupyter.contract.messages import AgentCredentials, OpenTunnel, RankKernel
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

_PART_BYTES = 64 * 1024
_POLL_S = 0.2
_CONNECT_S = 5.0


async def announce_kernels(link: MasterLink, runs: Mapping[str, AgentRun]) -> None:
    """Send the kernels of the runs' ranks to the master, each once; runs until cancelled.

    Args:
        link: The agent's link to the master.
        runs: Its runs by id (a live mapping).
    """
    done: set[Path] = set()
    while True:
        for run in [run for run in runs.values() if run.is_alive]:
            for rank in run.ranks:
                file = run.dir.connection_file(rank)
                if file not in done and (kernel := _kernel_of(run.id, rank, file)):
                    if problem := await link.announce(kernel):
                        logger.warning("run %s: rank %d has no console: %s", run.id, rank, problem)
                    done.add(file)
        await asyncio.sleep(_POLL_S)


def _kernel_of(allocation_id: str, rank: int, file: Path) -> RankKernel | None:
    """Return the kernel of a rank; None if it has not started, or its file cannot be used."""
    # User code may have changed the file.
    with suppress(OSError, ValueError, KeyError, TypeError, DetError):
        if connection := read_connection_file(file):
            return RankKernel(allocation_id=allocation_id, rank=rank, key=connection["key"])
    return None


class ConsoleTunnels:
    """The open tunnels of one link to the master: a context manager, which ends them.

    Args:
        credentials: Credentials of the agent.
        runs: Its runs by id (a live mapping).
    """

    def __init__(self, credentials: AgentCredentials | None, runs: Mapping[str, AgentRun]) -> None:
        self._credentials = credentials
        self._runs = runs
        self._http: httpx.AsyncClient | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ConsoleTunnels:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    def open(self, command: OpenTunnel) -> None:
        """Open a tunnel as the master has commanded, and carry bytes until it ends."""
        task = asyncio.create_task(self._carry(command))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, command: OpenTunnel) -> None:
        assert self._credentials is not None  # agents on the master's computer get no such command
        if self._http is None:
            self._http = open_http(self._credentials, most_connections=None)
            # A tunnel may be silent for long.
            self._http.timeout = httpx.Timeout(None, connect=_CONNECT_S)
        url = f"{agent_path(self._credentials.agent)}/tunnels/{command.id}"
        try:
            try:
                reader, writer = await self._connect(command)
            except OSError as error:
                logger.info("allocation=%s rank=%d: its kernel cannot be reached: %s",
                            command.allocation_id, command.rank, error_text(error))  # fmt: skip
                await self._http.post(url)  # which ends the tunnel
                return
            try:
                await _until_first(
                    _copy_down(self._http, url, writer), _copy_up(self._http, url, reader)
                )
            finally:
                writer.close()
        except (httpx.HTTPError, OSError) as error:
            logger.info("a tunnel ended: %s", error_text(error))
        except Exception:  # must not end the link
            logger.exception("a tunnel failed")

    async def _connect(
        self, command: OpenTunnel
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        run = self._runs.get(command.allocation_id)
        if run is None or run.sockets is None:
            raise FileNotFoundError("the run is over")
        path = socket_path(f"{run.sockets}/{command.rank}", command.socket)
        return await asyncio.open_unix_connection(path)


async def _copy_down(http: httpx.AsyncClient, url: str, writer: asyncio.StreamWriter) -> None:
    async with http.stream("GET", url) as answer:
        answer.raise_for_status()
        async for part in answer.aiter_raw():
            writer.write(part)
            await writer.drain()


async def _copy_up(http: httpx.AsyncClient, url: str, reader: asyncio.StreamReader) -> None:
    async def parts() -> AsyncIterator[bytes]:
        while part := await reader.read(_PART_BYTES):
            yield part

    answer = await http.post(url, content=parts())
    answer.raise_for_status()


async def _until_first(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines until one is done, cancel the others, and raise the error of that one."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
