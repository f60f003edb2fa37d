"""Credentials of agents: `det agent add` prints or writes them, `det agent run` reads its own."""

from __future__ import annotations

import io
import os
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from det_jupyter.contract.messages import AgentCredentials
from det_jupyter.errors import DetError
from det_jupyter.front.cli.agent_verbs import find_problem, own_credentials
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.unit.front.cli.conftest import Typed


@pytest.fixture
def file(det: Typed, tmp_path: Path) -> Path:
    """Return a file with the credentials of three agents."""
    path = tmp_path / "agents"
    added = det("agent", "add", "gpu", "--nodes", "3", "--address", "head", "-o", str(path))
    assert (added.status, added.err) == (0, "")
    assert (
        added.out == f"{path} has the credentials of agents gpu-0 to gpu-2; only you can read it\n"
    )
    return path


def test_credentials_in_a_file_are_not_printed_and_only_the_user_can_read_them(file: Path) -> None:
    assert os.stat(file).st_mode & 0o777 == 0o600
    agents = [AgentCredentials.model_validate_json(line) for line in file.read_text().splitlines()]
    assert [agent.agent for agent in agents] == ["gpu-0", "gpu-1", "gpu-2"]
    assert agents[1].token == "secret of gpu-1"
    assert agents[1].url == "https://head:4000"


@pytest.mark.parametrize(
    ("node", "environ", "agent"),
    [
        (None, {"SLURM_NODEID": "1"}, "gpu-1"),
        (None, {"JOB_COMPLETION_INDEX": "2"}, "gpu-2"),
        (0, {"SLURM_NODEID": "1"}, "gpu-0"),
    ],
)
def test_each_node_of_a_job_is_the_agent_of_its_number(
    file: Path, node: int | None, environ: dict[str, str], agent: str
) -> None:
    assert own_credentials(str(file), node, environ).agent == agent


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {},
            r"has the credentials of 3 agents, gpu-0 to gpu-2: start it with srun, or choose "
            "one by --node N, 0 to 2$",
        ),
        ({"SLURM_NODEID": "3"}, r"has no credentials for node 3 of this job, only for 3: det age"),
    ],
)
def test_node_without_credentials_of_its_own_is_refused(
    file: Path, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(DetError, match=message):
        own_credentials(str(file), None, environ)


def test_file_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o640)
    with pytest.raises(DetError, match=f"other users can read it.*chmod 600 {file}"):
        own_credentials(str(file), 0, {})


def test_credentials_of_one_agent_are_printed_and_read_from_stdin(
    det: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(det("agent add b").out))
    assert own_credentials("-", None, {"SLURM_NODEID": "0"}).token == "secret of b"


@pytest.mark.parametrize("content", ["", "\n", "{}", "no such agent\n", b"\xff"])
def test_what_are_no_credentials_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "agents"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    with pytest.raises(DetError, match="agents: expected the JSON that `det agent add NAME` pr"):
        own_credentials(str(path), None, {})


def test_credentials_with_http_are_refused(det: Typed, tmp_path: Path) -> None:
    path = tmp_path / "agents"
    path.write_text(det("agent add b").out.replace("https://", "http://"))
    path.chmod(0o600)
    with pytest.raises(DetError, match="expected an address that begins with https://"):
        own_credentials(str(path), None, {})


def test_file_that_cannot_be_written_is_named(det: Typed, tmp_path: Path) -> None:
    added = det("agent", "add", "b", "-o", str(tmp_path / "none" / "agents"))
    assert (added.status, added.err) == (2, f"--output: there is no folder {tmp_path / 'none'}\n")
    (tmp_path / "folder").mkdir()
    added = det("agent", "add", "b", "-o", str(tmp_path / "folder"))
    assert added.status == 1
    assert added.err == f"--output: {tmp_path / 'folder'} cannot be written: Is a directory\n"


def test_agents_that_were_removed_before_an_unknown_one_are_named(det: Typed) -> None:
    removed = det("agent", "remove", "a", "unknown", "b")
    assert removed.status == 1
    assert removed.err.splitlines() == [
        "agent a cannot connect any more; what runs there ends, and starts elsewhere",
        "no agent unknown was added",
    ]


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> AgentCredentials:
    access = AgentAccess(tmp_path_factory.mktemp("data") / "agents")
    token = access.add("b")
    access.set_port(4000)
    return access.credentials("b", token, "head")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_token_ends_the_command_with_the_masters_sentence(
    credentials: AgentCredentials, status: int
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/agents/b/clock"
        assert request.headers["authorization"] == f"Bearer {credentials.token}"
        return httpx.Response(status, json={"problems": [{"path": "", "text": "it was removed"}]})

    with pytest.raises(DetError, match=r"^agent b: https://head:4000: it was removed$"):
        find_problem(credentials, httpx.MockTransport(answer))


def test_agent_of_a_master_that_does_not_answer_yet_is_started(
    credentials: AgentCredentials,
) -> None:
    assert find_problem(credentials, httpx.MockTransport(lambda _: httpx.Response(200))) == ""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    problem = find_problem(credentials.model_copy(update={"url": f"https://127.0.0.1:{port}"}))
    assert f"no master answers at https://127.0.0.1:{port}" in problem
    assert "det agent add NAME --address HOST" in problem


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (ssl.SSLCertVerificationError(), "another certificate than these credentials"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"), "no master of det_jupyter, or a proxy"),
    ],
)
def test_another_program_than_the_master_ends_the_command(
    credentials: AgentCredentials, raised: Exception, message: str
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("") from raised

    with pytest.raises(DetError, match=message):
        find_problem(credentials, httpx.MockTransport(answer))


def test_damaged_certificate_is_said(credentials: AgentCredentials) -> None:
    damaged = credentials.model_copy(update={"certificate": "x"})
    with pytest.raises(DetError, match="the credentials contain no certificate"):
        find_problem(damaged)
