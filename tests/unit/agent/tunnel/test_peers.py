"""What an agent measures of another one, and how it finds a port closed; the other is played."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel import dialing, peers
from det_jupyter.agent.tunnel.dialing import Dialer, Unreached
from det_jupyter.agent.tunnel.peers import CHUNK_BYTES
from det_jupyter.contract.messages import Cut, GangLink, PeerMeasured
from det_jupyter.errors import LaunchError

LINK = GangLink(
    agents=["a", "b"], addresses=["10.0.0.1", "10.0.0.2"], ports=[7, 8], certificate="", secret="s"
)


class Other:
    """Agent `b`, which answers at once; the time that each write takes is played.

    Attributes:
        pings_s: How long each of the single bytes takes.
        chunk_s: How long each chunk takes.
        most_answers: After so many answers it closes the connection; None: never.
    """

    def __init__(self) -> None:
        self.now = 50.0
        self.pings_s = [0.5, 0.25, 0.75]
        self.chunk_s = 0.25
        self.most_answers: int | None = None
        self.is_silent = False
        self.port_line = b"4000\n"
        self.problems: list[BaseException | None] = [None]
        self.tried: list[tuple[str, int]] = []
        self.num_chunks = self.num_closed = 0
        self.link, self.cut_from = LINK, Dialer.cut_from
        self.dialer = Dialer(gang="1.1.1", link=LINK, here=["a"])

    async def connect(self, group: int, want: str) -> Any:
        assert group == 1
        self.reader, self.want = asyncio.StreamReader(), want
        if want == "port":
            self.reader.feed_data(self.port_line)
            self.reader.feed_eof()
        return self.reader, self

    async def try_port(self, address: str, port: int) -> BaseException | None:
        self.tried.append((address, port))
        return self.problems.pop(0)

    def write(self, data: bytes) -> None:
        """Receive bytes, and answer them."""
        is_chunk = len(data) > 1
        self.now += self.chunk_s if is_chunk else self.pings_s.pop(0)
        self.num_chunks += is_chunk
        if self.most_answers is not None and self.most_answers == 0:
            self.reader.feed_eof()
            self.most_answers = -1
        elif not (self.is_silent and is_chunk) and self.most_answers != -1:
            self.reader.feed_data(b"\0")
            if self.most_answers is not None:
                self.most_answers -= 1

    async def drain(self) -> None:
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Other:
    played = Other()
    clock = SimpleNamespace(perf_counter=lambda: played.now, monotonic=lambda: played.now)
    monkeypatch.setattr(peers, "time", clock)
    monkeypatch.setattr(peers, "_connect", played.try_port)
    monkeypatch.setattr(Dialer, "connect", lambda self, group, want: played.connect(group, want))
    return played


def measure(other: Other, num_chunks: int) -> PeerMeasured:
    return asyncio.run(peers.measure(other.dialer, 1, num_chunks * CHUNK_BYTES))


@pytest.mark.parametrize(
    ("num_chunks", "num_sent", "speed"),
    [(0, 0, None), (1, 1, 4.0), (2, 2, 4.0), (4, 4, 4.0), (9, 4, 4.0)],
)
def test_speed_is_measured_for_a_second_at_most_and_latency_by_the_fastest_byte(
    other: Other, num_chunks: int, num_sent: int, speed: float | None
) -> None:
    found = measure(other, num_chunks)
    assert found.latency_s == 0.25
    assert found.bytes_per_s == (None if speed is None else speed * CHUNK_BYTES)
    assert other.num_chunks == num_sent
    assert other.tried == [("10.0.0.2", 4000)]
    assert other.num_closed == 2


def test_only_bytes_that_have_arrived_count(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_MEASURED_S", 0.01)
    other.is_silent = True
    assert measure(other, 2).bytes_per_s == 0.0
    other.is_silent, other.most_answers = False, 5
    other.pings_s, other.problems = [0.5] * 3, [None]
    assert measure(other, 4).bytes_per_s == 2 * CHUNK_BYTES / 1.0  # it closed after the second


def test_a_connection_that_is_lost_at_once_is_an_error(other: Other) -> None:
    other.most_answers = 1
    with pytest.raises(ConnectionResetError, match="the connection was closed"):
        measure(other, 1)
    assert other.num_closed == 2


LOST = OSError(errno.EHOSTUNREACH, "")


@pytest.mark.parametrize(
    ("problems", "why"),
    [
        ([None], ""),
        ([TimeoutError(), None], ""),
        ([TimeoutError(), LOST], "No route to host at 10.0.0.2 port 4000, which was open; "),
    ],
)
def test_a_port_is_tried_twice(
    other: Other, problems: list[BaseException | None], why: str
) -> None:
    other.problems = list(problems)
    checking = peers.check_ports(other.dialer)
    if not why:
        asyncio.run(checking)
    else:
        with pytest.raises(Unreached) as caught:
            asyncio.run(checking)
        cut = caught.value.cut
        assert (cut.from_agent, cut.to_agent) == ("a", "b")
        assert cut.why.startswith(why)
    assert len(other.tried) == len(problems)
    assert other.num_closed == 1


@pytest.mark.parametrize("line", [b"", b"x\n"])
def test_an_agent_that_names_no_port_has_ended_its_part(other: Other, line: bytes) -> None:
    other.port_line = line
    with pytest.raises(StartFailed, match=r"agent b, at 10\.0\.0\.2 port 8, has ended its part"):
        asyncio.run(peers.check_ports(other.dialer))
    assert other.num_closed == 1


def test_an_open_port_is_told_from_one_that_refuses() -> None:
    async def act() -> list[BaseException | None]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found = [await peers._connect("127.0.0.1", port)]
        server.close()
        await server.wait_closed()
        return [*found, await peers._connect("127.0.0.1", port)]

    is_open, refused = asyncio.run(act())
    assert is_open is None
    assert isinstance(refused, ConnectionRefusedError)


@pytest.mark.parametrize("is_reached", [None, ConnectionRefusedError()])
def test_a_computer_is_cut_off_after_25_s_without_one_answer(
    other: Other, monkeypatch: pytest.MonkeyPatch, is_reached: BaseException | None
) -> None:
    problems = [TimeoutError(), is_reached, *[TimeoutError()] * 100]
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        other.now += seconds
        await sleep(0)

    other.problems = cast(Any, problems)
    monkeypatch.setattr(asyncio, "sleep", pause)
    cut = asyncio.run(peers.watch(other.dialer))
    assert cut == Cut(from_agent="a", to_agent="b", why="no answer at 10.0.0.2 port 8 for 25 s")
    assert pauses == [5.0, 1.0, 5.0, *[1.0] * 21]
    assert set(other.tried) == {("10.0.0.2", 8)}


def test_where_no_other_agent_accepts_connections_nothing_is_watched(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Dialer(gang="1.1.1", link=LINK, here=["a", "b"])

    async def act(work: Callable[[], Any]) -> bool:
        watching = asyncio.create_task(work())
        for _ in range(5):
            await asyncio.sleep(0)
        is_done = watching.done()
        watching.cancel()
        return is_done

    assert not asyncio.run(act(lambda: peers.watch(alone)))
    asyncio.run(peers.check_ports(alone))
    assert other.tried == []


def test_when_one_computer_is_cut_off_the_others_are_watched_no_more(
    other: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def watch_one(dialer: Dialer, group: int) -> Cut:
        if group == 2:
            await asyncio.Event().wait()
        return dialer.cut_from(group, "no answer")

    monkeypatch.setattr(peers, "_watch_one", watch_one)
    link = LINK.model_copy(
        update={"agents": ["a", "b", "c"], "addresses": ["x"] * 3, "ports": [1, 2, 3]}
    )

    async def act() -> Cut:
        cut = await peers.watch(Dialer(gang="1.1.1", link=link, here=["a"]))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return cut

    assert asyncio.run(act()) == Cut(from_agent="a", to_agent="b", why="no answer")


STRANGER = ssl.SSLCertVerificationError(1, "self-signed certificate")
RESET = ConnectionResetError(errno.ECONNRESET, "")
Outcome = BaseException | None | str


class Attempts:
    """What becomes of each attempt to reach agent `b`; each takes a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> None:
        self.now = 50.0
        self.num = 0
        self.pauses: list[float] = []
        self._outcomes = outcomes
        monkeypatch.setattr(dialing, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(Dialer, "_open", lambda dialer, group, *_: self._open(group))
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        monkeypatch.setattr(dialing, "trusting", lambda certificate: None)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def _open(self, group: int) -> Any:
        assert group == 1
        self.now += 1.0
        outcome = self._outcomes[min(self.num, len(self._outcomes) - 1)]  # the last is repeated
        self.num += 1
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def connect(self) -> Any:
        dialer = Dialer(gang="1.1.1", link=LINK, here=["a"], cut_s=10.0)
        return asyncio.run(dialer.connect(1, "start"))


NOT_BEGUN = "agent b, at 10.0.0.2 port 8, has not begun to start its part of the gang within 60 s"


@pytest.mark.parametrize(
    ("outcomes", "num", "error", "text"),
    [
        # An agent that is not reached is tried for as long as was given.
        ([TimeoutError()], 11, Unreached, "no answer at 10.0.0.2 port 8 within 10 s"),
        ([LOST], 11, Unreached, "No route to host at 10.0.0.2 port 8 within 10 s"),
        # One that answers and does not carry the gang yet has a minute.
        ([None], 61, StartFailed, NOT_BEGUN),
        ([RESET], 61, StartFailed, NOT_BEGUN),
        ([ssl.SSLError(1, "no certificate")], 61, StartFailed, NOT_BEGUN),
        ([LOST] * 9 + [None] + [LOST], 21, Unreached, "No route to host"),
        ([LOST] * 9 + [RESET] + [LOST], 21, Unreached, "No route to host"),
        ([STRANGER], 11, LaunchError, "what answers at 10.0.0.2 port 8 has another certificate"),
    ],
)
def test_an_agent_is_tried_while_it_may_be_about_to_start_its_part(
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[Outcome],
    num: int,
    error: type[Exception],
    text: str,
) -> None:
    attempts = Attempts(monkeypatch, *outcomes)
    with pytest.raises(error, match=text) as caught:
        attempts.connect()
    assert type(caught.value) is error
    assert attempts.num == num
    assert attempts.pauses[:9] == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]


