"""The tunnel between the agents of a gang on several computers, over TLS on the loopback."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel import connections, dialing, peers
from det_jupyter.agent.tunnel import listener as listener_module
from det_jupyter.agent.tunnel import part as part_module
from det_jupyter.agent.tunnel.connections import (
    Connection,
    objects_socket,
    port_file,
    server_name,
)
from det_jupyter.agent.tunnel.dialing import Dialer, Unreached
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.agent.tunnel.part import open_part
from det_jupyter.contract.messages import GangLink
from det_jupyter.errors import DetError, LaunchError
from det_jupyter.master.service.agents.agent_access import AgentAccess

ID = "1.1.1"
SECRET = "5e" * 32
Scenario = Callable[[], Coroutine[Any, Any, None]]


def certificate(folder: Path) -> tuple[str, str]:
    """Return a certificate and its key, both PEM."""
    folder.mkdir()
    access = AgentAccess(folder)
    access.add("any")
    return access.certificate.read_text(), access.key.read_text()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certificate(tmp_path_factory.mktemp("tls") / "a")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialing, "_BEGUN_S", 0.3)
    monkeypatch.setattr(dialing, "CUT_S", 0.1)
    monkeypatch.setattr(part_module, "_ENDED_S", 0.0)


def link_to(listener: GangListener, pair: tuple[str, str], **changes: Any) -> GangLink:
    link = GangLink(
        agents=["a", "b"],
        addresses=["127.0.0.1", "127.0.0.1"],
        ports=[listener.port, 0],
        certificate=pair[0],
        key=pair[1],
        secret=SECRET,
    )
    return link.model_copy(update=changes)


@asynccontextmanager
async def opened() -> AsyncIterator[GangListener]:
    listener = GangListener()
    await listener.open()
    try:
        yield listener
    finally:
        listener.close()
        await asyncio.sleep(0.05)  # connections that were closed end


class Parts:
    """The two parts of a gang, with the chief's on agent `a`.

    Args:
        folder: With a short path, for sockets.
        others: How the link of `b` differs.
    """

    def __init__(
        self, folder: Path, listener: GangListener, pair: tuple[str, str], **others: Any
    ) -> None:
        self.stores = {name: folder / name for name in ("a", "b")}
        link = link_to(listener, pair)
        self.chief = open_part(ID, link, agents={"a"}, store=self.stores["a"], listener=listener)
        theirs = link.model_copy(update={"key": "", **others})
        self.other = open_part(ID, theirs, agents={"b"}, store=self.stores["b"], listener=None)

    @asynccontextmanager
    async def objects_served(self) -> AsyncIterator[asyncio.Queue[Connection]]:
        """Listen as rank 0 does; yield the queue of accepted connections."""
        connections: asyncio.Queue[Connection] = asyncio.Queue()

        def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.put_nowait((reader, writer))

        server = await asyncio.start_unix_server(take, objects_socket(self.stores["a"]))
        try:
            yield connections
        finally:
            server.close()

    async def connect(self) -> Connection:
        """Connect as a rank of the other computer does."""
        return await asyncio.open_unix_connection(objects_socket(self.stores["b"]))


def run(scenario: Scenario) -> None:
    async def limited() -> None:
        await scenario()

    asyncio.run(limited())


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t")


def test_bytes_pass_both_ways_and_what_was_sent_before_a_close_arrives(
    folder: Path, pair: tuple[str, str]
) -> None:
    data = bytes(range(256)) * (1 << 15)  # 8 MiB, more than all buffers together

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.chief, parts.other, parts.objects_served() as come:
                reader, writer = await parts.connect()
                writer.write(b"hello")
                theirs = await come.get()
                assert await theirs[0].readexactly(5) == b"hello"
                theirs[1].write(data)
                theirs[1].close()
                assert await reader.read(-1) == data
                writer.close()
                reader, writer = await parts.connect()
                theirs = await come.get()
                writer.write(data)
                writer.close()
                assert await theirs[0].read(-1) == data
                theirs[1].close()

    run(scenario)


def test_bytes_that_the_ranks_sent_before_their_parts_ended_arrive(
    folder: Path, pair: tuple[str, str]
) -> None:
    data = bytes(8 << 20)

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.objects_served() as come:
                async with parts.chief, parts.other:
                    _, writer = await parts.connect()
                    theirs = await come.get()
                    writer.write(data)
                    writer.close()
                assert await theirs[0].read(-1) == data
                theirs[1].close()

    run(scenario)


def test_connection_is_kept_until_rank_0_listens(folder: Path, pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.chief, parts.other:
                _, writer = await parts.connect()
                writer.write(b"early")
                await asyncio.sleep(0.05)
                async with parts.objects_served() as come:
                    theirs = await come.get()
                assert await theirs[0].readexactly(5) == b"early"

                def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    writer.write(b"the store")
                    writer.close()

                store = await asyncio.start_server(answer, "127.0.0.1", 0)
                port = store.sockets[0].getsockname()[1]
                port_file(parts.stores["a"]).write_text(str(port))
                own_port = int(port_file(parts.stores["b"]).read_text())
                of_store, to_store = await asyncio.open_connection("127.0.0.1", own_port)
                assert await of_store.readexactly(9) == b"the store"
                for each in (writer, theirs[1], to_store):
                    each.close()
                store.close()

    run(scenario)


def test_ranks_start_when_all_parts_are_prepared(folder: Path, pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            three = {"agents": ["a", "b", "c"], "addresses": ["127.0.0.1"] * 3}
            link = link_to(listener, pair, **three, ports=[listener.port, 0, 0])
            order: list[str] = []

            async def take_part(name: str, after_s: float) -> None:
                opened_part = open_part(
                    ID,
                    link,
                    agents={name},
                    store=folder / name,
                    listener=listener if name == "a" else None,
                )
                async with opened_part as part:
                    await asyncio.sleep(after_s)
                    order.append(f"{name} is prepared")
                    await part.gather()
                    order.append(f"{name} starts")
                    await asyncio.sleep(0.1)

            await asyncio.gather(take_part("c", 0), take_part("a", 0.05), take_part("b", 0.1))
            assert order[:3] == ["c is prepared", "a is prepared", "b is prepared"]
            assert sorted(order[3:]) == ["a starts", "b starts", "c starts"]

    run(scenario)


def test_part_waits_for_an_agent_that_has_not_got_its_order_yet(
    folder: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialing, "_BEGUN_S", 5.0)

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.other as part:
                waiting = asyncio.create_task(part.gather())
                await asyncio.sleep(0.1)
                async with parts.chief as here:
                    await asyncio.gather(waiting, here.gather())

    run(scenario)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"secret": "00" * 32}, StartFailed, r"has not begun to start its part of the gang"),
        (
            {"ports": [1, 0]},
            Unreached,
            r"agent a from that of agent b: .* 127.0.0.1 port 1 within",
        ),
        ({"certificate": "other"}, LaunchError, r"has another certificate than agent a should"),
    ],
)
def test_part_that_cannot_join_ends_with_the_reason(
    folder: Path,
    pair: tuple[str, str],
    tmp_path: Path,
    changes: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    if "certificate" in changes:
        changes = {"certificate": certificate(tmp_path / "other")[0]}

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair, **changes)
            async with parts.chief, parts.other as part:
                with pytest.raises(error, match=message):
                    await part.gather()

    run(scenario)


def test_part_whose_gang_ended_at_the_chief_fails(folder: Path, pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            link = link_to(listener, pair)
            others = {"b", "c"}
            with listener.accepting(ID, link, store=folder / "a", waits_for=others) as gang:
                parts = Parts(folder, listener, pair)
                async with parts.other as part:
                    waiting = asyncio.create_task(part.gather())
                    while not gang.connections:
                        await asyncio.sleep(0.01)
                    for task in gang.connections:
                        task.cancel()
                    with pytest.raises(StartFailed, match="has ended its part"):
                        await waiting

    run(scenario)


def requests(**changes: Any) -> bytes:
    request = {"gang": ID, "want": "objects", "secret": SECRET, "agents": []} | changes
    return json.dumps(request).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "is_logged"),
    [
        (requests(secret="0" * 64), True),
        (requests(secret="é"), True),
        (requests(gang="2.2.2"), False),
        (requests(want="everything"), False),
        (b"GET / HTTP/1.1\r\n", False),
        (b"[" * 100_000 + b"\n", False),
        (b"x" * 1_000_000, False),
        (b"\xff\xfe\n", False),
        (b"", False),
    ],
)
def test_what_does_not_show_the_secret_gets_no_answer(
    folder: Path,
    pair: tuple[str, str],
    line: bytes,
    is_logged: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.chief, parts.objects_served() as come:
                context = ssl.create_default_context(cadata=pair[0])
                context.check_hostname = False
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", listener.port, ssl=context
                )
                writer.write(line)
                if not line:
                    writer.close()
                with suppress(ConnectionError):  # it was closed with bytes unread
                    assert await reader.read() == b""
                writer.close()
                assert come.empty()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert SECRET not in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * is_logged


def test_strangers_that_send_nothing_do_not_hold_up_agents_of_the_gang(
    folder: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "_MOST_REQUESTS", 2)

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.chief:
                context = ssl.create_default_context(cadata=pair[0])
                context.check_hostname = False
                silent = [
                    await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
                    for _ in range(3)
                ]
                with suppress(ConnectionError):
                    assert await silent[0][0].read() == b""  # the oldest of too many
                assert not silent[2][0].at_eof()
                reader, writer = silent[2]  # the newest is answered
                writer.write(requests(want="measure", agents=["b"]))
                assert await reader.readline() == b"ok\n"
                for _, writer in silent:
                    writer.close()

    run(scenario)


@pytest.mark.parametrize("has_memory_files", [True, False])
def test_listener_takes_the_certificate_of_the_newest_gang(
    folder: Path,
    pair: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    has_memory_files: bool,
) -> None:
    if not has_memory_files:  # as on macOS
        monkeypatch.delattr(os, "memfd_create", raising=False)
    newer = certificate(tmp_path / "newer")

    async def scenario() -> None:
        async with opened() as listener:
            for each in (pair, newer):
                parts = Parts(folder, listener, each)
                async with parts.chief as here, parts.other as part:
                    await asyncio.gather(here.gather(), part.gather())

    run(scenario)


def test_a_gang_that_starts_keeps_its_certificate_when_a_newer_gang_has_another(
    folder: Path, pair: tuple[str, str], tmp_path: Path
) -> None:
    newer = certificate(tmp_path / "newer")

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.chief as here:
                with listener.accepting("2.1.1", link_to(listener, newer)):
                    async with parts.other as part:
                        await asyncio.gather(here.gather(), part.gather())
                assert len(listener._contexts) == 1
            assert listener._contexts == {}

    run(scenario)


def test_port_that_is_in_use_is_named() -> None:
    async def scenario() -> None:
        async with opened() as listener:
            with pytest.raises(DetError, match=f"port {listener.port}, for other agents, cannot"):
                await GangListener().open(listener.port)

    run(scenario)


def three(listener: GangListener, pair: tuple[str, str], **changes: Any) -> GangLink:
    """Return a link of agents a, b and c, of which `a` and `b` accept connections."""
    names = ["a", "b", "c"]
    ports = [listener.port, listener.port, 0]
    addresses = ["127.0.0.1"] * 3
    return link_to(listener, pair, agents=names, addresses=addresses, ports=ports, **changes)


def test_ports_that_another_agent_opens_are_reached(pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            link = three(listener, pair)
            with listener.accepting(ID, link):
                await peers.check_ports(Dialer(gang=ID, link=link, here=["c"]))

    run(scenario)


def test_port_that_a_firewall_closes_is_named_with_both_computers(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drop(address: str, port: int) -> BaseException:
        return TimeoutError()

    monkeypatch.setattr(peers, "_connect", drop)

    async def scenario() -> None:
        async with opened() as listener:
            link = three(listener, pair)
            with listener.accepting(ID, link), pytest.raises(Unreached) as raised:
                await peers.check_ports(Dialer(gang=ID, link=link, here=["c"]))
            cut = raised.value.cut
            assert cut.pair in ({"a", "c"}, {"b", "c"})
            assert "no answer at 127.0.0.1 port" in cut.why
            assert "need all ports between the computers" in cut.sentence

    run(scenario)


def test_speed_and_latency_are_measured(pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            link = three(listener, pair)
            with listener.accepting(ID, link):
                dialer = Dialer(gang=ID, link=link, here=["c"])
                found = await peers.measure(dialer, 1, 4 * peers.CHUNK_BYTES)
                assert 0 < found.latency_s < 5
                assert found.bytes_per_s is not None
                assert found.bytes_per_s > 0
                assert (await peers.measure(dialer, 1, 0)).bytes_per_s is None

    run(scenario)


def test_computer_that_is_cut_off_is_found_and_one_that_refuses_is_not(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_WATCH_S", 0.01)
    monkeypatch.setattr(peers, "_RETRY_S", 0.01)
    monkeypatch.setattr(peers, "CUT_S", 0.1)
    is_cut = False

    async def connect(address: str, port: int) -> BaseException | None:
        if port == 1:
            return ConnectionRefusedError()  # the agent there has ended
        return TimeoutError() if is_cut else None

    monkeypatch.setattr(peers, "_connect", connect)

    async def scenario() -> None:
        nonlocal is_cut
        async with opened() as listener:
            link = three(listener, pair)
            link.ports[0] = 1
            watching = asyncio.create_task(peers.watch(Dialer(gang=ID, link=link, here=["c"])))
            await asyncio.sleep(0.3)
            assert not watching.done()
            is_cut = True
            cut = await watching
            assert (cut.from_agent, cut.to_agent) == ("c", "b")
            assert cut.why == f"no answer at 127.0.0.1 port {link.ports[1]} for 0.1 s"

    run(scenario)


def test_connections_that_ranks_leave_open_are_closed_soon_after_their_parts(
    folder: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.01)

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)
            async with parts.objects_served() as come:
                async with parts.chief as here, parts.other:
                    reader, writer = await parts.connect()
                    theirs = await come.get()
                    gang = here.join_others.__self__  # type: ignore[attr-defined]
                    assert len(gang.connections) == 1
                assert await reader.read() == b""  # which the rank has not closed
                assert await theirs[0].read() == b""
                # Python 3.13 removes the socket's file as well.
                with pytest.raises((ConnectionError, FileNotFoundError)):
                    await parts.connect()
                while gang.connections:
                    await asyncio.sleep(0.001)
                for each in (writer, theirs[1]):
                    each.close()

    run(scenario)


def test_a_rank_whose_chief_cannot_be_reached_has_its_connection_closed(
    folder: Path, pair: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair, ports=[1, 0])
            async with parts.other as part:
                reader, writer = await parts.connect()
                assert await reader.read() == b""
                writer.close()
                tunnel = part.join_others.__self__  # type: ignore[attr-defined]
                while tunnel._tasks:
                    await asyncio.sleep(0.001)

    run(scenario)
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.getMessage().startswith("allocation=1.1.1: ")


def test_a_rank_that_waits_for_its_chief_waits_no_longer_than_its_part_lasts(
    folder: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_LINGER_S", 0.01)
    monkeypatch.setattr(dialing, "_BEGUN_S", 3600.0)

    async def scenario() -> None:
        async with opened() as listener:
            parts = Parts(folder, listener, pair)  # the chief's part has not begun
            async with parts.other:
                reader, writer = await parts.connect()
                await asyncio.sleep(0.01)
                assert not reader.at_eof()
            assert await reader.read() == b""
            writer.close()

    run(scenario)


def test_agents_that_do_not_prepare_their_parts_in_time_are_named(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "PREPARED_S", 0.01)

    async def scenario() -> None:
        async with opened() as listener:
            link = link_to(listener, pair)
            with listener.accepting(ID, link, waits_for={"b", "d", "c"}) as gang:
                gang.note_prepared(["b", "x"])
                with pytest.raises(StartFailed, match=r"^c and d did not prepare the ranks there"):
                    await gang.gather()

    run(scenario)


async def ask(listener: GangListener, pair: tuple[str, str], **changes: Any) -> Connection:
    """Connect as another agent does, and send a request."""
    context = ssl.create_default_context(cadata=pair[0])
    context.check_hostname = False
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, ssl=context)
    writer.write(requests(**changes))
    return reader, writer


def test_an_agent_that_has_shown_the_secret_is_not_cut_off_for_strangers(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_module, "_MOST_REQUESTS", 2)

    async def scenario() -> None:
        async with opened() as listener:
            with listener.accepting(ID, link_to(listener, pair)):
                reader, writer = await ask(listener, pair, want="measure")
                assert await reader.readline() == b"ok\n"
                for _ in range(3):
                    stranger, theirs = await ask(listener, pair, secret="no")
                    assert await stranger.read() == b""
                    theirs.close()
                silent = [
                    await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(3)
                ]
                writer.write(b"0")
                assert await reader.read(1) == b"\0"
                for _, each in (*silent, (reader, writer)):
                    each.close()
            port = listener.port
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    wrong = [each for each in caplog.records if "has a wrong secret" in each.getMessage()]
    assert len(wrong) == 1  # once, however often it is tried


def test_rank_0_is_waited_for_at_growing_pauses(
    folder: Path, pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    class Over(Exception):
        pass

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            raise Over

    async def scenario() -> None:
        listener = GangListener()
        with listener.accepting(ID, link_to(listener, pair), store=folder / "a") as gang:
            monkeypatch.setattr(asyncio, "sleep", sleep)
            port_file(folder / "a").write_text("")  # it is being written
            with pytest.raises(Over):
                await gang.connect("store")

    asyncio.run(scenario())
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.032, 0.05, 0.05]


def test_rank_0_is_on_no_agent_that_others_cannot_reach(
    folder: Path, pair: tuple[str, str]
) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            chief = open_part(
                ID, link_to(listener, pair), agents={"a"}, store=folder / "a", listener=None
            )
            with pytest.raises(LaunchError, match="rank 0 is on a, which accepts no other agents"):
                await chief.__aenter__()

    run(scenario)


def test_agents_speak_no_older_version_of_tls(pair: tuple[str, str]) -> None:
    async def scenario() -> None:
        async with opened() as listener:
            with listener.accepting(ID, link_to(listener, pair)):
                context = ssl.create_default_context(cadata=pair[0])
                context.check_hostname = False
                for name in (None, server_name(pair[0])):  # its own certificate, or the newest
                    context.maximum_version = ssl.TLSVersion.TLSv1_2
                    with pytest.raises((ssl.SSLError, ConnectionResetError)):
                        await asyncio.open_connection(
                            "127.0.0.1", listener.port, ssl=context, server_hostname=name
                        )

    run(scenario)
