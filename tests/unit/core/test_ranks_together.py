"""Ranks meet and share values: each rank is a thread with real sockets.

test_ranks_by_hand.py has processes instead; here messages are asked for word by word.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from det_jupyter.contract.host.ports import free_port
from det_jupyter.core import DistributedContext, distributed
from det_jupyter.core.ranks import (
    Meeting,
    RankInfo,
    StarExchange,
    choose_meeting,
    handshake,
    meet,
)
from det_jupyter.core.ranks.handshake import (
    CHALLENGE,
    LENGTH,
    MAGIC,
    SIGNATURE_BYTES,
    introduce,
    keys_of,
    process_name,
    signature_of,
    signed,
)
from det_jupyter.core.ranks.link import FrameKind, RankLink
from det_jupyter.core.ranks.meeting import Exchanged
from det_jupyter.core.together import local_chief_first
from det_jupyter.errors import LaunchError, PeerRefused, WaitTimeout

SECRET = b"between us"


def together(bodies: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what each of the functions, called at one time, has returned or raised."""
    outcomes: list[Any] = [None] * len(bodies)

    def run(index: int) -> None:
        try:
            outcomes[index] = bodies[index]()
        except Exception as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def place(rank: int, size: int) -> RankInfo:
    return RankInfo(rank=rank, size=size, local_rank=rank, local_size=size)


def comes(meeting: Meeting, rank: int, size: int, timeout_s: float = 10) -> Callable[[], Any]:
    """Return the call by which a rank comes, and which gives its connections."""
    return lambda: meet(meeting, place(rank, size), timeout_s=timeout_s)


def share(
    meeting: Meeting,
    size: int,
    body: Callable[[StarExchange, int], Any],
    limits_s: Sequence[float] = (10, 10, 10),
) -> list[Any]:
    """Have ranks meet and share; return what each returned or raised."""
    links = together([comes(meeting, rank, size) for rank in range(size)])
    exchanges = [
        StarExchange(own, rank, range(size), limits_s[rank]) for rank, own in enumerate(links)
    ]
    outcomes = together([partial(body, exchanges[rank], rank) for rank in range(size)])
    for exchange in exchanges:
        exchange.close()
    return outcomes


def told(outcomes: Sequence[Any], kind: type[Exception]) -> list[str]:
    """Return the messages of errors that are all of one kind."""
    assert [type(outcome) for outcome in outcomes] == [kind] * len(outcomes), outcomes
    return [str(outcome) for outcome in outcomes]


def meetings(folder: Path) -> dict[str, Meeting]:
    return {
        "a path": Meeting(folder / "here"),
        "a path that is too long for a socket": Meeting(folder / ("x" * 99) / "here"),
        "a port": Meeting(("127.0.0.1", free_port())),
        "a port, signed": Meeting(("127.0.0.1", free_port()), SECRET),
        "a path, with a secret": Meeting(folder / "there", SECRET),
    }


@pytest.mark.parametrize("name", meetings(Path()))
def test_values_of_all_sizes_come_to_all_ranks_in_their_order(name: str, tmp_path: Path) -> None:
    meeting = meetings(tmp_path)[name]
    if isinstance(meeting.address, Path):
        meeting.address.parent.mkdir(exist_ok=True)

    def body(exchange: StarExchange, rank: int) -> None:
        for length in (0, 400, 70_000, 1_100_000):  # in one part, and in several
            mine = bytes([rank]) * (length + rank)
            everyone = [bytes([other]) * (length + other) for other in range(3)]
            assert exchange.allgather(mine) == everyone
            assert exchange.gather(mine) == (None if rank else everyone)
            assert exchange.broadcast(mine) == everyone[0]
            exchange.barrier()

    assert share(meeting, 3, body) == [None] * 3
    if isinstance(meeting.address, Path):
        assert not meeting.address.exists()
    else:
        with socket.socket() as sock, pytest.raises(ConnectionRefusedError):
            sock.connect(meeting.address)


@pytest.mark.parametrize(
    ("operation", "values", "expected"),
    [
        ("sum", [[[1.0, 0.5]], [[2.0, 0.25]], [[4.0, 8.0]]], [[7.0, 8.75]]),
        ("max", [[1, 9], [7, 2], [3, 3]], [7, 9]),
        # in the order of ranks: 1 is lost in 1e16 first, and then 1e16 is taken away
        ("sum", [[1.0], [1e16], [-1e16]], [0.0]),
    ],
)
def test_tensors_are_reduced_in_place(
    operation: Any, values: list[Any], expected: Any, tmp_path: Path
) -> None:
    def body(exchange: StarExchange, rank: int) -> Any:
        dtype = torch.float64 if operation == "sum" else torch.int64
        tensor = torch.tensor(values[rank], dtype=dtype)
        exchange.reduce_(tensor, operation)
        return tensor.tolist()

    assert share(Meeting(tmp_path / "here"), 3, body) == [expected] * 3


