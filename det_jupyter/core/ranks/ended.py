"""The error of a rank that has ended, which the others get in their collectives."""

from __future__ import annotations

import sys


class RankEnded(RuntimeError):
    """A rank has ended, in a process that has not loaded torch."""


def rank_ended(text: str) -> RuntimeError:
    """Return torch's DistNetworkError, as from its own collectives.

    A script that has not loaded torch has no use for it, and would wait seconds for it.
    """
    if "torch" not in sys.modules:
        return RankEnded(text)
    import torch  # not torch.distributed, which would not wait for a thread that is loading torch

    return torch.distributed.DistNetworkError(text)
