"""Collectives over sockets in a star: each rank has a connection with the first one, the chief.

    allgather, barrier, reduce    all send to the chief, which sends the result to all
    gather                        all send to the chief; a rank returns once it has sent
    broadcast                     the chief sends to all, and returns once it has sent

When a rank ends, its connection closes, so the chief's collective fails at once; the chief then
sends the reason to the other ranks, whose collectives fail too. There are no threads, which could
keep a process from exiting.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import struct
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from det_jupyter.core.ranks.link import Buffer, Frame, FrameKind, RankLink, rank_ended
from det_jupyter.core.ranks.rank_info import late_text
from det_jupyter.errors import WaitTimeout

if TYPE_CHECKING:  # loaded only for reductions
    import torch

T = TypeVar("T")
logger = logging.getLogger(__name__)

_LENGTH = struct.Struct("<Q")
_CHIEF_GRACE_S = 2.0  # other ranks wait longer than the chief, whose error names the late ranks
_QUIET_S = 600.0  # how long a collective waits before it logs which ranks are late
_NUMBERS = 2**32
_begun = 0  # collectives of all exchanges of this process
_OPEN: weakref.WeakSet[StarExchange] = weakref.WeakSet()


class StarExchange:
    """Collectives of a group of ranks on picklable values. All must call the same ones in order.

    Args:
        links: The connections by index in the group; None where there is none. The first rank is
            connected with all others, each other rank only with the first. This object closes
            them.
        index: This process's index in the group.
        ranks: The ranks of the group, for messages.
        timeout_s: How long a collective waits for other ranks.
        on_close: Called when the connections are closed or this object is collected.
        check: Called at the start of each collective; if it raises, the connections are closed.
    """

    def __init__(
        self,
        links: Sequence[RankLink | None],
        index: int,
        ranks: Sequence[int],
        timeout_s: float,
        on_close: Callable[[], None] = lambda: None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._links = {index: link for index, link in enumerate(links) if link is not None}
        self._index = index
        self._ranks = ranks
        self._timeout_s = timeout_s
        self._check = check
        self._grace_s = _CHIEF_GRACE_S if index else 0.0
        self._number = 0
        self._broken: Exception | None = None
        for link in self._links.values():
            link.set_timeout(timeout_s + self._grace_s)
        self._finalizer = weakref.finalize(self, on_close)
        _OPEN.add(self)

    def allgather(self, value: Any) -> list[Any]:
        return _load_all(self._share(FrameKind.ALLGATHER, _dump(value)))

    def gather(self, value: Any) -> list[Any] | None:
        payload = _dump(value)
        with self._collective(FrameKind.GATHER):
            if self._index:
                self._send_up(FrameKind.GATHER, payload)
                return None
            parts = self._collect(FrameKind.GATHER, payload)
        return _load_all(parts)

    def broadcast(self, value: Any) -> Any:
        payload = b"" if self._index else _dump(value)
        with self._collective(FrameKind.BROADCAST):
            if not self._index:
                self._send(FrameKind.BROADCAST, {index: [payload] for index in self._links})
                return value
            got = self._receive_down(FrameKind.BROADCAST)
        return pickle.loads(got)

    def barrier(self) -> None:
        self._share(FrameKind.BARRIER, b"")

    def reduce_(self, tensor: torch.Tensor, operation: Literal["sum", "max"]) -> None:
        import torch

        own = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        with self._collective(FrameKind.REDUCE):
            if self._index:
                self._send_up(FrameKind.REDUCE, own)
                got: Buffer = self._receive_down(FrameKind.REDUCE)
            else:
                got = _reduce(self._collect(FrameKind.REDUCE, own), tensor.dtype, operation)
                self._send(FrameKind.REDUCE, {index: [got] for index in self._links})
        tensor.copy_(_tensor(got, tensor.dtype).view(tensor.shape))

    def close(self) -> None:
        """Close the connections, so that collectives on the other ranks fail. Idempotent."""
        _OPEN.discard(self)
        self._broken = self._broken or RuntimeError(
            "distributed: these ranks' connections are closed"
        )
        for link in self._links.values():
            link.close()
        self._finalizer()

    def _share(self, kind: FrameKind, payload: bytes) -> list[Buffer]:
        """Return the payloads of all ranks, by index."""
        with self._collective(kind):
            if self._index:
                self._send_up(kind, payload)
                parts = _unpack(memoryview(self._receive_down(kind)), len(self._ranks) - 1)
                parts.insert(self._index, payload)
                return parts
            parts = self._collect(kind, payload)
            self._send(kind, {index: _pack(parts, without=index) for index in self._links})
            return parts

    @contextmanager
    def _collective(self, kind: FrameKind) -> Iterator[None]:
        """Number the collective of the block; close the connections if the block raises."""
        if self._broken is not None:
            raise type(self._broken)(*self._broken.args)
        global _begun
        _begun += 1
        self._number = (self._number + 1) % _NUMBERS
        self._deadline = time.monotonic() + self._timeout_s
        self._name = f"{kind.name.lower()} number {self._number}"
        try:
            if self._check is not None:
                self._check()
            yield
        except BaseException as error:  # an interrupt too: the other ranks would wait
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        text = str(error) or type(error).__name__
        if not self._index:
            reason = f"{'late' if isinstance(error, WaitTimeout) else 'ended'} {text}".encode()
            for link in self._links.values():
                link.send_last(FrameKind.END, reason)
        self._broken = (
            error
            if isinstance(error, Exception)
            else RuntimeError(f"distributed: {self._name} was interrupted: {text}")
        )
        self.close()

    def _send_up(self, kind: FrameKind, payload: bytes) -> None:
        with suppress(RuntimeError):  # raised by `rank_ended`
            self._send(kind, {0: [payload]})
            return
        self._receive_down(kind)  # raises the chief's reason if it has sent one, or the same error

    def _send(self, kind: FrameKind, payloads: dict[int, list[Buffer]]) -> None:
        sends = {
            index: self._links[index].send(kind, self._number, payload)
            for index, payload in payloads.items()
        }
        for _ in self._run(sends, select.POLLOUT):
            pass

    def _collect(self, kind: FrameKind, own: bytes) -> list[Buffer]:
        """Return this rank's payload and those of the ranks with a connection, by index."""
        parts: list[Buffer] = [own] * len(self._ranks)
        receives = {index: link.receive() for index, link in self._links.items()}
        for index, frame in self._run(receives, select.POLLIN):
            parts[index] = self._checked_payload(index, kind, frame)
        return parts

    def _receive_down(self, kind: FrameKind) -> Buffer:
        return self._collect(kind, b"")[0]

    def _run(
        self, transfers: Mapping[int, Generator[None, None, T]], event: int
    ) -> Iterator[tuple[int, T]]:
        """Advance each transfer when its connection is ready; yield (index, result) as they end.

        Raises:
            WaitTimeout: Other ranks are late.
            RankEnded, DistNetworkError: Another rank has ended.
        """
        poll, by_fd = select.poll(), {}
        for index in transfers:
            descriptor = self._links[index].fileno()
            by_fd[descriptor] = index
            poll.register(descriptor, event)
        warns_at = time.monotonic() + _QUIET_S
        while by_fd:
            now = time.monotonic()
            left_s = self._deadline + self._grace_s - now
            if left_s <= 0:
                raise WaitTimeout(self._who_is_late(by_fd.values(), self._timeout_s))
            if now >= warns_at:
                logger.warning("%s", self._who_is_late(by_fd.values(), _QUIET_S))
                warns_at = self._deadline + self._grace_s
            for descriptor, _ in poll.poll(min(left_s, warns_at - now, 2**20) * 1000 + 1):
                index = by_fd[descriptor]
                try:
                    next(transfers[index])
                except StopIteration as end:
                    poll.unregister(descriptor)
                    del by_fd[descriptor]
                    yield index, end.value
                except BlockingIOError:
                    raise WaitTimeout(self._who_is_late([index], self._timeout_s)) from None
                except (OSError, EOFError):
                    raise rank_ended(
                        f"distributed: {self._links[index].name} has ended, or closed its "
                        f"context, before {self._name}; if it has failed, its own error has the "
                        "cause"
                    ) from None

    def _who_is_late(self, indices: Iterable[int], waited_s: float) -> str:
        if self._index:
            chief = self._ranks[0]
            return (
                f"distributed: rank {chief} has not answered in {self._name} within "
                f"{waited_s:g} s: it has not called it, or waits for others"
            )
        missing = sorted(self._ranks[index] for index in indices)
        return (
            f"{late_text(missing, len(self._ranks), self._name)} within {waited_s:g} s; see "
            "where that is: all ranks must call the same collectives"
        )

    def _checked_payload(self, index: int, kind: FrameKind, frame: Frame) -> Buffer:
        theirs, number, payload = frame
        if theirs == FrameKind.END:
            why, _, text = bytes(payload).decode().partition(" ")
            raise (WaitTimeout if why == "late" else rank_ended)(text)
        if (theirs, number) != (kind, self._number):
            raise RuntimeError(
                f"distributed: {self._links[index].name} has called "
                f"{FrameKind(theirs).name.lower()} number {number}, rank "
                f"{self._ranks[self._index]} {self._name}: all ranks must call the same "
                "collectives in the same order"
            )
        return payload


