"""The ends of tunneled connections: the first line, the local sockets, and copying of bytes."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field

from det_jupyter.contract.messages import Wire

LIMIT_BYTES = 1 << 18
PREPARED_S = 3600.0  # within this time all parts have to be prepared; they may fetch checkpoints
ACCEPTED, STARTS = b"ok\n", b"go\n"  # the answers
_NUM_DIGITS = 32  # hexadecimal digits in the name of a certificate
_LINGER_S = 5.0  # how long bytes may still be delivered after the ranks have ended

# What is requested of another agent; see part.py and peers.py.
Want: TypeAlias = Literal["start", "objects", "store", "port", "measure", "copies", "own_copies"]
Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FirstLine(Wire):
    """The first line of a connection."""

    gang: str  # allocation id
    want: Want
    secret: str = Field(repr=False)
    agents: list[str] = []  # of the part


def objects_socket(store: Path) -> Path:
    """Return the path of the unix socket of the exchange of objects (core/ranks/meeting.py)."""
    return store.with_name(f"{store.name}-ranks")


def copies_socket(store: Path) -> Path:
    """Return the path of the unix socket for requests of copies (copies.py)."""
    return store.with_name(f"{store.name}-copies")


def port_file(store: Path) -> Path:
    """Return the file with the loopback port of the store (rank/rendezvous.py)."""
    return store.with_name(f"{store.name}-port")


def server_name(certificate: str) -> str:
    """Return the name by which a connecting agent chooses its gang's certificate."""
    return hashlib.sha256(certificate.encode()).hexdigest()[:_NUM_DIGITS]


async def join(first: Connection, second: Connection) -> None:
    """Copy bytes between two connections until one is closed; then close the other."""
    await asyncio.gather(_copy(first[0], second[1]), _copy(second[0], first[1]))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(LIMIT_BYTES):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # the connection is lost: so is the other
    finally:
        writer.close()


def end_soon(connections: set[asyncio.Task[None]]) -> None:
    """Cancel the tasks of connections that do not end with their ranks."""
    loop = asyncio.get_running_loop()
    for task in list(connections):
        loop.call_later(_LINGER_S, task.cancel)
