"""A tab's socket: frames pass both ways, slow pages cost nothing, feeders come back."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from det_jupyter.front.jupyter_server import relay
from det_jupyter.front.jupyter_server.monitoring import SCHEMA_ID
from tests.integration.server.conftest import STAND_IN
from tests.integration.server.support import Client, do, heard
from tests.waiting import until

FLOOD_BYTES = 200_000_000


async def test_text_and_binary_frames_pass_both_ways(client: Client) -> None:
    socket = await client.socket()
    assert (await heard(socket))["op"] == "hello"
    await do(socket, "echo", text="für dich ✓", id=3)
    assert (await heard(socket))["text"] == "für dich ✓"
    frame = bytes(range(256)) * 1000
    await socket.write_message(frame, binary=True)
    assert await heard(socket) == frame
    socket.close()


async def test_the_feeder_is_started_at_the_first_tab_and_shared(
    client: Client, extension: Any
) -> None:
    assert extension._feeder.state == "off"
    first, second = await asyncio.gather(client.socket(), client.socket())
    await asyncio.gather(heard(first), heard(second))
    children = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    assert sum("feeder_stand_in" in line for line in children) == 1
    assert (await client.ask("info")).data["feeder"]["state"] == "running"
    first.close()
    await do(second, "echo", text="still there")
    assert (await heard(second))["text"] == "still there"
    second.close()
    await until(lambda: not extension._tabs, "both are gone")


@pytest.mark.parametrize(("write", "flag"), [(True, "1"), (False, "0")])
async def test_the_feeder_learns_whether_the_user_may_change_anything(
    client: Client, allow: Callable[..., None], write: bool, flag: str
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


async def test_what_a_user_may_not_see_does_not_reach_the_feeder(
    client: Client, allow: Callable[..., None]
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


async def test_a_page_that_does_not_read_is_waited_for(client: Client, extension: Any) -> None:
    """What the feeder can send ahead is what lies in the buffers of the system."""
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
async def test_a_frame_that_is_too_large_closes_the_pages_socket_only(client: Client) -> None:
    socket, other = await client.socket(), await client.socket()
    await heard(socket)
    await heard(other)
    await socket.write_message("x" * 10_001)
    assert await heard(socket) is None
    assert socket.close_code in (1009, None)  # the rest of the frame may cut the connection
    await do(other, "echo", id=1)
    assert (await heard(other))["id"] == 1
    other.close()


@pytest.mark.parametrize("det_options", [{"most_feeder_frame_bytes": 10_000}])
async def test_a_frame_of_the_feeder_that_is_too_large_ends_the_socket(client: Client) -> None:
    socket = await client.socket()
    await heard(socket)
    await do(socket, "send", bytes=10_001)
    assert await heard(socket) is None
    assert socket.close_code == 1012


async def test_a_feeder_that_was_killed_is_started_again(client: Client, extension: Any) -> None:
    socket = await client.socket()
    await heard(socket)
    os.kill(extension._feeder._process.pid, signal.SIGKILL)
    assert await heard(socket) is None
    assert socket.close_code == 1012
    await until(lambda: extension._feeder.state == "ended", "it is noticed")
    assert "was killed by SIGKILL" in (await client.ask("info")).data["feeder"]["problem"]
    again = await client.socket()
    assert (await heard(again))["op"] == "hello"
    assert extension._feeder.state == "running"
    again.close()


@pytest.mark.parametrize("det_options", [{"feeder_command": [*STAND_IN, "refuse"]}])
async def test_a_feeder_that_does_not_start_is_tried_less_and_less(
    client: Client, extension: Any
) -> None:
    for _ in range(2):
        socket = await client.socket()
        assert await heard(socket) is None
        assert socket.close_code == 1013
    problem = (await client.ask("info")).data["feeder"]["problem"]
    assert "no place for a feeder here" in problem
    extension._feeder._num_failures = 6  # as after a while
    socket = await client.socket()
    assert await heard(socket) is None
    socket = await client.socket()  # it is refused, and does not wait for the next start
    assert await heard(socket) is None
    assert "started again in" in (socket.close_reason or "")


@pytest.mark.parametrize("det_options", [{"feeder_command": ["/nowhere/at/all"]}])
async def test_a_feeder_whose_command_is_absent_is_refused_with_a_reason(client: Client) -> None:
    socket = await client.socket()
    assert await heard(socket) is None
    assert (socket.close_code, "cannot be started" in (socket.close_reason or "")) == (1013, True)


async def test_a_page_that_leaves_while_the_feeder_starts_leaves_nothing(
    client: Client, extension: Any
) -> None:
    socket = await client.socket()
    socket.close()
    await until(lambda: extension._feeder.state == "running", "it runs")
    await until(lambda: not extension._tabs, "the tab is gone")


@pytest.mark.parametrize("det_options", [{"feeder_idle_s": 0.4}])
async def test_a_feeder_without_pages_ends_unless_an_experiment_runs(
    client: Client, extension: Any
) -> None:
    socket = await client.socket()
    await heard(socket)
    await asyncio.sleep(0.6)
    assert extension._feeder.state == "running"
    await do(socket, "publish", document="experiments", data=listed(row(1, "running")))
    await until(lambda: extension._monitor.is_busy, "the follower knows")
    socket.close()
    await asyncio.sleep(0.6)
    assert extension._feeder.state == "running"
    socket = await client.socket()
    await heard(socket)
    completed = listed(row(1, "completed", ended_at=1.0))
    await do(socket, "publish", document="experiments", data=completed)
    socket.close()
    await until(lambda: extension._feeder.state == "off", "it has ended")


async def test_what_the_feeder_prints_goes_to_the_log_but_not_all_of_it(
    client: Client, extension: Any, caplog: pytest.LogCaptureFixture
) -> None:
    socket = await client.socket()
    await heard(socket)
    await do(socket, "say", text="a word" + "!" * 100_000)
    await do(socket, "say", text="\n".join(f"line {i}" for i in range(1000)))
    await until(lambda: extension._feeder._last_line == "line 999", "all is read")
    said = [record.getMessage() for record in caplog.records if "feeder:" in record.getMessage()]
    assert 10 < len(said) < 200  # 60 a minute, and another minute may begin
    assert max(map(len, said)) < 600
    socket.close()


async def test_state_changes_are_events_and_gauges(client: Client, extension: Any) -> None:
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


async def test_a_feeder_that_does_not_answer_is_replaced(
    client: Client, extension: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = await client.socket()
    await heard(socket)
    (stuck,) = [child for child in psutil.Process().children() if "feeder_stand_in" in
                " ".join(child.cmdline())]  # fmt: skip
    monkeypatch.setattr(relay, "_CONNECT_S", 0.5)
    stuck.suspend()
    other = await client.socket()
    assert await heard(other) is None
    assert (other.close_code, other.close_reason) == (
        1013,
        "the feeder does not answer; it is ended, and another is started",
    )
    monkeypatch.undo()
    again = await client.socket()
    assert (await heard(again))["op"] == "hello"
    assert not stuck.is_running()
    for each in (socket, other, again):
        each.close()


async def test_tabs_that_close_while_much_is_on_its_way_leave_nothing(
    client: Client, extension: Any
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