def num_begun() -> int:
    """Return how many collectives this process has begun."""
    return _begun


def _dump(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _load_all(parts: Iterable[Buffer]) -> list[Any]:
    return [pickle.loads(part) for part in parts]


def _pack(parts: Sequence[Buffer], *, without: int) -> list[Buffer]:
    others = [part for index, part in enumerate(parts) if index != without]
    return [b"".join(_LENGTH.pack(len(part)) for part in others), *others]


def _unpack(payload: memoryview, count: int) -> list[Buffer]:
    parts: list[Buffer] = []
    end = count * _LENGTH.size
    for (length,) in _LENGTH.iter_unpack(payload[:end]):
        parts.append(payload[end : end + length])
        end += length
    return parts


def _tensor(data: Buffer, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return torch.frombuffer(bytearray(data), dtype=dtype)


def _reduce(
    parts: Sequence[Buffer], dtype: torch.dtype, operation: Literal["sum", "max"]
) -> bytes:
    """Reduce in the order of ranks, so that the result is bitwise reproducible."""
    import torch

    total = _tensor(parts[0], dtype)
    for part in parts[1:]:
        other = _tensor(part, dtype)
        total = total + other if operation == "sum" else torch.maximum(total, other)
    return total.numpy().tobytes()


def _close_in_child() -> None:
    """Close the connections in a forked process, which would keep them open when the rank ends."""
    for exchange in list(_OPEN):
        exchange._broken = RuntimeError(
            "distributed: this process was forked by a rank; only the rank itself may call "
            "collectives"
        )
        exchange.close()


os.register_at_fork(after_in_child=_close_in_child)
