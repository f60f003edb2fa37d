"""What the groups of a gang stand on: the store that brings its ranks together, and proofs.

The store is a file: a `TCPStore` answers every user of the computer; only its owner can open this.

The agent draws a secret for every gang, which only the ranks get (messages/gang_specs.py). A gloo
group is used after every two ranks have proved to each other that they know it. Then all that
arrives on their connections comes from a rank. Python objects do not go over such groups
(core/ranks/).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # see torch's stubs

from det_jupyter.errors import PeerRefused

_KEPT: list[Store] = []  # torch keeps only the C++ half of a store alive
_PAUSES_S = (0.0001, 0.005)  # first and longest: [m] a look at the file takes 0.03 ms
_MARK = 32
_PROOF_TIMEOUT = timedelta(seconds=30)  # all ranks are connected and idle
_SEE = "on a shared computer see docs/security.md, Ranks"


class PromptStore(Store):
    """A `FileStore` that notices what another rank writes within 0.1 ms.

    torch's own looks every 10 ms, and two groups are made before the first step. Only for gloo:
    NCCL uses its store in threads that must not wait for the interpreter.

    Args:
        path: The file; the first rank makes it.
    """

    def __init__(self, path: str, world_size: int, timeout: timedelta) -> None:
        super().__init__()
        self._file = FileStore(path, world_size)
        self._limit = timeout
        _KEPT.append(self)

    def set(self, key: str, value: str) -> None:
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        return self._file.add(key, value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        return self._file.compare_set(key, expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        return self._file.delete_key(key)

    def num_keys(self) -> int:
        return self._file.num_keys()

    def check(self, keys: list[str]) -> bool:
        return self._file.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        limit = timeout or self._limit
        deadline = time.monotonic() + limit.total_seconds()
        pause_s, longest_s = _PAUSES_S
        while not self._file.check(list(keys)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out waiting {limit} for the other ranks to come")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.2, longest_s)


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
