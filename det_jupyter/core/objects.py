"""Python objects between the ranks of a gang: each is signed, and read only where that is right.

A rank that unpickled whatever its socket holds would run what any user of the computer sends it.
So the agent makes a secret for every gang and hands it to the ranks alone (wire/ranks.py). An
object travels as

    length   8 bytes, of the pickle
    mark     32 bytes, HMAC-SHA256 under the secret: of the collective, its number in this group,
             the sender and the pickle. So no object can be sent twice, or in another's name.
    pickle   at once if it fits into the frame; else all pickles follow in a second round

and a group of ranks is used once every two of them have proved to each other that they know the
secret: then what comes over their connections later, tensors too, comes from a rank.

Ranks that torchrun has started have no secret: they met on an open port, and whatever they agreed
upon there could be read. Their marks tell mistakes from objects, not strangers from ranks.
"""

from __future__ import annotations

import hmac
import pickle
import struct
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from det_jupyter.errors import PeerRefused

_HEAD = struct.Struct("<Q32s")
_FRAME = 512  # most objects fit, and [m] a second round costs more than the bytes do
_MARK = 32
_PROOF_TIMEOUT = timedelta(seconds=30)  # all ranks are there, and have nothing else to do
_SEE = "on a shared computer see docs/security.md, Ranks"


def check_members(group: dist.ProcessGroup, name: str, secret: bytes) -> None:
    """Let every two ranks of a new gloo group prove that they know the secret. Collective.

    gloo believes whoever connects to its port first and names the number of a connection.

    Raises:
        PeerRefused: One of them does not know it, or is silent.
        DistNetworkError: One of them is gone.
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
    """Return what to raise where the exchange of proofs did not come to its end."""
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
    """Collectives on picklable values between the ranks of one gloo group.

    All ranks must call the same ones in the same order.

    Args:
        group: The gloo group.
        name: What tells it from the other groups of these ranks.
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
        """Unpickle what a rank has sent.

        Raises:
            PeerRefused: It is not signed, or was for another collective.
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
    """Return the length of the longest pickle that is in no frame; 0: there is none."""
    lengths: list[int] = [_HEAD.unpack_from(_bytes_of(frame))[0] for frame in frames]
    return max((length for length in lengths if not _fits(length)), default=0)


def _tensor(data: bytes, length: int = 0) -> torch.Tensor:
    """Return the bytes as a tensor, with room after them up to `length`."""
    room = torch.empty(max(length, len(data)), dtype=torch.uint8)
    _bytes_of(room)[: len(data)] = data
    return room


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a tensor of bytes."""
    return tensor.numpy().data