# Ranks that fail


def test_a_rank_that_has_ended_fails_this_and_every_later_collective(tmp_path: Path) -> None:
    def body(exchange: StarExchange, rank: int) -> Any:
        exchange.barrier()
        if rank == 2:
            exchange.close()
            return None
        with pytest.raises(dist.DistNetworkError) as first:
            exchange.allgather(rank)
        with pytest.raises(dist.DistNetworkError, match=re.escape(str(first.value))):
            exchange.barrier()
        return str(first.value)

    chief, other, _ = share(Meeting(tmp_path / "here"), 3, body)
    assert chief == other == (
        f"distributed: rank 2 ({process_name()}) has ended, or closed its context, before "
        "allgather number 2; if it has failed, its own error has the cause"
    )  # fmt: skip


def test_a_closed_exchange_says_so(tmp_path: Path) -> None:
    def body(exchange: StarExchange, rank: int) -> None:
        exchange.close()
        exchange.barrier()

    for message in told(share(Meeting(tmp_path / "here"), 2, body), RuntimeError):
        assert message == "distributed: these ranks' connections are closed"


@pytest.mark.parametrize(
    ("late", "named"), [([1], "rank 1 of 3 has"), ([1, 2], "ranks 1, 2 of 3 have")]
)
def test_the_ranks_that_are_late_are_named_on_all(
    late: list[int],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("det_jupyter.core.ranks.star._QUIET_S", 0.02)
    is_over = threading.Event()

    def body(exchange: StarExchange, rank: int) -> None:
        if rank in late:
            is_over.wait(600)
        if not rank:  # begins when the others have sent
            for place in {1, 2} - set(late):
                select.select([exchange._links[place]], [], [], 10)
        try:
            exchange.allgather(rank)
        finally:
            is_over.set()

    outcomes = share(Meeting(tmp_path / "here"), 3, body, (0.5, 10, 10))
    for message in told(outcomes, WaitTimeout):
        assert message == (
            f"distributed: {named} not come to allgather number 1 within 0.5 s; see where that "
            "is: all ranks must call the same collectives"
        )
    logged = f"distributed: {named} not come to allgather number 1 within 0.02 s"
    assert sum(text.startswith(logged) for text in caplog.messages) == 1


def test_a_limit_of_years_is_a_limit(tmp_path: Path) -> None:
    outcomes = share(Meeting(tmp_path / "here"), 2, StarExchange.allgather, (1e9, 1e9))
    assert outcomes == [[0, 1], [0, 1]]


def test_a_chief_that_is_late_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.core.ranks.star._CHIEF_GRACE_S", 0.05)
    is_over = threading.Event()
    waited_s = []

    def body(exchange: StarExchange, rank: int) -> Any:
        if not rank:
            return is_over.wait(600)
        begin = time.monotonic()
        try:
            return exchange.broadcast(None)
        finally:
            waited_s.append(time.monotonic() - begin)
            is_over.set()

    _, error = share(Meeting(tmp_path / "here"), 2, body, (10, 0.1))
    (message,) = told([error], WaitTimeout)
    assert message == (
        "distributed: rank 0 has not answered in broadcast number 1 within 0.1 s: it has not "
        "called it, or waits for others"
    )
    assert waited_s[0] >= 0.15  # the chief's own limit comes first: it can say who is late


def test_different_collectives_are_told_on_all(tmp_path: Path) -> None:
    def body(exchange: StarExchange, rank: int) -> Any:
        return exchange.allgather(rank) if rank == 1 else exchange.gather(rank)

    chief, other = share(Meeting(tmp_path / "here"), 2, body)
    message = (
        f"distributed: rank 1 ({process_name()}) has called allgather number 1, rank 0 gather "
        "number 1: all ranks must call the same collectives in the same order"
    )
    assert told([chief], RuntimeError) == [message]
    assert told([other], dist.DistNetworkError) == [message]


def test_a_value_that_cannot_be_sent_leaves_the_connections_as_they_are(tmp_path: Path) -> None:
    def body(exchange: StarExchange, rank: int) -> Any:
        for call in (exchange.allgather, exchange.gather):
            with pytest.raises((AttributeError, pickle.PicklingError)):
                call(lambda: None)
        return exchange.allgather(rank)

    assert share(Meeting(tmp_path / "here"), 2, body) == [[0, 1]] * 2


@pytest.mark.parametrize("sizes", [(3,), (2, 2), (1, 2)])
def test_local_collectives_stay_on_their_computer(
    sizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    port = free_port()
    places: list[dict[str, Any]] = []
    for home, local_size in enumerate(sizes):
        for local_rank in range(local_size):
            numbers = {"rank": len(places), "size": sum(sizes)}
            numbers |= {"local_rank": local_rank, "local_size": local_size}
            places.append(numbers | {"cross_rank": home, "cross_size": len(sizes)})

    def body(place: dict[str, Any]) -> Any:
        context = DistributedContext(chief_ip="127.0.0.1", pub_port=port, **place)
        with closing(context):
            rank = context.rank
            seen: list[Any] = [context.gather_local(rank), context.allgather_local(rank)]
            seen += [context.broadcast_local(rank), context.gather(rank), context.allgather(rank)]
        if context.size > 1:
            with pytest.raises(RuntimeError, match="these ranks' connections are closed"):
                context.allgather(rank)
        if context.local_size > 1:
            with pytest.raises(RuntimeError, match="these ranks' connections are closed"):
                context.allgather_local(rank)
        else:
            assert context.allgather_local(rank) == [rank], "it has no connections there"
        return seen

    everyone = list(range(sum(sizes)))
    for rank, seen in enumerate(together([partial(body, place) for place in places])):
        home = places[rank]["cross_rank"]
        beside = [other for other in everyone if places[other]["cross_rank"] == home]
        assert seen == [
            beside if rank == beside[0] else None,
            beside,
            beside[0],
            None if rank else everyone,
            everyone,
        ]


class Mpi:
    """A communicator of mpi4py's, of two ranks on one computer, and a module of Horovod's."""

    COMM_TYPE_SHARED = COMM_WORLD = None
    offered: list[Any] = []

    def __init__(self, rank: int, has_offered: threading.Event) -> None:
        self._rank, self._has_offered = rank, has_offered
        self.rank = self.local_rank = self.Get_rank = lambda: rank
        self.size = self.local_size = self.Get_size = lambda: 2
        self.cross_rank, self.cross_size = (lambda: 0), (lambda: 1)
        self.Free = lambda: None

    def Split_type(self, kind: object) -> Mpi:  # theirs
        return self

    def allgather(self, first: int) -> list[int]:
        return [0, 0]

    def bcast(self, value: Any, root: int) -> Any:
        if not isinstance(value, tuple | None):
            return 0
        if self._rank == 0:
            self.offered[:] = [value]
            self._has_offered.set()
        assert self._has_offered.wait(600)
        return self.offered[0]


@pytest.mark.parametrize("call", ["from_mpi", "from_horovod"])
def test_programs_that_bring_ranks_together_give_contexts(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=Mpi))
    event = threading.Event()

    def body(rank: int) -> Any:
        with closing(getattr(DistributedContext, call)(Mpi(rank, event))) as context:
            return context.rank, context.size, context.allgather(rank)

    assert together([partial(body, rank) for rank in range(2)]) == [
        (0, 2, [0, 1]),
        (1, 2, [0, 1]),
    ]


@pytest.mark.parametrize(
    ("size", "group", "error", "message"),
    [
        (2, None, WaitTimeout, "rank 0 of 2 has not come to"),
        (2, (1, 3), ValueError, "torch's process group has rank 1 of 3, but RANK is 1 and WORLD_"),
        (1, (0, 3), None, ""),  # a single process needs no others
        (1, None, None, ""),
    ],
)
def test_torchruns_ranks_meet_by_torchs_group_where_there_is_one(
    size: int,
    group: tuple[int, int] | None,
    error: type[Exception] | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for names, number in (
        (["RANK", "LOCAL_RANK"], size - 1),
        (["WORLD_SIZE", "LOCAL_WORLD_SIZE"], size),
        (["GROUP_RANK"], 0),
        (["GROUP_WORLD_SIZE"], 1),
    ):
        for name in names:
            monkeypatch.setenv(name, str(number))
    monkeypatch.setattr(dist, "is_initialized", lambda: group is not None)
    monkeypatch.setattr(dist, "get_rank", lambda: group and group[0])
    monkeypatch.setattr(dist, "get_world_size", lambda: group and group[1])
    if error is None:
        assert DistributedContext.from_torch_distributed().size == 1
        return
    with pytest.raises(error, match=message):
        DistributedContext.from_torch_distributed(join_timeout_s=0.05)


DRAWN = Exchanged(b"ab", 4242)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (DRAWN, None)),
        ({"force_tcp": True, "join_timeout_s": 1.5, "pull_port": 9}, (DRAWN, None)),
        ({"pub_port": 7}, (DRAWN, 7)),
        ({"port_offset": 3}, (DRAWN, 12363)),
        ({"secret": b"mine"}, (None, None)),
        ({"store": "/a/file"}, (None, None)),
    ],
)
@pytest.mark.parametrize("is_by_hand", [True, False])
def test_what_a_script_gives_takes_precedence_over_what_torchs_group_has_brought(
    given: dict[str, Any],
    expected: tuple[Exchanged | None, int | None],
    is_by_hand: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: dict[str, Any] = {}
    monkeypatch.setattr(distributed, "choose_meeting", lambda *_, **given: chosen.update(given))
    monkeypatch.setattr(DistributedContext, "_connect", lambda *_: None)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "2")
    store = SimpleNamespace(get=lambda key: b"6162 4242", wait=lambda keys, limit: None)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    if is_by_hand:
        DistributedContext(**asdict(place(1, 2)), **given)
    else:
        DistributedContext.from_torch_distributed(**given)
    assert (chosen["exchanged"], chosen["port"]) == expected


