"""A tab's socket: frames pass both ways, slow pages cost nothing, readers come back."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from traitlets.config import Config

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.contract.messages.pages import ABSENT, PAGE_PROTOCOL
from det_jupyter.front.jupyter_server import monitoring, reader_sockets
from det_jupyter.front.jupyter_server.monitoring import SCHEMA_ID
from tests.integration.server.master_stand_in import announce, frozen_process
from tests.integration.server.reader_stand_in import ReaderStandIn, reader_stand_in
from tests.integration.server.support import Client, do, heard
from tests.waiting import until

FLOOD_BYTES = 200_000_000


@pytest.fixture
def reader(jp_server_config: Config) -> Iterator[ReaderStandIn]:
    """A reader of a master that is announced."""
    with reader_stand_in() as reader:
        yield reader


def announce_again(info: MasterInfo, **changes: Any) -> None:
    """Change the file that says where the master is."""
    paths.write_private(paths.master_file(), info.model_copy(update=changes).model_dump_json())


async def test_text_and_binary_frames_pass_both_ways(
    client: Client, reader: ReaderStandIn
) -> None:
    socket = await client.socket()
    assert (await heard(socket))["op"] == "hello"
    await do(socket, "echo", text="für dich ✓", id=3)
    assert (await heard(socket))["text"] == "für dich ✓"
    frame = bytes(range(256)) * 1000
    await socket.write_message(frame, binary=True)
    assert await heard(socket) == frame
    socket.close()


async def test_tabs_have_sockets_of_their_own_to_one_reader(
    client: Client, extension: Any, reader: ReaderStandIn
) -> None:
    first, second = await asyncio.gather(client.socket(), client.socket())
    await asyncio.gather(heard(first), heard(second))
    await until(lambda: extension._monitor.is_following, "the server follows, too")
    await do(second, "sockets")
    assert await heard(second) == {"sockets": 3}
    first.close()
    await do(second, "echo", text="still there")
    assert (await heard(second))["text"] == "still there"
    second.close()
    await until(lambda: not extension._tabs, "both are gone")


@pytest.mark.parametrize(("write", "flag"), [(True, "1"), (False, "0")])
async def test_the_reader_learns_whether_the_user_may_change_anything(
    client: Client, reader: ReaderStandIn, allow: Callable[..., None], write: bool, flag: str
) -> None:
    read = ("read", "det_jupyter:experiments")
    allow(read, *([("write", "det_jupyter:experiments")] if write else []))
    socket = await client.socket()
    await heard(socket)
    await do(socket, "headers")
    headers = await heard(socket)
    assert headers["X-Det-May-Write"] == flag
    assert client.app.identity_provider.token not in json.dumps(headers)
    socket.close()


async def test_what_a_user_may_not_see_does_not_reach_the_reader(
    client: Client, reader: ReaderStandIn, allow: Callable[..., None]
) -> None:
    allow(("read", "det_jupyter:experiments"))
    socket = await client.socket()
    await heard(socket)
    await socket.write_message(json.dumps({"op": "follow", "id": 4, "document": "cluster"}))
    refused = await heard(socket)
    assert (refused["op"], refused["id"]) == ("error", 4)
    assert "det_jupyter:cluster" in refused["error"]
    await socket.write_message(
        json.dumps({"op": "ask", "id": 5, "experiment_id": 1, "question": {"type": "logs"}})
    )
    refused = await heard(socket)
    assert (refused["op"], refused["id"]) == ("answer", 5)
    await do(socket, "echo", id=6)
    assert (await heard(socket))["id"] == 6
    socket.close()


async def test_a_page_that_does_not_read_is_waited_for(
    client: Client, reader: ReaderStandIn
) -> None:
    """What the reader can send ahead is what lies in the buffers of the system."""
    slow, other = await client.socket(), await client.socket()
    await heard(other)
    memory = psutil.Process().memory_info().rss
    await do(slow, "flood", bytes=FLOOD_BYTES)
    sent = [-1, 0]
    while sent[-1] != sent[-2]:  # until nothing moves
        await asyncio.sleep(0.3)
        await do(other, "sent")
        sent.append((await heard(other))["sent"])
    assert 0 < sent[-1] < 50_000_000
    assert psutil.Process().memory_info().rss - memory < 60_000_000
    assert (await heard(slow))["op"] == "hello"
    assert len(await slow.read_message()) == 65536  # type: ignore[arg-type]
    slow.close()
    other.close()


@pytest.mark.parametrize("det_options", [{"most_page_frame_bytes": 10_000}])
async def test_a_frame_that_is_too_large_closes_the_pages_socket_only(
    client: Client, reader: ReaderStandIn
) -> None:
    socket, other = await client.socket(), await client.socket()
    await heard(socket)
    await heard(other)
    await socket.write_message("x" * 10_001)
    assert await heard(socket) is None
    assert socket.close_code in (1009, None)  # the rest of the frame may cut the connection
    await do(other, "echo", id=1)
    assert (await heard(other))["id"] == 1
    other.close()


@pytest.mark.parametrize("det_options", [{"most_reader_frame_bytes": 10_000}])
async def test_a_frame_of_the_reader_that_is_too_large_ends_the_socket(
    client: Client, reader: ReaderStandIn
) -> None:
    socket = await client.socket()
    await heard(socket)
    await do(socket, "send", bytes=10_001)
    assert await heard(socket) is None
    assert socket.close_code == 1012


async def test_a_reader_that_was_killed_ends_the_socket_and_the_next_one_serves_again(
    client: Client, reader: ReaderStandIn
) -> None:
    socket = await client.socket()
    await heard(socket)
    reader.kill()
    assert await heard(socket) is None
    assert (socket.close_code, socket.close_reason) == (1012, "the reader has ended")
    reader.start()
    again = await client.socket()
    assert (await heard(again))["instance"] == "stand-in"
    again.close()


async def test_what_a_page_says_while_its_reader_starts_is_passed_on_then(
    client: Client, reader: ReaderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_sockets, "_ANSWER_S", 0.1)
    reader.kill()
    socket = await client.socket()
    await do(socket, "echo", id=1)
    await do(socket, "echo", id=2)
    await asyncio.sleep(0.5)
    assert reader.num_ended == 0, "it has time to start"
    reader.start()
    assert (await heard(socket))["op"] == "hello"
    assert [(await heard(socket))["id"] for _ in range(2)] == [1, 2]
    socket.close()


async def test_without_a_master_the_server_greets_and_the_reader_does_when_there_is_one(
    client: Client, extension: Any
) -> None:
    socket = await client.socket()
    stopped = {"state": "stopped", "version": "", "problem": "", "command": ""}
    assert await heard(socket) == {
        "op": "hello", "instance": "", "version": __version__, "protocol": PAGE_PROTOCOL,
        "master": stopped,
    }  # fmt: skip
    for frame in (
        {"op": "follow", "id": 1, "document": "cluster", "args": {}},
        {"op": "ask", "id": 2, "experiment_id": 3, "question": {"type": "config"}},
        {"op": "ping"},
    ):
        await socket.write_message(json.dumps(frame))
    await socket.write_message("no JSON")
    await socket.write_message("[]")
    assert await heard(socket) == {"op": "answer", "id": 2, "error": ABSENT}
    assert await heard(socket) == {"op": "pong"}
    with reader_stand_in(is_started=False) as reader:
        await until(lambda: extension._watch.info, "the server connects, and waits")
        await socket.write_message('{"op": "ping"}')
        assert await heard(socket) == {"op": "pong"}
        await do(socket, "echo", id=4)
        reader.start()
        assert (await heard(socket))["instance"] == "stand-in"
        assert (await heard(socket))["id"] == 4
        paths.master_file().unlink()
        assert await heard(socket) == {"op": "master", **stopped}
        await do(socket, "echo", id=5)
        assert (await heard(socket))["id"] == 5
    assert await heard(socket) is None
    assert socket.close_code == 1012


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_page_is_told_what_becomes_of_the_master_while_its_reader_serves_on(
    client: Client, reader: ReaderStandIn
) -> None:
    socket, other = await client.socket(), await client.socket()
    await heard(socket)
    await heard(other)
    announce_again(reader.info, protocol=PROTOCOL + 1)
    for each in (socket, other):
        told = await heard(each)
        assert (told["op"], told["state"]) == ("master", "mismatch")
        assert "9.9.9" in told["problem"]
        assert told["command"] in told["problem"]
    await do(socket, "echo", id=1)
    assert (await heard(socket))["id"] == 1
    with frozen_process() as process:
        announce_again(reader.info, pid=process.pid, birth=birth_of(process.pid))
        told = await heard(socket)
        assert (told["state"], told["command"]) == ("silent", f"kill -CONT {process.pid}")
        late = await client.socket()
        hello = await heard(late)
        assert (hello["instance"], hello["master"]["state"]) == ("", "silent")
        announce_again(reader.info)
        assert (await heard(socket))["state"] == "running"
        assert (await heard(late))["instance"] == "stand-in"
    for each in (socket, other, late):
        each.close()


async def test_a_reader_that_does_not_answer_is_ended_by_its_master(
    client: Client, reader: ReaderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await client.socket()
    await heard(socket)
    assert reader.process is not None
    stuck = psutil.Process(reader.process.pid)
    stuck.suspend()
    with monkeypatch.context() as limits:
        limits.setattr(reader_sockets, "_ANSWER_S", 0.5)
        other = await client.socket()
        assert await heard(other) is None
    assert (other.close_code, other.close_reason) == (
        1013,
        "the reader does not answer; it is ended, and another is started",
    )
    assert await heard(socket) is None
    again = await client.socket()
    assert (await heard(again))["instance"] == "stand-in"
    assert (reader.num_ended, stuck.is_running()) == (1, False)
    again.close()


async def test_one_that_does_not_start_is_ended_once_whoever_waits(
    client: Client, reader: ReaderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.kill()
    monkeypatch.setattr(reader, "start", lambda: None)
    monkeypatch.setattr(reader_sockets, "_START_S", 0.5)
    sockets = [await client.socket() for _ in range(3)]
    assert [await heard(socket) for socket in sockets] == [None] * 3
    assert {socket.close_code for socket in sockets} == {1013}
    assert reader.num_ended == 1


async def test_a_reader_that_cannot_be_reached_is_refused_with_a_reason(client: Client) -> None:
    announce(1)
    socket = await client.socket()
    assert await heard(socket) is None
    assert socket.close_code == 1013
    assert (socket.close_reason or "").startswith("the reader cannot be reached (")


async def test_a_page_that_leaves_while_its_reader_starts_leaves_nothing(
    client: Client, extension: Any, reader: ReaderStandIn
) -> None:
    reader.kill()
    socket = await client.socket()
    await until(lambda: extension._watch.info, "it connects")
    socket.close()
    await until(lambda: not extension._tabs, "the tab is gone")
    reader.start()
    other = await client.socket()
    await heard(other)
    await until(lambda: extension._monitor.is_following, "the server follows, too")
    said = None
    while said != {"sockets": 2}:
        await do(other, "sockets")
        said = await heard(other)
    other.close()


async def test_the_server_follows_while_a_page_is_open_or_an_experiment_runs(
    client: Client, extension: Any, reader: ReaderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_LINGER_S", 0.3)
    monkeypatch.setattr(monitoring, "_CHECK_S", 0.05)
    monitor = extension._monitor
    socket = await client.socket()
    await heard(socket)
    await until(lambda: monitor.is_following, "the server follows, too")
    await asyncio.sleep(0.6)
    assert monitor.is_following
    await do(socket, "publish", document="experiments", data=listed(row(1, "running")))
    await until(lambda: monitor.is_busy, "the follower knows")
    socket.close()
    await asyncio.sleep(0.6)
    assert monitor.is_following
    socket = await client.socket()
    await heard(socket)
    completed = listed(row(1, "completed", ended_at=1.0))
    await do(socket, "publish", document="experiments", data=completed)
    socket.close()
    await until(lambda: not monitor.is_following, "it has ended")
    again = await client.socket()
    await heard(again)
    await until(lambda: monitor.is_following, "it follows again")
    again.close()


async def test_the_next_reader_is_followed_again(
    client: Client, extension: Any, reader: ReaderStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitoring, "_AGAIN_S", 0.05)
    monitor = extension._monitor
    socket = await client.socket()
    await heard(socket)
    await until(lambda: monitor.is_following, "the server follows, too")
    reader.kill()
    await until(lambda: not monitor.is_following, "it is noticed")
    reader.start()
    await until(lambda: monitor.is_following, "it follows again")
    socket.close()


async def test_state_changes_are_events_and_gauges(
    client: Client, extension: Any, reader: ReaderStandIn
) -> None:
    emitted: list[dict[str, Any]] = []

    async def listen(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        emitted.append(data)

    client.app.event_logger.add_listener(schema_id=SCHEMA_ID, listener=listen)
    socket = await client.socket()
    await heard(socket)

    async def publish(document: str, data: Any) -> None:
        await do(socket, "publish", document=document, data=data)
        assert await heard(socket) == {"published": True}

    await until(lambda: extension._monitor.is_following, "the server follows, too")
    await publish("experiments", listed(row(1, "running"), row(2, "queued")))
    await publish("experiments", listed(row(1, "running"), row(2, "running")))
    await publish(
        "experiments",
        listed(row(1, "running"), row(2, "completed", ended_at=1.0), row(3, "queued")),
    )
    await publish("cluster", {"num_slots": 8, "num_slots_used": 6})
    await until(lambda: len(emitted) >= 3, "they are told")
    assert [(each["id"], each["was"], each["status"]) for each in emitted] == [
        (2, "queued", "running"),
        (2, "running", "completed"),
        (3, "", "queued"),
    ]
    slots = {"0": {"utilization": 93.5}, "1": {"utilization": None}}
    await publish("usage", {"agents": {"here": {"slots": slots}}})
    gpu = 'det_jupyter_gpu_utilization_percent{agent="here",slot="0"}'
    while gpu not in (said := await metrics(client)):
        await asyncio.sleep(0.05)
    assert said[gpu] == 93.5
    assert 'det_jupyter_gpu_utilization_percent{agent="here",slot="1"}' not in said
    assert said['det_jupyter_experiments{status="running"}'] == 1
    assert said['det_jupyter_experiments{status="completed"}'] == 1
    assert (said["det_jupyter_slots"], said["det_jupyter_slots_used"]) == (8, 6)
    await publish("experiments", listed(row(2, "completed", ended_at=1.0), row(3, "queued")))
    await until(lambda: 1 not in (extension._monitor._statuses or {}), "it is gone")
    assert 'det_jupyter_experiments{status="running"}' not in await metrics(client)
    socket.close()


async def metrics(client: Client) -> dict[str, float]:
    """Return our gauges, as Prometheus reads them."""
    response = await client._http.fetch(f"{client.base_url}metrics", headers=client.token)
    lines = [line for line in response.body.decode().splitlines() if line.startswith("det_")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def row(number: int, status: str, ended_at: float | None = None) -> dict[str, Any]:
    return {"id": number, "name": f"exp {number}", "status": status, "ended_at": ended_at}


def listed(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"rows": {str(row["id"]): row for row in rows}}


async def test_tabs_that_close_while_much_is_on_its_way_leave_nothing(
    client: Client, extension: Any, reader: ReaderStandIn
) -> None:
    def lines() -> int:
        return len(psutil.Process().net_connections())

    other = await client.socket()
    await heard(other)
    await until(lambda: extension._monitor.is_following, "the follower follows")
    tasks, num_lines = len(asyncio.all_tasks()), lines()
    for _ in range(5):
        socket = await client.socket()
        await do(socket, "flood", bytes=10_000_000)
        await heard(socket)
        socket.close()
        while await socket.read_message() is not None:
            pass
    await until(lambda: len(asyncio.all_tasks()) <= tasks, "their tasks have ended")
    await until(lambda: lines() <= num_lines, "their connections are closed")
    other.close()


@pytest.mark.parametrize("state", ["none", "starts", "serves", "frozen"])
async def test_a_server_that_stops_closes_all_sockets(
    client: Client,
    extension: Any,
    reader: ReaderStandIn,
    state: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if state == "none":
        paths.master_file().unlink()
    elif state == "starts":
        reader.kill()
    socket = await client.socket()
    if state == "starts":
        await until(lambda: extension._watch.info, "it connects")
    else:
        await heard(socket)
    if state == "frozen":
        await until(lambda: extension._monitor.is_following, "the server follows, too")
        assert reader.process is not None
        psutil.Process(reader.process.pid).suspend()
    await extension.stop_extension()
    assert await heard(socket) is None
    assert socket.close_code == 1001
    assert not extension._tabs
    assert "not all of det_jupyter" not in caplog.text
