"""The reader's program: it takes a token and a socket, serves, and ends with its input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from websocket import WebSocketBadStatusException, create_connection

from det_jupyter._version import __version__
from det_jupyter.contract.host import paths
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.store import Store
from det_jupyter.reader import __main__ as program
from tests.reader_pages import Page
from tests.unit.master.machine_world import registered, submitted

START = [sys.executable, "-m", "det_jupyter.reader"]


class Started:
    """A reader as the master starts it, with its listening socket and the pipe of commits."""

    def __init__(self, process: subprocess.Popen[bytes], listener: socket.socket) -> None:
        self.process = process
        self._listener = listener

    def tell(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def greet(self) -> None:
        line = {
            "token": "secret",
            "socket": self._listener.fileno(),
            "version": __version__,
        }
        self.tell(json.dumps(line).encode() + b"\n")

    def open(self, token: str = "secret") -> Page:
        url = f"ws://127.0.0.1:{self._listener.getsockname()[1]}/socket"
        header = [f"Authorization: Bearer {token}", "X-Det-May-Write: 1"]
        return Page(create_connection(url, header=header, suppress_origin=True))

    def end(self) -> tuple[int, str]:
        """End its input; return its exit status, and what it has said."""
        _, said = self.process.communicate()
        return self.process.returncode, said.decode()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    with closing(Service(Store(paths.data_dir() / "det.sqlite3"))) as made:
        made.take(registered(4))
        made.take(submitted())
        yield made


@pytest.fixture
def start(service: Service) -> Iterator[Callable[[], Started]]:
    opened: list[Started] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start_one() -> Started:
            process = subprocess.Popen(
                START,
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
            opened.append(Started(process, listener))
            return opened[-1]

        yield start_one
        for each in opened:
            each.process.kill()
            with suppress(OSError, ValueError):
                each.process.communicate()


def lines_of(page: Page) -> list[str]:
    return [*page.documents.get(1, {"rows": {}})["rows"]]


def test_it_serves_what_is_committed_until_its_input_ends(
    start: Callable[[], Started], service: Service
) -> None:
    reader = start()
    reader.greet()
    with pytest.raises(WebSocketBadStatusException, match="403"):
        reader.open("wrong")
    page = reader.open()
    assert page.hello["op"] == "hello"
    page.follow(1, "experiments")
    page.follow(2, "experiment", experiment_id=1)
    page.until(lambda: lines_of(page) == ["1"] and 2 in page.documents)
    assert page.documents[2]["name"] == "digits"
    service.take(submitted("other"))
    reader.tell(b"\n")
    page.until(lambda: lines_of(page) == ["1", "2"])
    assert page.errors == []
    reader.process.send_signal(signal.SIGINT)  # of a terminal
    page.send(op="ping")
    page.until(lambda: page.num_pongs)
    assert reader.end() == (0, "")
    page.socket.close()


def test_it_ends_by_a_signal_and_the_next_one_uses_the_same_socket(
    start: Callable[[], Started],
) -> None:
    for _ in range(2):
        reader = start()
        reader.greet()
        page = reader.open()  # waits in the backlog until the reader serves
        page.socket.close()
        reader.process.send_signal(signal.SIGTERM)
        assert reader.process.wait() == 0


EXPECTED = 'expected {"token": ..., "socket": ..., "version": ...} on standard input\n'


def test_a_first_line_that_is_wrong_ends_it(start: Callable[[], Started]) -> None:
    reader = start()
    reader.tell(b'{"token": "secret"}\n')
    assert reader.end() == (2, EXPECTED)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        '{"socket": 0}',
        '{"token": "a", "socket": 0}',
        '{"token": "a", "socket": 1000, "version": "1"}',
        '"' * 20_000,
        "\xff",
    ],
)
def test_who_starts_it_has_to_say_how(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as given, monkeypatch.context() as patch:
        with os.fdopen(writing, "wb") as telling:
            telling.write(f"{line}\n".encode("latin-1"))
        patch.setattr("sys.stdin", given)
        patch.setattr(signal, "signal", lambda *_: None)  # of this process
        assert program.main() == 2
    assert capsys.readouterr().err == EXPECTED


def test_an_input_that_is_a_file_is_at_its_end(service: Service, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line = {"token": "secret", "socket": listener.fileno(), "version": __version__}
        (tmp_path / "given").write_text(json.dumps(line) + "\n")
        with (tmp_path / "given").open() as given:
            done = subprocess.run(START, stdin=given, pass_fds=(listener.fileno(),), check=False)
    assert done.returncode == 0


def test_it_ends_when_nobody_was_there_for_a_while(service: Service) -> None:
    text = (
        "import sys; from det_jupyter.reader import __main__ as program; "
        "program.UNUSED_S = program.IDLE_S = 0.05; sys.exit(program.main())"
    )
    (reading, writing) = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener, os.fdopen(writing, "wb", 0) as stdin:
        stdin.write(
            json.dumps(
                {"token": "a", "socket": listener.fileno(), "version": __version__}
            ).encode()
            + b"\n"
        )
        command = [sys.executable, "-c", text]
        done = subprocess.run(command, stdin=reading, pass_fds=(listener.fileno(),), check=False)
        os.close(reading)
    assert done.returncode == 0


def test_its_start_loads_no_numpy() -> None:
    text = "import sys, det_jupyter.reader.__main__; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
