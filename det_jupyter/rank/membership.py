"""Ranks prove to each other that they are of the same gang, before a gloo group is used.

The agent creates a secret for every gang and gives it to the ranks only. Every pair of ranks
proves to each other that they have it, so that all data on their connections comes from ranks.
Python objects are not sent over such groups (core/ranks/).
"""

from __future__ import annotations

import hmac
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from det_jupyter.errors import PeerRefused

_PROOF_BYTES = 32
_PROOF_TIMEOUT = timedelta(seconds=30)  # all ranks are connected and idle
_SEE = "on a shared computer see docs/security.md, Ranks"


def check_members(group: dist.ProcessGroup, name: str, secret: bytes) -> None:
    """Check that every pair of ranks of a new gloo group has the same secret. Collective.

    gloo accepts the first program that connects to its port with the number of a connection.

    Raises:
        PeerRefused: A process does not have the secret, or does not answer.
        DistNetworkError: A process has ended.
    """
    if not secret:
        return
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    proofs = b"".join(_proof(secret, f"{name}: {rank} to {peer}") for peer in range(size))
    sent = torch.frombuffer(bytearray(proofs), dtype=torch.uint8)
    received = torch.empty(size * _PROOF_BYTES, dtype=torch.uint8)
    began = time.monotonic()
    try:
        work = dist.all_to_all_single(received, sent, group=group, async_op=True)
        work.wait(_PROOF_TIMEOUT)
    except RuntimeError as error:
        raise _proof_error(rank, time.monotonic() - began) from error
    for peer, proof in enumerate(received.view(size, _PROOF_BYTES).numpy()):
        expected = _proof(secret, f"{name}: {peer} to {rank}")
        if not hmac.compare_digest(proof.tobytes(), expected):
            raise PeerRefused(
                f"rank {rank}: what has connected as rank {peer} does not have this gang's "
                "secret, so another program has taken that rank's place before it came; nothing "
                f"was read from it; {_SEE}"
            )


def _proof_error(rank: int, waited_s: float) -> Exception:
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


def _proof(secret: bytes, words: str) -> bytes:
    return hmac.digest(secret, words.encode(), "sha256")
