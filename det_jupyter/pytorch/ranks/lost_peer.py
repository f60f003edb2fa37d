"""The echo of another rank's end: what a rank gets when a peer of its collective is gone.

gloo and NCCL tell it in their own words ("Connection closed by peer"), on every rank but the one
whose error matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist

from det_jupyter.core import Context
from det_jupyter.pytorch.ranks.settling import PeerFailed

_ECHOES = (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)
_LOST_PEER = re.compile(
    r"closed by (remote )?peer|reset by peer|broken pipe|socket closed|remote process exited"
    r"|wait timeout|timed out waiting|gloo/transport",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^\s*\[[^\]]*\]")  # in the source of gloo or NCCL
_TORCH = str(Path(torch.__file__).parent) + os.sep


_LOST_WORKER = re.compile(r"DataLoader worker \(pid(\(s\))? [\d, ]+\) ")  # by what, follows


class PeerLost(RuntimeError):
    """Another rank has ended, in the middle of what all do together. Its own error tells why."""


def is_lost_peer(error: BaseException) -> bool:
    """Return whether the error is the echo of another rank's end."""
    if isinstance(error, (*_ECHOES, PeerFailed, PeerLost)):
        return True
    if type(error) is not RuntimeError or not _came_out_of_torch(error):
        return False
    return _LOST_PEER.search(str(error)) is not None


def is_lost_worker(error: BaseException) -> bool:
    """Return whether torch tells that a data-loader worker was killed, or ended without a word."""
    return isinstance(error, RuntimeError) and _LOST_WORKER.match(str(error)) is not None


@contextmanager
def telling_lost_peers(core: Context | None) -> Iterator[None]:
    """Tell, in a script, that it was another rank that ended; an experiment sorts it out itself.

    Raises:
        PeerLost: In place of what gloo or NCCL say of it.
    """
    try:
        yield
    except Exception as error:
        is_script = core is not None and core.info is None
        if not is_script or isinstance(error, PeerFailed) or not is_lost_peer(error):
            raise
        said = _PLACE.sub("", str(error)).strip().partition("\n")[0].partition(". ")[0]
        raise PeerLost(
            f"another rank has ended, and its own error tells why (here it only shows as: {said})"
        ) from None


def _came_out_of_torch(error: BaseException) -> bool:
    """Return whether torch raised it: what the user's own code raises is the user's."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_TORCH)