def test_what_torchs_group_has_brought_names_the_job() -> None:
    abroad = RankInfo(rank=0, size=2, cross_size=2)
    meeting = choose_meeting(abroad, {}, chief_ip="h", exchanged=DRAWN)
    assert (meeting.address, meeting.secret) == (("h", 4242), b"ab")
    variables = {"DET_JUPYTER_SECRET": "ff"}
    kept = choose_meeting(abroad, variables, chief_ip="h", port=7, exchanged=DRAWN)
    assert (kept.address, kept.secret, kept.job) == (("h", 7), b"\xff", meeting.job)
    assert meeting.job.key.startswith("word ")
    assert meeting.claim is None


@pytest.mark.parametrize("fails", [False, True])
def test_the_local_chief_goes_first(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done: list[str] = []

    def body(rank: int) -> None:
        sizes: Any = asdict(place(rank, 2))
        with closing(DistributedContext(**sizes)) as context, local_chief_first(context):
            done.append(f"{rank} begins")
            if not rank:
                time.sleep(0.05)
            if fails:
                raise KeyError("no data")
            done.append(f"{rank} ends")

    first, second = together([partial(body, rank) for rank in range(2)])
    if not fails:
        assert (first, second) == (None, None)
        assert done == ["0 begins", "0 ends", "1 begins", "1 ends"]
        return
    assert done == ["0 begins"]
    assert told([first], KeyError) == ["'no data'"]
    (message,) = told([second], RuntimeError)
    assert message.startswith("local_chief_first: rank 0, which goes first, raised KeyError")


# Frames


@contextmanager
def pair(keys: tuple[bytes, bytes] | None) -> Iterator[tuple[RankLink, RankLink]]:
    """Yield both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with (
        closing(RankLink(ours, "us", keys)) as one,
        closing(RankLink(theirs, "them", keys and keys[::-1])) as other,
    ):
        yield one, other


def run(transfer: Generator[None, None, Any]) -> Any:
    """Return the result of a transfer that does not wait."""
    while True:
        try:
            next(transfer)
        except StopIteration as end:
            return end.value


def received(link: RankLink) -> tuple[int, int, bytes]:
    kind, number, payload = run(link.receive())
    return kind, number, bytes(payload)


@pytest.mark.parametrize(
    ("family", "secret", "signs"),
    [
        (socket.AF_INET, SECRET, True),
        (socket.AF_INET, b"", False),
        (socket.AF_UNIX, SECRET, False),
        (socket.AF_UNIX, b"", False),
    ],
)
def test_frames_over_a_network_are_signed_if_there_is_a_secret(
    family: socket.AddressFamily, secret: bytes, signs: bool
) -> None:
    with socket.socket(family) as sock:
        keys = keys_of(sock, secret, b"nonces", (b"up", b"down"))
        back = keys_of(sock, secret, b"nonces", (b"down", b"up"))
    assert (keys is not None) == signs
    if keys is not None:
        assert back == keys[::-1]
        assert keys[0] != keys[1]


def test_a_computer_that_is_switched_off_is_noticed_within_a_minute() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
    with (
        closing(RankLink(sock, "the other")) as link,
        socket.socket(fileno=os.dup(link.fileno())) as sock,
    ):
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [sock.getsockopt(socket.IPPROTO_TCP, name) for name in names] == [30, 10, 3]


def test_signed_frames_arrive_in_both_directions() -> None:
    with pair((b"up", b"down")) as (ours, theirs):
        for number in (1, 2):
            run(ours.send(FrameKind.GATHER, number, [b"a", b"b"]))
            assert received(theirs) == (FrameKind.GATHER, number, b"ab")
        run(theirs.send(FrameKind.BARRIER, 3, []))
        assert received(ours) == (FrameKind.BARRIER, 3, b"")


def test_signed_frames_of_several_messages_arrive() -> None:
    whole = bytes(range(256)) * 8192
    with pair((b"up", b"down")) as (ours, theirs), ThreadPoolExecutor() as threads:
        sending = threads.submit(run, ours.send(FrameKind.REDUCE, 1, [whole, b"end"]))
        assert received(theirs) == (FrameKind.REDUCE, 1, whole + b"end")
        sending.result()


@contextmanager
def tapped() -> Iterator[tuple[bytearray, socket.socket, RankLink]]:
    """Yield a signed frame, the socket to write it to, and the link that receives it."""
    keys = (b"up", b"down")
    (ours, tap), (write, theirs) = socket.socketpair(), socket.socketpair()
    one, other = RankLink(ours, "us", keys), RankLink(theirs, "them", keys[::-1])
    with tap, write, closing(one), closing(other):
        run(one.send(FrameKind.GATHER, 1, [b"ab"]))
        yield bytearray(tap.recv(4096)), write, other


# Of the message: its length. Of the frame: length, kind, number, mark, payload.
@pytest.mark.parametrize("place", [None, 4, 12, 13, 17, -1])  # none: as it was
def test_a_signed_frame_can_be_neither_repeated_nor_changed(place: int | None) -> None:
    with tapped() as (frame, write, theirs):
        if place is None:
            write.sendall(frame)
            received(theirs)
        else:
            frame[place] ^= 1
        write.sendall(frame)
        with pytest.raises(PeerRefused, match="as from them is not signed with the secret"):
            received(theirs)


@pytest.mark.parametrize("message", [b"", b"short", bytes([255] * 2 + [0] * 43)])
def test_what_is_no_frame_is_refused(message: bytes) -> None:
    with tapped() as (_, write, theirs):
        write.sendall(struct.pack("!i", len(message)) + message)
        write.sendall(struct.pack("!i", 2**17) + bytes(2**17))
        with pytest.raises(PeerRefused, match="as from them is not signed with the secret"):
            received(theirs)


def test_a_last_frame_is_not_put_into_one_that_is_half_sent() -> None:
    half, whole = bytes(100_000), bytes(512 * 1024)
    with pair(None) as (ours, theirs):
        sending, receiving = ours.send(FrameKind.GATHER, 1, [half, whole]), theirs.receive()
        next(sending), next(receiving)
        ours.send_last(FrameKind.END, b"why")
        next(sending), next(receiving)
        run(sending)
        assert run(receiving) == (FrameKind.GATHER, 1, half + whole)
        ours.send_last(FrameKind.END, b"why")
        assert received(theirs) == (FrameKind.END, 0, b"why")


@pytest.mark.parametrize("index", [0, 1])
def test_a_rank_that_stops_within_a_message_is_late(
    index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was stopped: the connection stays open."""
    monkeypatch.setattr("det_jupyter.core.ranks.star._CHIEF_GRACE_S", 0.05)
    ours, theirs = socket.socketpair()
    with theirs:
        links: list[RankLink | None] = [None, None]
        links[1 - index] = RankLink(ours, "the other")
        exchange = StarExchange(links, index, [0, 1], 0.05)
        theirs.sendall(struct.pack("!i", 1000) + bytes(10))
        named = ["rank 1 of 2 has not come to", "rank 0 has not answered in"][index]
        with pytest.raises(WaitTimeout, match=f"{named} allgather number 1 within 0.05 s"):
            exchange.allgather(1)


def test_a_rank_that_does_not_read_is_late() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        exchange = StarExchange([None, RankLink(ours, "rank 1")], 0, [0, 1], 0.05)
        with pytest.raises(WaitTimeout, match="rank 1 of 2 has not come to broadcast number 1"):
            exchange.broadcast(bytes(10_000_000))


def test_a_rank_that_has_ended_is_noticed_while_another_does_not_read() -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    links = [RankLink(ours, f"rank {rank}") for rank, (ours, _) in enumerate(pairs, 1)]
    exchange = StarExchange([None, *links], 0, range(3), 10)
    with pairs[0][1]:
        pairs[1][1].close()
        with pytest.raises(dist.DistNetworkError, match="rank 2 has ended"):
            exchange.broadcast(bytes(10_000_000))


# Who comes


def test_ranks_that_do_not_fit_together_are_told_on_all(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "here")
    outcomes = together([comes(meeting, rank, 3) for rank in (0, 1, 1)])
    for message in told(outcomes, ValueError):
        assert message == (
            "distributed: the ranks do not fit together: rank 1 was given to 2 processes: "
            f"{process_name()} and {process_name()}"
        )


def test_a_chief_that_does_not_come_is_named(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "here")
    (message,) = told(together([comes(meeting, 1, 2, timeout_s=0.05)]), WaitTimeout)
    assert message == (
        f"distributed: rank 0 of 2 has not come to {meeting} within 0.05 s; rank 1 waits for it "
        "there. Are all ranks started, with the same chief_ip and pub_port?"
    )


def connected(meeting: Meeting) -> tuple[socket.socket, bytes]:
    """Return a connection with the chief, which listens soon, and its nonce."""
    assert isinstance(meeting.address, Path)
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    while True:
        try:
            sock.connect(str(meeting.address))
            break
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.005)
    word, nonce, remaining_s = CHALLENGE.unpack(sock.recv(CHALLENGE.size))
    assert word == MAGIC
    assert 0 < remaining_s <= 10
    return sock, nonce


