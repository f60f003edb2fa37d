"""What another user of the computer reaches while a trial trains: routes, ports, sockets, files.

All of them are found, not listed: by the master's document, in /proc, and in the folders. So what
is added later is checked too.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from det_jupyter.client import Client
from det_jupyter.client.submitting.environment import with_environment
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from tests.another_user import as_another_user
from tests.processes import DetHome, processes_of, socket_folders
from tests.reader_pages import ReaderOfMaster
from tests.trials import TRIAL_SOURCE, capture_trial, create, slow, wait_for_steps

pytestmark = pytest.mark.e2e
for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")

SECRET_NAME, SECRET = "DET_TEST_SECRET", "value-that-is-in-one-file-only"
ONE_ROUTE = ("get", "/api/v1/experiments")
REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
# What each program may listen to, and what it answers without credentials. gloo's ports accept
# connections: docs/security.md has what follows.
OF_READER = "HTTP/1.1 404"  # its only route needs the token
PORTS = {
    # It holds the reader's, and does not accept there; the one for all interfaces is for TLS.
    "det_jupyter.master": {"127.0.0.1": {"HTTP/1.1 401", OF_READER}, "::": {""}},
    "det_jupyter.reader": {"127.0.0.1": {OF_READER}},
    "rank": {"127.0.0.1": {""}},
}


@dataclass
class Lived:
    """A home in which a trial of two ranks trains, a page is open, and agents may connect.

    The routes of Jupyter Server's extension, in whose process it has no port of its own, are a
    matrix in tests/integration/server/test_server_who.py; those of agents in test_agent_routes.py.
    """

    home: DetHome
    client: Client
    agents_token: str
    temporary: Path

    def processes(self) -> dict[int, str]:
        """Return the program of each process."""
        return {each.pid: program_of(each) for each in processes_of(self.home.path)}

    def secrets(self) -> dict[str, str]:
        return {
            "the master's token": self.client.session.info.token,
            "the agent's token": self.agents_token,
            "the value of a variable": SECRET,
        }


def program_of(process: psutil.Process) -> str:
    found = re.search(r"det_jupyter\.(master|agent|reader)\b", " ".join(process.cmdline()))
    return found[0] if found else "rank"


@pytest.fixture(scope="module")
def lived(home: DetHome, temporary: Path) -> Iterator[Lived]:
    client = home.client()
    credentials = client.session.post("/agents/elsewhere/credentials", {})
    config = slow(0.3, environment={"environment_variables": [SECRET_NAME]})
    config["searcher"]["max_length"] = {"batches": 100_000}
    capsule = capture_trial(client, "SmallTrial", TRIAL_SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SECRET_NAME, SECRET)
        blobs = BlobStore(Path(client.session.info.data_dir) / "blobs")
        capsule = with_environment(capsule, parse_config(config, default_seed=1), blobs)
    experiment = create(client, config, capsule)
    try:
        wait_for_steps(experiment, 5)
        with ReaderOfMaster(home).page():
            yield Lived(home, client, credentials["token"], temporary)
        assert not experiment.view.state.is_terminal
    finally:
        experiment.kill()
        client.session.delete("/agents/elsewhere/credentials")
        client.session.close()


@pytest.mark.parametrize("of_agent", [False, True])
def test_no_route_of_the_master_is_served_without_its_token(lived: Lived, of_agent: bool) -> None:
    token = lived.agents_token if of_agent else "wrong"
    assert_refused(lived, 401, all_routes(lived), {"Authorization": f"Bearer {token}"})


def test_no_route_of_the_master_is_served_to_a_page_of_another_host(lived: Lived) -> None:
    token = lived.client.session.info.token
    headers = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
    assert_refused(lived, 403, all_routes(lived), headers)


def test_the_token_and_the_host_count_only_as_they_have_to_be_given(lived: Lived) -> None:
    token = lived.client.session.info.token
    for given in ("", "Bearer", f"Basic {token}", f"bearer {token}"):
        assert_refused(lived, 401, [ONE_ROUTE], {"Authorization": given})
    for host in ("127.0.0.1.evil.example", "0.0.0.0"):
        headers = {"Authorization": f"Bearer {token}", "Host": host}
        assert_refused(lived, 403, [ONE_ROUTE], headers)


def all_routes(lived: Lived) -> list[tuple[str, str]]:
    paths = lived.client.session.get("/openapi.json")["paths"]
    routes = [(method, path) for path, methods in paths.items() for method in methods]
    assert len(routes) > 60
    return [*routes, ("get", "/api/v1/openapi.json"), ("get", "/")]


def assert_refused(
    lived: Lived, status: int, routes: list[tuple[str, str]], headers: dict[str, str]
) -> None:
    info = lived.client.session.info
    with httpx.Client(base_url=info.url, headers=headers, trust_env=False) as http:
        for method, path in routes:
            answer = http.request(method, re.sub(r"{\w+}", "1", path))
            assert answer.status_code == status, (method, path)
            assert info.token not in answer.text


def test_only_known_ports_are_open_and_answer_nothing_to_strangers(lived: Lived) -> None:
    found: dict[str, dict[str, set[str]]] = {}
    for pid, program in lived.processes().items():
        for each in psutil.Process(pid).net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                status = answer_of(each.laddr.port)[: len("HTTP/1.1 401")]
                answers = found.setdefault(program, {}).setdefault(each.laddr.ip, set())
                answers.add(status)
    assert found == PORTS


def answer_of(port: int) -> str:
    """Return what a port answers to a request without credentials; "" if nothing."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(REQUEST)
        sock.settimeout(1.0)
        try:
            return sock.recv(100).decode("latin-1")
        except (TimeoutError, ConnectionError):
            return ""


