"""torch's error of a rank that has ended, which it raises from its own collectives, too.

torch is loaded when the error is made: a script may have no other use for it.
"""

from __future__ import annotations


def rank_ended(text: str) -> RuntimeError:
    """Return a DistNetworkError."""
    import torch  # not torch.distributed, which would not wait for a thread that is loading torch

    return torch.distributed.DistNetworkError(text)