def hello(nonce: bytes, size: int = 2) -> bytes:
    """Return what rank 1 says."""
    words = {"place": asdict(place(1, size)), "name": "by hand", "nonce": bytes(16).hex()}
    words |= {"job": "", "origin": "", "started": {"pid": 7, "birth": "70@boot"}}
    return signed(SECRET, b"hello" + nonce, words)


def verdict_of(data: bytes) -> Any:
    """Return what the chief has said, if it is signed as for rank 1."""
    (length,) = LENGTH.unpack_from(data)
    said, mark = data[LENGTH.size : LENGTH.size + length], data[LENGTH.size + length :]
    assert mark == signature_of(SECRET, b"verdict" + bytes(16), said)
    return json.loads(said)


@pytest.fixture
def time_is_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Meeting], None]:
    """Return a function that has the chief find that its time is up."""
    skew_s = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + skew_s[0])
    monkeypatch.setattr(handshake, "time", clock)

    def let(meeting: Meeting) -> None:
        with connected(meeting)[0]:  # after what was sent before, and its end wakes the chief
            skew_s[0] = 3600

    return let


def test_those_that_have_come_hear_who_is_late(
    tmp_path: Path, time_is_up: Callable[[Meeting], None]
) -> None:
    meeting = Meeting(tmp_path / "here", SECRET)

    def other() -> Any:
        sock, nonce = connected(meeting)
        with sock:
            sock.sendall(hello(nonce, size=3))
            time_is_up(meeting)
            return verdict_of(sock.recv(4096))

    chief, verdict = together([comes(meeting, 0, 3), other])
    (message,) = told([chief], WaitTimeout)
    assert verdict == {"kind": "late", "text": message}
    assert message == (
        f"distributed: rank 2 of 3 has not come to {meeting} within 10 s. Are all ranks "
        "started, with the same chief_ip and pub_port?"
    )


