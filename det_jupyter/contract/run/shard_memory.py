"""The memory of a rank's copies of its parts of sharded models, and requests for copies elsewhere.

    head      word: the batches trained, -1 while the copy is written; 8 bytes that align what
              follows
    tensors   see pytorch/training/shard_copies.py

A rank that saves the last step asks its agent for copies of ranks on other computers, through a
unix socket. A request is a line of four numbers; it is answered by a byte, and by the copy if that
is FOUND (agent/tunnel/copies.py).
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import NamedTuple

HEAD_BYTES = 16
NUM_COPIES = 2
FOUND = b"1"
MISSING = b"0"  # there is no such copy
UNREACHED = b"-"  # the agent of its rank is not there any more
_SILENT_S = 30.0  # a computer that is stopped closes no connection; a copy may wait for others


class CopyRequest(NamedTuple):
    """A request for a copy: its rank and number, its batches trained, and the size with head."""

    rank: int
    number: int
    steps_completed: int
    num_bytes: int

    @classmethod
    def from_line(cls, line: bytes) -> CopyRequest:
        """Parse what `to_line` returned; raises a ValueError if it is something else."""
        rank, number, steps_completed, num_bytes = map(int, line.split())
        return cls(rank, number, steps_completed, num_bytes)

    def to_line(self) -> bytes:
        return b"%d %d %d %d\n" % self


def fetch_copy(link: Path, request: CopyRequest, memory: memoryview) -> bytes:
    """Fetch the copy of a rank on another computer into the memory, which has its size.

    Args:
        link: Leads to the agent's socket, whose own path is short enough to connect.

    Returns:
        FOUND, MISSING or UNREACHED.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SILENT_S)
            connection.connect(os.readlink(link))
            connection.sendall(request.to_line())
            answer = connection.recv(1)
            if answer != FOUND:
                return answer or UNREACHED
            while memory:
                received = connection.recv_into(memory)
                if not received:
                    return UNREACHED
                memory = memory[received:]
    except OSError:
        return UNREACHED
    return FOUND