def test_secrets_are_in_files_of_the_user_alone_and_in_no_log_or_command(lived: Lived) -> None:
    places: dict[str, set[str]] = {name: set() for name in lived.secrets()}
    for path in files_below(lived.home.path, lived.temporary):
        if not stat.S_ISREG(path.stat().st_mode):
            continue
        content = path.read_bytes()
        for name, secret in lived.secrets().items():
            if secret.encode() in content:
                assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, (name, path)
                places[name].add(path.relative_to(lived.home.path).parts[1])
    assert places == {
        "the master's token": {"master.json"},  # the reader has it from a pipe
        "the agent's token": set(),  # the master has a digest of it
        "the value of a variable": {"blobs"},
    }
    for pid in lived.processes():
        line = " ".join(psutil.Process(pid).cmdline())
        assert not any(secret in line for secret in lived.secrets().values())


def files_below(*folders: Path) -> Iterator[Path]:
    """Yield all that is in the folders, the folders too."""
    for folder in folders:
        yield folder
        for parent, names, files in os.walk(folder):
            yield from (Path(parent, name) for name in [*names, *files])


@for_root
def test_another_user_reads_writes_and_connects_to_nothing(lived: Lived) -> None:
    """The user's way to the folders is open, as in a home folder: only their own modes count."""
    folders = [lived.home.path / "data", lived.home.path / "runtime"]
    sockets = socket_folders(lived.home.path)
    assert sockets
    found = [path for path in files_below(*folders, *sockets) if os.path.lexists(path)]
    kinds = {stat.S_IFMT(path.lstat().st_mode) for path in found}
    assert kinds >= {stat.S_IFREG, stat.S_IFDIR, stat.S_IFSOCK}
    for top in [*folders, *sockets]:
        below = [os.path.relpath(path, top.parent) for path in found if path.is_relative_to(top)]
        with opened(top.parent) as everyones:
            attempt = partial(reach, [everyones, *below])
            reached = as_another_user(attempt, folder=top.parent, limit_s=60)
        assert json.loads(reached) == [everyones]


@contextmanager
def opened(folder: Path) -> Iterator[str]:
    """Open a folder to all users; yield the name of a file in it that all can read."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    everyones = folder / "everyones"
    everyones.touch()
    everyones.chmod(0o644)
    folder.chmod(0o755)
    try:
        yield everyones.name
    finally:
        folder.chmod(mode)
        everyones.unlink()


def reach(paths: list[str]) -> str:
    """Return the paths that can be opened, changed or connected to, as JSON."""
    attempts: list[Callable[[str], object]] = [
        partial(os.open, flags=os.O_RDONLY | os.O_NONBLOCK),
        partial(os.open, flags=os.O_WRONLY | os.O_NONBLOCK),
        os.listdir,
        os.unlink,
        connect,
    ]
    reached = []
    for path in paths:
        for attempt in attempts:
            try:
                attempt(path)
            except OSError:
                continue
            reached.append(path)
    return json.dumps(reached)


def connect(path: str) -> None:
    with closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.connect(path)


@for_root
def test_another_user_sees_no_memory_and_no_variables_of_our_programs(lived: Lived) -> None:
    names = [f"{pid}/{name}" for pid in lived.processes() for name in ("environ", "mem", "fd/0")]
    assert json.loads(as_another_user(partial(reach, names), folder=Path("/proc"))) == []
