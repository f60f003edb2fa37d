"""Requests to the master, through the server: passed on whole, and answered whatever happens."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import PROTOCOL
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from tests.integration.server.master_stand_in import (
    announce,
    frozen_process,
    master_stand_in,
    reply,
)
from tests.integration.server.support import Client
from tests.problems import refusal, sentences_of
from tests.waiting import until

LONG_BYTES = 4_000_000


async def test_ranks_are_kernels_by_name_and_are_not_listed(
    jp_serverapp: Any, extension: Any
) -> None:
    specs = jp_serverapp.kernel_spec_manager
    assert specs.get_kernel_spec("det-trial-3-rank-1").display_name == "Trial 3, rank 1"
    assert not any(name.startswith("det-") for name in specs.find_kernel_specs())


async def test_a_request_reaches_the_master_with_its_token_and_without_jupyters(
    client: Client,
) -> None:
    token = client.app.identity_provider.token
    with master_stand_in() as master:
        answer = await client.ask(f"api/experiments?search=a%26b&token={token}", headers={})
        await client.ask("api/templates/my%20one", "PUT", body={"config": {"a": 1}})
    assert answer.data == {"fine": True}
    asked, put = master.asked
    assert asked.target == "/api/v1/experiments?search=a%26b"
    assert asked.headers["Authorization"] == "Bearer of-the-master"
    assert (put.method, put.target) == ("PUT", "/api/v1/templates/my%20one")
    assert json.loads(put.body) == {"config": {"a": 1}}
    assert all(token not in str(asked) for asked in master.asked)
    assert "of-the-master" not in str(answer.headers) + str(answer.body)


async def test_what_agents_ask_and_strange_paths_are_not_passed_on(client: Client) -> None:
    hidden = [
        ("POST", "agents/here/register"),
        ("POST", "agents/here/reports"),
        ("GET", "agents/here/commands"),
        ("GET", "feed"),
        ("POST", "experiments/../agents/here/register"),
        ("POST", "experiments/%2e%2e/agents/here/register"),
        ("GET", "experiments/..%2Fagents%2Fhere%2Fcommands"),
        ("GET", "experiments//found"),
        ("GET", ""),
        ("GET", "nothing/of/that"),
        ("DELETE", "experiments/3"),
    ]
    with master_stand_in() as master:
        for method, path in hidden:
            answer = await client.ask(f"api/{path}", method)
            assert answer.status == 404, path
            assert answer.data["error"] == "NotFound"
        assert master.asked == []


async def test_a_verb_that_we_do_not_have_is_refused_as_json(client: Client) -> None:
    answer = await client.ask("api/experiments", "PATCH", body={})
    assert answer.status == 405
    assert "PATCH" in answer.problem


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, refusal("ConfigError", "a: wrong 100%", "b: <b>wrong</b>")),
        (404, refusal("NotFound", "there is no experiment 7")),
        (503, refusal("MasterUnreachable", "the master is stopping")),
        (500, refusal("DetError", "a bug")),
    ],
)
async def test_refusals_of_the_master_come_back_as_they_are(
    client: Client, status: int, body: Any
) -> None:
    with master_stand_in() as master:
        master.answer = lambda request: reply(request, status, body)
        answer = await client.ask("api/experiments", "POST")
    assert (answer.status, answer.data) == (status, body)


async def test_a_long_answer_is_passed_on_part_by_part(client: Client) -> None:
    has_first = threading.Event()

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Type", "text/plain")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for part in (b"first", b"x" * LONG_BYTES, b"last"):
            request.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            request.wfile.flush()
            assert has_first.wait(600)
        request.wfile.write(b"0\r\n\r\n")

    came: list[bytes] = []

    def take(part: bytes) -> None:
        came.append(part)
        has_first.set()

    with master_stand_in() as master:
        master.answer = answer
        await client.ask("api/trials/1/logs", streaming_callback=take)
    assert came[0] == b"first"
    assert len(b"".join(came)) == LONG_BYTES + 9


async def test_an_answer_that_breaks_off_breaks_off(client: Client) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"half")
        request.close_connection = True

    with master_stand_in() as master:
        master.answer = answer
        with pytest.raises(Exception, match=r"closed|599"):
            await client.ask("api/experiments")
        master.answer = None
        assert (await client.ask("api/experiments")).status == 200


@pytest.mark.parametrize("det_options", [{"most_request_bytes": 1000}])
async def test_a_body_that_is_too_large_is_refused(client: Client) -> None:
    with master_stand_in() as master:
        assert (await client.ask("api/queue", "POST", body=b" " * 1000)).status == 200
        answer = await client.ask("api/queue", "POST", body=b" " * 1001)
        assert answer.status == 413
        assert "at most 1000 bytes" in answer.problem
        assert b"200 OK" not in await ask_in_chunks(client, num_bytes=1001)
        assert b"200 OK" in await ask_in_chunks(client, num_bytes=1000)
        assert len(master.asked) == 2


async def ask_in_chunks(client: Client, num_bytes: int) -> bytes:
    """Make a request that does not announce its size; return the first part of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", client.http_port)
    token = client.token["Authorization"]
    head = (
        f"POST {client.base_url}det-jupyter/api/queue HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    writer.write(head.encode() + b"1\r\n \r\n" * num_bytes + b"0\r\n\r\n")
    answer = await reader.read(100)
    writer.close()
    return answer


async def test_without_a_master_it_is_said_and_pages_can_start_one(client: Client) -> None:
    answer = await client.ask("api/experiments")
    assert answer.status == 503
    assert answer.data["error"] == "MasterUnreachable"
    assert "no det_jupyter master runs" in answer.problem
    info = (await client.ask("info")).data
    assert (info["version"], info["protocol"]) == (__version__, PAGE_PROTOCOL)
    assert info["master"]["state"] == "stopped"


async def test_a_master_of_another_version_is_named_with_the_command(client: Client) -> None:
    announce(1, protocol=PROTOCOL + 1)
    command = f"{sys.executable} -m det_jupyter.master restart"
    for path, method in [("api/experiments", "GET"), ("master/start", "POST")]:
        answer = await client.ask(path, method)
        assert (answer.status, answer.data["error"]) == (409, "ProtocolMismatch")
        assert command in answer.problem
    master = (await client.ask("info")).data["master"]
    assert (master["state"], master["command"]) == ("mismatch", command)
    assert "9.9.9" in master["problem"]


async def test_a_master_that_was_killed_or_moved_is_found_again(client: Client) -> None:
    with master_stand_in():
        assert (await client.ask("api/master")).status == 200
    answer = await client.ask("api/master")  # announced, and not there
    assert answer.status == 503
    assert "does not answer" in answer.problem
    with master_stand_in("of-another") as successor:
        assert (await client.ask("api/master")).status == 200
        assert successor.asked[0].headers["Authorization"] == "Bearer of-another"


async def test_a_master_that_leaves_passes_the_request_to_its_successor(client: Client) -> None:
    with master_stand_in() as first, master_stand_in("of-another") as second:
        paths.write_private(paths.master_file(), first.info.model_dump_json())

        def leave(request: BaseHTTPRequestHandler) -> None:
            paths.write_private(paths.master_file(), second.info.model_dump_json())
            reply(request, 503, refusal("MasterUnreachable", "stopping"))

        first.answer = leave
        answer = await client.ask("api/experiments", "POST", body={"a": 1})
    assert answer.status == 200
    assert json.loads(second.asked[0].body) == {"a": 1}


async def test_a_stranger_at_the_masters_port_does_not_log_the_user_out(client: Client) -> None:
    with master_stand_in() as master:
        master.answer = lambda request: reply(request, 401, {})
        answer = await client.ask("api/experiments")
    assert (answer.status, answer.data["error"]) == (503, "MasterUnreachable")


async def test_a_folder_that_cannot_be_used_is_said(client: Client, tmp_path: Path) -> None:
    (tmp_path / "det").write_text("no folder")
    for path, method in [("api/experiments", "GET"), ("master/start", "POST")]:
        answer = await client.ask(path, method)
        assert (answer.status, answer.data["error"]) == (503, "MasterUnreachable")
        assert "cannot use the folder" in answer.problem
    master = (await client.ask("info")).data["master"]
    assert (master["state"], "cannot use" in master["problem"]) == ("stopped", True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_frozen_master_is_not_waited_for(client: Client) -> None:
    with frozen_process() as process:
        announce(1, pid=process.pid)
        answer = await client.ask("api/experiments")
        info = (await client.ask("info")).data
    assert answer.status == 503
    assert f"kill -CONT {process.pid}" in answer.problem
    assert answer.problem.endswith("then repeat this command")
    assert info["master"]["state"] == "silent"
    assert info["master"]["command"] == f"kill -CONT {process.pid}"


async def test_a_master_that_is_silent_holds_nothing_else_up(
    client: Client, extension: Any
) -> None:
    goes_on = threading.Event()

    def answer_late(request: BaseHTTPRequestHandler) -> None:
        goes_on.wait(600)
        reply(request, 200, {"fine": True})

    with master_stand_in() as master:
        master.answer = answer_late
        waiting = [asyncio.ensure_future(client.ask("api/experiments")) for _ in range(5)]
        await until(lambda: len(master.asked) == 5, "it is asked")
        assert (await client.ask("info")).status == 200
        assert not any(task.done() for task in waiting)
        extension._client.timeout = 0.2
        late = await client.ask("api/experiments")
        goes_on.set()
        answers = await asyncio.gather(*waiting)
    assert {answer.status for answer in answers} == {200}
    assert late.status == 503
    assert "may have been carried out" in late.problem


@pytest.mark.parametrize("jp_base_url", ["/", "/user/a%40b.example/my%20server/"])
async def test_it_works_under_any_base_url(client: Client) -> None:
    with master_stand_in() as master:
        assert (await client.ask("info")).status == 200
        assert (await client.ask("api/experiments/3")).data == {"fine": True}
        assert master.asked[0].target == "/api/v1/experiments/3"
        assert await client.socket_status(client.token) == 101


async def test_a_proxy_may_change_host_and_scheme(client: Client) -> None:
    """As JupyterHub's does: the page's address is another one than ours."""
    headers = {
        **client.token, "Host": "127.0.0.1", "Origin": "https://hub.example",
        "X-Forwarded-Proto": "https", "X-Forwarded-Host": "hub.example",
    }  # fmt: skip
    with master_stand_in():
        assert (await client.ask("api/experiments", headers=headers)).status == 200
        assert await client.socket_status(headers) == 101


async def test_a_cells_configuration_is_written_without_a_master(client: Client) -> None:
    cell = "class T(PyTorchTrial):\n  def evaluate_batch(self, b, i): return {'val_loss': b}"
    asked = {"configuration": "searcher:\n  metric: x\n", "entrypoint": "T", "sources": [cell]}
    answer = await client.ask("cell", "POST", body=asked)
    assert answer.data["configuration"].splitlines() == [
        "entrypoint: T", "searcher:", "  metric: val_loss", "  smaller_is_better: true",
    ]  # fmt: skip
    refused = await client.ask("cell", "POST", body={**asked, "sources": [3]})
    assert "expected configuration, entrypoint and sources" in sentences_of(refused.data)[0]