def test_an_agent_that_begins_in_time_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Attempts(monkeypatch, LOST, None, RESET, "a connection").connect() == "a connection"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TimeoutError(), "no answer"),
        (OSError(errno.EPERM, ""), "Operation not permitted"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (OSError(0, "odd"), "odd"),
        (ValueError("odd"), "odd"),
    ],
)
def test_why_a_connection_failed_is_said_in_a_few_words(error: Exception, words: str) -> None:
    assert words in dialing.connect_problem(error)


class Wire:
    """A connection, as its writer."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.written = b""
        self.num_closed = 0

    def get_extra_info(self, name: str) -> socket.socket:
        assert name == "socket"
        return self.socket

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.num_closed += 1


@pytest.mark.parametrize(("answer", "num_closed"), [(b"ok\n", 0), (b"no\n", 1), (None, 1)])
def test_a_connection_that_is_not_accepted_is_closed_and_others_are_kept_alive(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, num_closed: int
) -> None:
    wire = Wire()

    async def open_connection(host: str, port: int, **how: Any) -> Any:
        assert (host, port) == ("10.0.0.2", 8)
        if answer is None:
            return SimpleNamespace(), wire  # which cannot be read
        reader = asyncio.StreamReader()
        reader.feed_data(answer)
        reader.feed_eof()
        return reader, wire

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    dialer = Dialer(gang="1.1.1", link=LINK, here=["a"])
    opening: Any = dialer._open(1, cast(Any, None), b"the request\n")
    with wire.socket:
        if answer is None:
            with pytest.raises(AttributeError):
                asyncio.run(opening)
        else:
            assert (asyncio.run(opening) is None) is bool(num_closed)
        options = [
            wire.socket.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert (wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), options) == (
            1, [30, 10, 6],
        )  # fmt: skip
    assert (wire.written, wire.num_closed) == (b"the request\n", num_closed)