def test_who_has_another_secret_is_refused_and_counted(
    tmp_path: Path, time_is_up: Callable[[Meeting], None]
) -> None:
    ours, theirs = Meeting(tmp_path / "here", SECRET), Meeting(tmp_path / "here", b"guess")

    def other() -> Any:
        try:
            return meet(theirs, place(1, 2), timeout_s=10)
        finally:
            time_is_up(ours)

    chief, refused = together([comes(ours, 0, 2), other])
    (refusal,) = told([refused], PeerRefused)
    assert "rank 1 and what it has met as rank 0 do not have the same secret" in refusal
    (late,) = told([chief], WaitTimeout)
    assert late.endswith(
        " 1 connections were refused, because they did not have the secret of these ranks"
    )


def odd(said: bytes) -> Callable[[bytes], bytes]:
    """Return what says something odd, well signed."""
    return lambda nonce: (
        LENGTH.pack(len(said)) + said + signature_of(SECRET, b"hello" + nonce, said)
    )


@pytest.mark.parametrize(
    "say",
    [
        odd(b"7"),
        odd(b"{}"),
        odd(b"\xff"),
        lambda nonce: hello(nonce) + b"more",
        lambda nonce: LENGTH.pack(2**30),
        lambda nonce: hello(bytes(16)),
    ],
)
def test_who_says_something_odd_is_sent_away_and_the_others_meet(
    say: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    meeting = Meeting(tmp_path / "here", SECRET)

    def stranger() -> None:
        sock, nonce = connected(meeting)
        with sock:
            sock.sendall(say(nonce))
            while sock.recv(4096):
                pass

    def other() -> Any:
        visit = threading.Thread(target=stranger)
        visit.start()
        visit.join()
        return meet(meeting, place(1, 2), timeout_s=10)

    ours, theirs = together([comes(meeting, 0, 2), other])
    assert ours[1].name == f"rank 1 ({process_name()})"
    assert theirs[0].name == f"rank 0 ({process_name()})"
    ours[1].close(), theirs[0].close()


def test_a_hello_may_come_in_parts(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "here", SECRET)

    def slow() -> Any:
        sock, nonce = connected(meeting)
        with sock:
            said = hello(nonce)
            for part in (said[:2], said[2:9], said[9:-1], said[-1:]):
                sock.sendall(part)
                time.sleep(0.01)
            return verdict_of(sock.recv(4096))

    links, verdict = together([comes(meeting, 0, 2), slow])
    assert links[0] is None
    assert links[1].name == "rank 1 (by hand)"
    assert verdict == {"kind": "", "text": f"rank 0 ({process_name()})"}
    links[1].close()


def test_a_rank_that_leaves_before_all_have_come_is_named(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "here", SECRET)

    def leaves() -> None:
        sock, nonce = connected(meeting)
        with sock:
            sock.sendall(hello(nonce, size=3))

    chief, _ = together([comes(meeting, 0, 3), leaves])
    assert told([chief], dist.DistNetworkError) == [
        "distributed: rank 1 (by hand) has ended before all ranks had come; its own error has the "
        "cause"
    ]
    chief, _ = together([comes(meeting, 0, 4), leaves])
    (message,) = told([chief], ValueError)
    assert message.endswith(f"sizes: rank 0 ({process_name()}) 4, rank 1 (by hand) 3")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("conflict", ValueError),
        ("late", WaitTimeout),
        ("refused", PeerRefused),
        ("ended", dist.DistNetworkError),
    ],
)
def test_what_the_chief_has_found_is_raised_on_the_others(
    kind: str, expected: type[Exception]
) -> None:
    def chief(server: socket.socket) -> None:
        sock, _ = server.accept()
        with sock:
            sock.sendall(CHALLENGE.pack(MAGIC, bytes(16), 0.0))
            said = sock.recv(4096)[LENGTH.size : -SIGNATURE_BYTES]
            own = bytes.fromhex(json.loads(said)["nonce"])
            sock.sendall(signed(SECRET, b"verdict" + own, {"kind": kind, "text": "so it is"}))

    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = Meeting(("127.0.0.1", server.getsockname()[1]), SECRET)
        _, other = together([lambda: chief(server), comes(meeting, 1, 2)])
    assert told([other], expected) == ["so it is"]


