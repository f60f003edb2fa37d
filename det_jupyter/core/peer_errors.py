"""Errors that are the echo of another rank's end: only that rank's own error has the cause.

If a rank ends, the others get the errors of gloo or NCCL ("Connection closed by peer").
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from det_jupyter.core.ranks import RankEnded

_LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|broken pipe|socket closed|remote process exited"
    r"|wait timeout|timed out waiting|gloo/transport",
    re.IGNORECASE,
)
PLACE = re.compile(r"^\s*\[[^\]]*\]")  # in the source of gloo or NCCL
_LOST_WORKER = re.compile(r"DataLoader worker \(pid(\(s\))? [\d, ]+\) ")  # by what, follows


class PeerFailed(RuntimeError):
    """Another rank failed in a collective step. That rank raises the cause."""

    def __init__(self, rank: int, error: str) -> None:
        super().__init__(rank, error)
        self.rank = rank
        self.error = error

    def __str__(self) -> str:
        return f"rank {self.rank} failed: {self.error}"


class PeerLost(RuntimeError):
    """Another rank ended during a collective. Its own error has the cause."""


def is_lost_peer(error: BaseException) -> bool:
    """Return whether the error is the echo of another rank's end."""
    if isinstance(error, (PeerFailed, PeerLost, RankEnded)):
        return True
    if "torch" not in sys.modules:  # it has raised nothing, and may be one that cannot be loaded
        return False
    import torch  # waits, if a thread is loading it

    dist = torch.distributed
    if isinstance(error, (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)):
        return True
    if type(error) is not RuntimeError or not _came_out_of_torch(error):
        return False
    return _LOST_PEER.search(str(error)) is not None


def is_lost_worker(error: BaseException) -> bool:
    """Return whether this is torch's error of a data-loader worker that was killed or ended."""
    return isinstance(error, RuntimeError) and _LOST_WORKER.match(str(error)) is not None


def _came_out_of_torch(error: BaseException) -> bool:
    """Return whether torch raised it, not the user's code."""
    import torch

    folder = str(Path(torch.__file__).parent) + os.sep
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(folder)
