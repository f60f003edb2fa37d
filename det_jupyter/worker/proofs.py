"""Proof that the ranks of a gloo group know their gang's secret.

The agent draws a secret for every gang, which only the ranks get (wire/ranks.py). A group is used
after every two ranks have proved to each other that they know it. Then all that arrives on their
connections comes from a rank. Python objects do not go over such groups (ranks/).
"""

from __future__ import annotations

import hmac
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from det_jupyter.errors import PeerRefused

_MARK = 32
_PROOF_TIMEOUT = timedelta(seconds=30)  # all ranks are connected and idle
_SEE = "on a shared computer see docs/security.md, Ranks"


def check_members(group: dist.ProcessGroup, name: str, secret: bytes) -> None:
    """Check that the ranks of a new gloo group know the secret, each pair for itself. Collective.

    gloo accepts the first program that connects to its port with the number of a connection.

    Raises:
        PeerRefused: One does not know it, or does not answer.
        DistNetworkError: One has ended.
    """
    if not secret:
        return
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    proofs = b"".join(_mark(secret, f"{name}: {rank} to {peer}") for peer in range(size))
    received = torch.empty(size * _MARK, dtype=torch.uint8)
    began = time.monotonic()
    try:
        work = dist.all_to_all_single(received, _tensor(proofs), group=group, async_op=True)
        work.wait(_PROOF_TIMEOUT)
    except RuntimeError as error:
        raise _unproved(rank, time.monotonic() - began) from error
    for peer, proof in enumerate(received.view(size, _MARK).numpy()):
        expected = _mark(secret, f"{name}: {peer} to {rank}")
        if not hmac.compare_digest(proof.tobytes(), expected):
            raise PeerRefused(
                f"rank {rank}: what has connected as rank {peer} does not know this gang's "
                "secret, so another program has taken that rank's place before it came; nothing "
                f"was read from it; {_SEE}"
            )


def _unproved(rank: int, waited_s: float) -> Exception:
    """Return the error for an exchange of proofs that failed."""
    limit_s = _PROOF_TIMEOUT.total_seconds()
    if waited_s < limit_s:
        return dist.DistNetworkError(
            f"rank {rank}: a connection to another rank ended before that rank had proved that it "
            "is of this gang; if no other rank has failed, another program had taken that rank's "
            f"place: {_SEE}"
        )
    return PeerRefused(
        f"rank {rank}: another rank has not proved within {limit_s:g} s that it is of this gang; "
        "either it was stopped for that long, or another program has taken its place before it "
        f"came: {_SEE}"
    )


def _mark(secret: bytes, words: str) -> bytes:
    return hmac.digest(secret, words.encode(), "sha256")


def _tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
