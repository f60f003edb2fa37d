"""Errors that follow from the failure or end of another process.

When a rank ends, the others get errors of gloo or NCCL ("Connection closed by peer"). Only the
rank's own error has the cause.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path

from det_jupyter.core.ranks import RankEnded

_LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|broken pipe|socket closed|remote process exited"
    r"|wait timeout|timed out waiting|gloo/transport",
    re.IGNORECASE,
)
SOURCE_POSITION = re.compile(
    r"^\s*\[[^\]]*\]"
)  # "[file:line]" of gloo's or NCCL's source in a message
_RECEIVES_TENSOR = "rebuild_storage_fd"  # torch's function in torch/multiprocessing/reductions.py
_LOST_WORKER = re.compile(r"DataLoader worker \(pid(\(s\))? (?P<pid>\d+)[\d, ]*\) ")


class PeerFailed(RuntimeError):
    """Another rank failed in a collective step. That rank raises the cause.

    Attributes:
        rank: The rank that failed.
        error: The error of that rank.
        no_room: Whether its disk was full.
    """

    def __init__(self, rank: int, error: str, no_room: bool = False) -> None:
        super().__init__(rank, error, no_room)
        self.rank = rank
        self.error = error
        self.no_room = no_room

    def __str__(self) -> str:
        return f"rank {self.rank} failed: {self.error}"


class WorkerLost(RuntimeError):
    """A data-loader worker was killed, or exited.

    Attributes:
        pid: Its pid.
    """

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message, pid)
        self.pid = pid

    def __str__(self) -> str:
        return str(self.args[0])


class PeerLost(RuntimeError):
    """Another rank ended during a collective. Its own error has the cause."""


def is_lost_peer(error: BaseException) -> bool:
    """Return whether the error follows from the failure or end of another rank."""
    if isinstance(error, (PeerFailed, PeerLost, RankEnded)):
        return True
    if "torch" not in sys.modules:  # without torch, no error is torch's
        return False
    import torch  # waits if another thread is importing it

    dist = torch.distributed
    if isinstance(error, (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)):
        return True
    if type(error) is not RuntimeError or not _was_raised_in_torch(error):
        return False
    return _LOST_PEER.search(str(error)) is not None


def is_lost_worker(error: BaseException) -> bool:
    """Return whether the error follows from the end of a data-loader worker.

    torch raises an error of its own for a worker that was killed or exited. If the worker ends
    while it hands a tensor over, the error is one of the connection instead: torch checks whether
    workers are alive a moment too early. Its thread for pinned memory puts the traceback of that
    error into the message.
    """
    if isinstance(error, WorkerLost):
        return True
    if isinstance(error, RuntimeError) and _LOST_WORKER.match(str(error)):
        return True
    if not isinstance(error, ConnectionError | EOFError | FileNotFoundError):
        return False
    frames = traceback.walk_tb(error.__traceback__)
    names = {frame.f_code.co_name for frame, _ in frames}
    return _RECEIVES_TENSOR in names or f"in {_RECEIVES_TENSOR}" in str(error)


def lost_worker_pid(error: BaseException) -> int:
    """Return the pid of the data-loader worker that has ended; 0 if it is not known which.

    torch's handler of SIGCHLD may raise its error anywhere in the rank, so not all are WorkerLost.
    """
    if isinstance(error, WorkerLost):
        return error.pid
    found = _LOST_WORKER.match(str(error))
    return int(found["pid"]) if found else 0


def _was_raised_in_torch(error: BaseException) -> bool:
    """Return whether the error was raised in torch, and not in the user's code."""
    import torch

    folder = str(Path(torch.__file__).parent) + os.sep
    *_, (frame, _line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
    return frame is not None and frame.f_code.co_filename.startswith(folder)