def answering(data: bytes) -> tuple[socket.socket, Meeting]:
    """Return a listener that is no chief: what connects gets these bytes, and then nothing."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            with sock, suppress(ConnectionError):
                sock.sendall(data)
                sock.recv(4096)

    threading.Thread(target=serve, daemon=True).start()
    return server, Meeting(("127.0.0.1", server.getsockname()[1]), SECRET)


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        (b"HTTP/1.1 400 Bad Request, and so on\r\n", LaunchError, "has met another program inst"),
        (
            CHALLENGE.pack(MAGIC, bytes(16), 0.0),
            dist.DistNetworkError,
            "has ended, or has refused",
        ),
        (
            CHALLENGE.pack(MAGIC, bytes(16), 0.0) + LENGTH.pack(2) + b"{}" + bytes(32),
            PeerRefused,
            "do not have the same secret",
        ),
    ],
)
def test_what_is_no_chief_is_told(data: bytes, kind: type[Exception], message: str) -> None:
    server, meeting = answering(data)
    (found,) = told(together([comes(meeting, 1, 2)]), kind)
    server.close()
    assert message in found


def test_what_does_not_answer_is_told() -> None:
    server, meeting = answering(b"")
    (found,) = told(together([comes(meeting, 1, 2, timeout_s=0.1)]), WaitTimeout)
    server.close()
    assert "does not answer as rank 0; it may be stopped, or another program is in its" in found


class Pieces:
    """A socket from which the parts come one by one."""

    def __init__(self, *parts: bytes) -> None:
        self.parts = list(parts)
        self.limits_s: list[float] = []

    def settimeout(self, limit_s: float) -> None:
        self.limits_s.append(limit_s)

    def sendall(self, data: bytes) -> None:
        """Lose it."""

    def recv(self, count: int) -> bytes:
        part = self.parts.pop(0) if self.parts else b""
        if len(part) > count:
            self.parts.insert(0, part[count:])
        return part[:count]


@pytest.mark.parametrize(
    ("own_s", "of_chief_s", "limits_s"),
    [
        (30.0, 0.0, [30.0, 30.0, 30.0, 30.0, 30.0]),
        (30.0, 25.0, [30.0, 30.0, 30.0, 30.0, 30.0]),
        (30.0, 60.0, [30.0, 30.0, 65.0, 65.0, 65.0]),  # it can say who is late
        (-30.0, 60.0, [0.001, 0.001, 65.0, 65.0, 65.0]),
    ],
)
def test_a_chiefs_words_may_come_in_parts_and_each_has_a_limit(
    own_s: float, of_chief_s: float, limits_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    challenge = CHALLENGE.pack(MAGIC, bytes(16), of_chief_s)
    sock: Any = Pieces(challenge[:10], challenge[10:] + LENGTH.pack(2) + b"{}" + bytes(32))
    with pytest.raises(PeerRefused, match="rank 1 and what it has met as rank 0 do not have"):
        introduce(sock, place(1, 2), Meeting(Path("there"), SECRET), 1000.0 + own_s)
    assert sock.limits_s == limits_s


def test_a_connection_that_ends_before_it_begins_is_tried_again() -> None:
    with pytest.raises(EOFError):
        introduce(Pieces(), place(1, 2), Meeting(Path("there")), time.monotonic())  # type: ignore[arg-type]  # a fake


def test_a_long_path_leaves_no_folder_open(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / ("x" * 99) / "here")
    meeting.address.parent.mkdir()  # type: ignore[union-attr]  # a path
    ours, theirs = together([comes(meeting, rank, 2) for rank in (0, 1)])
    ours[1].close(), theirs[0].close()
    still_open = {str(file.resolve()) for file in Path("/proc/self/fd").iterdir()}
    assert not any(path.startswith(str(tmp_path)) for path in still_open)


def test_a_second_rank_0_is_told_on_both(tmp_path: Path) -> None:
    meeting = Meeting(tmp_path / "here")

    def later() -> Any:
        connected(meeting)[0].close()  # the first listens
        return meet(meeting, place(0, 2), timeout_s=10)

    for message in told(together([comes(meeting, 0, 2), later]), ValueError):
        assert "rank 0 was given to 2 processes" in message


def test_the_socket_of_a_chief_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "here"))
    left.close()
    ours, theirs = together([comes(Meeting(tmp_path / "here"), rank, 2) for rank in (0, 1)])
    ours[1].close(), theirs[0].close()


def test_where_nothing_can_listen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.core.ranks.gathering._OTHER_CHIEF_S", 0.05)
    server, meeting = answering(b"")
    (busy,) = told(together([comes(meeting, 0, 2)]), LaunchError)
    server.close()
    assert f"cannot wait for the others at {meeting}: another program does" in busy
    elsewhere = Meeting(("192.0.2.1", 12360))
    (foreign,) = told(together([comes(elsewhere, 0, 2)]), LaunchError)
    assert foreign.endswith("chief_ip has to be an address of the computer that rank 0 is on")
    nowhere = Meeting(("no such computer.invalid", 12360))
    (unknown,) = told(together([comes(nowhere, 0, 2)]), ValueError)
    assert "chief_ip: got 'no such computer.invalid', which is not found" in unknown


# Where


def test_where_ranks_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    two = place(0, 2)
    folder = tmp_path / f"det_jupyter-{os.getuid()}"
    here = choose_meeting(two, {"DET_JUPYTER_SECRET": "no hex"})
    assert isinstance(here.address, Path)
    assert (here.address.parent, here.secret) == (folder, b"no hex")
    assert choose_meeting(two, {}, secret=b"x", store="s") == Meeting(Path("s-ranks"), b"x")
    forced = choose_meeting(two, {}, force_tcp=True, port=7)
    assert str(forced) == "127.0.0.1:7"
    assert len(forced.secret) == 32
    assert forced == choose_meeting(two, {}, force_tcp=True, port=7)
    assert choose_meeting(two, {}, force_tcp=True, chief_ip="h", secret=b"x").secret == b"x"
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in folder.iterdir()] == ["secret"]
    abroad = RankInfo(rank=0, size=2, cross_size=2)
    there = choose_meeting(abroad, {}, chief_ip="h")
    assert (there.address, there.secret) == (("h", 12360), b"")
    for port in (0, 65536):
        with pytest.raises(ValueError, match=f"got {port}, expected 1 to 65535"):
            choose_meeting(two, {}, port=port)


def test_ranks_of_one_computer_meet_at_a_place_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    beside = Meeting(Path("/a/b"), b"x").local(1, "word")
    assert beside == Meeting(Path("/a/ranks-word-1"), b"x")
    port = Meeting(("h", 1), b"x")
    first, second = port.local(0, "word"), port.local(1, "word")
    assert first == port.local(0, "word") != port.local(0, "other")
    assert first.secret == second.secret == b"x"
    assert first.address != second.address
