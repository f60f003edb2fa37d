"""Exchange of Python objects between ranks: each is signed, and unpickled only if that is right.

A rank that unpickles what its socket receives runs the code of any user who can connect to it. So
the agent draws a secret for every gang, which only the ranks get (wire/ranks.py). An object is
sent as

    length   8 bytes, of the pickle
    mark     32 bytes, HMAC-SHA256 under the secret: of the collective, its number in this group,
             the sender and the pickle. So no object can be replayed or sent as another rank
    pickle   in the same frame if it fits; else all pickles follow in a second round

A group is used after every two ranks have proved to each other that they know the secret. Then all
that arrives on their connections, tensors too, comes from a rank.

Ranks of torchrun have no secret, because other users could read what they exchange at their open
port. Their marks detect wrong collectives, not other programs.
"""

from __future__ import annotations

import hmac
import pickle
import struct
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist

from det_jupyter.errors import PeerRefused

_HEAD = struct.Struct("<Q32s")
_FRAME = 512  # most objects fit; [m] a second round costs more than the bytes
_MARK = 32
_OPERATIONS = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX}
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


class ObjectExchange:
    """Collectives between the ranks of one gloo group, on picklable values above all.

    All ranks must call the same ones in the same order.

    Args:
        group: The gloo group.
        name: Name of the group, unique among the groups of these ranks.
        secret: The gang's; empty if there is none.
    """

    def __init__(self, group: dist.ProcessGroup, name: str, secret: bytes) -> None:
        self._group = group
        self._name = name
        self._secret = secret
        self._rank = dist.get_rank(group)
        self._size = dist.get_world_size(group)
        self._chief = dist.get_global_rank(group, 0)
        self._number = 0

    def barrier(self) -> None:
        """Wait for all ranks of the group."""
        dist.barrier(group=self._group)

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> None:
        """Replace the CPU tensor by its sum or maximum over the group's ranks, in place."""
        dist.all_reduce(tensor, op=_OPERATIONS[operation], group=self._group)

    def allgather(self, value: Any) -> list[Any]:
        """Return every rank's value on all ranks."""
        frames, payload = self._exchange_frames("allgather", value)
        longest = _longest(frames)
        if longest:
            places = [torch.empty(longest, dtype=torch.uint8) for _ in frames]
            dist.all_gather(places, _tensor(payload, longest), group=self._group)
        return self._read_all("allgather", frames, places if longest else frames)

    def gather(self, value: Any) -> list[Any] | None:
        """Return every rank's value on the group's first rank; None elsewhere."""
        frames, payload = self._exchange_frames("gather", value)
        longest, is_chief = _longest(frames), self._rank == 0
        if longest:
            places = [torch.empty(longest, dtype=torch.uint8) for _ in frames if is_chief]
            dist.gather(
                _tensor(payload, longest),
                places if is_chief else None,
                dst=self._chief,
                group=self._group,
            )
        return (
            self._read_all("gather", frames, places if longest else frames) if is_chief else None
        )

    def broadcast(self, value: Any) -> Any:
        """Return the value of the group's first rank."""
        self._number += 1
        is_chief = self._rank == 0
        payload = pickle.dumps(value) if is_chief else b""
        frame = self._frame("broadcast", payload)
        dist.broadcast(frame, src=self._chief, group=self._group)
        longest = _longest([frame])
        if longest:
            place = _tensor(payload, longest)
            dist.broadcast(place, src=self._chief, group=self._group)
        return (
            value if is_chief else self._read("broadcast", 0, frame, place if longest else frame)
        )

    def _exchange_frames(self, what: str, value: Any) -> tuple[list[torch.Tensor], bytes]:
        """Return all ranks' frames, and this rank's pickle."""
        self._number += 1
        payload = pickle.dumps(value)
        frames = [torch.empty(_FRAME, dtype=torch.uint8) for _ in range(self._size)]
        dist.all_gather(frames, self._frame(what, payload), group=self._group)
        return frames, payload

    def _frame(self, what: str, payload: bytes) -> torch.Tensor:
        head = _HEAD.pack(len(payload), self._mark(what, self._rank, payload))
        return _tensor(head + payload if _fits(len(payload)) else head, _FRAME)

    def _read_all(
        self, what: str, frames: Sequence[torch.Tensor], places: Sequence[torch.Tensor]
    ) -> list[Any]:
        pairs = zip(frames, places, strict=True)
        return [self._read(what, sender, *pair) for sender, pair in enumerate(pairs)]

    def _read(self, what: str, sender: int, frame: torch.Tensor, place: torch.Tensor) -> Any:
        """Unpickle a rank's value.

        Raises:
            PeerRefused: It is not signed, or is of another collective.
        """
        length, mark = _HEAD.unpack_from(_bytes_of(frame))
        is_inline = _fits(length)
        start = _HEAD.size if is_inline else 0
        payload = _bytes_of(frame if is_inline else place)[start : start + length]
        if not hmac.compare_digest(mark, self._mark(what, sender, payload)):
            raise PeerRefused(
                f"rank {self._rank}: what came as rank {sender}'s part of {what} number "
                f"{self._number} is not signed with this gang's secret, and was not read. Either "
                "the ranks have called different collectives (all ranks must call the same ones "
                f"in the same order), or another program sends in that rank's name: {_SEE}"
            )
        return pickle.loads(payload)

    def _mark(self, what: str, sender: int, payload: bytes | memoryview) -> bytes:
        return _mark(self._secret, f"{self._name}: {what} {self._number} of {sender}", payload)


def _mark(secret: bytes, words: str, payload: bytes | memoryview = b"") -> bytes:
    digest = hmac.new(secret, words.encode() + b"\0", "sha256")
    digest.update(payload)
    return digest.digest()


def _fits(length: int) -> bool:
    return _HEAD.size + length <= _FRAME


def _longest(frames: Iterable[torch.Tensor]) -> int:
    """Return the length of the longest pickle outside of the frames; 0 if all fit."""
    lengths: list[int] = [_HEAD.unpack_from(_bytes_of(frame))[0] for frame in frames]
    return max((length for length in lengths if not _fits(length)), default=0)


def _tensor(data: bytes, length: int = 0) -> torch.Tensor:
    """Return the bytes as a tensor of at least `length` bytes."""
    room = torch.empty(max(length, len(data)), dtype=torch.uint8)
    _bytes_of(room)[: len(data)] = data
    return room


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a uint8 tensor."""
    return tensor.numpy().data
