"""The reader's program, as its starter forks it: it serves, and ends with its master."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from websocket import WebSocketBadStatusException, create_connection

from det_jupyter.contract.host import paths
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.store import Store
from det_jupyter.reader import program
from tests.reader_pages import Page
from tests.reader_starters import StarterProcess, starter_of
from tests.unit.master.machine_world import registered, submitted


class Started:
    """A reader with its listening socket, and the socket of commits."""

    def __init__(self, link: socket.socket, port: int) -> None:
        self.link = link
        self._said = link.makefile()
        self.pid = int(self._said.readline())
        self._port = port

    def open(self, token: str = "secret") -> Page:
        url = f"ws://127.0.0.1:{self._port}/socket"
        header = [f"Authorization: Bearer {token}", "X-Det-May-Write: 1"]
        return Page(create_connection(url, header=header, suppress_origin=True))

    def end(self) -> int:
        """End it as its master does; return its exit status."""
        self.link.shutdown(socket.SHUT_WR)
        return self.wait()

    def wait(self) -> int:
        """Return its exit status once it has ended."""
        with self.link, self._said:
            return int(self._said.readline())


Start = Callable[[], Started]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    with closing(Service(Store(paths.data_dir() / "det.sqlite3"))) as made:
        made.take(registered(4))
        made.take(submitted())
        yield made


@contextmanager
def starting(starter: StarterProcess) -> Iterator[Start]:
    """Have readers started, which write to the log."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        paths.reader_log().open("ab") as log,
    ):
        yield lambda: Started(
            starter.start("secret", listener, log.fileno()), listener.getsockname()[1]
        )


@pytest.fixture
def start(service: Service) -> Iterator[Start]:
    with starter_of() as starter, starting(starter) as start:
        yield start


def lines_of(page: Page) -> list[str]:
    return [*page.documents.get(1, {"rows": {}})["rows"]]


def test_it_serves_what_is_committed_until_the_master_ends(start: Start, service: Service) -> None:
    reader = start()
    with pytest.raises(WebSocketBadStatusException, match="403"):
        reader.open("wrong")
    page = reader.open()
    assert page.hello["op"] == "hello"
    page.follow(1, "experiments")
    page.follow(2, "experiment", experiment_id=1)
    page.until(lambda: lines_of(page) == ["1"] and 2 in page.documents)
    assert page.documents[2]["name"] == "digits"
    service.take(submitted("other"))
    reader.link.send(b"\n")
    page.until(lambda: lines_of(page) == ["1", "2"])
    assert page.errors == []
    os.kill(reader.pid, signal.SIGINT)  # of a terminal
    page.send(op="ping")
    page.until(lambda: page.num_pongs)
    assert reader.end() == 0
    assert paths.reader_log().read_text() == ""
    page.socket.close()


def test_it_ends_by_a_signal_and_the_next_one_uses_the_same_socket(
    start: Start,
) -> None:
    for _ in range(2):
        reader = start()
        page = reader.open()  # waits in the backlog until the reader serves
        page.socket.close()
        os.kill(reader.pid, signal.SIGTERM)
        assert reader.wait() == 0


def test_it_ends_when_nobody_was_there_for_a_while(service: Service) -> None:
    with starter_of(f"{__name__}:run_briefly") as starter, starting(starter) as start:
        assert start().wait() == 0


def run_briefly(token: str, listener: socket.socket, commits: socket.socket) -> None:
    """Be a reader without patience."""
    program.UNUSED_S = program.IDLE_S = 0.05
    program.run(token, listener, commits)


def test_its_start_loads_no_numpy() -> None:
    text = "import sys, det_jupyter.reader.program; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
