"""The feeder's program: it takes a token, says its port, and ends with its input."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages.pages import MasterState
from det_jupyter.reader import __main__ as program
from det_jupyter.reader.master_connection import MasterConnection


class Ended(Exception):
    """Instead of the end of the process."""


@pytest.fixture
def may_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Have the program end by an exception; give what it says of starting a master."""
    given: list[bool] = []

    class Line(MasterConnection):
        def __init__(self, *, may_start: bool) -> None:
            super().__init__(may_start=may_start)
            given.append(may_start)

        def check(self) -> MasterState:
            return MasterState(state="stopped")

    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(program, "MasterConnection", Line)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", end)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    yield given
    for number, handler in handlers:
        signal.signal(number, handler)


@pytest.mark.parametrize("line", ["", "{", "[]", '{"token": "a"}', '{"start_master": true}'])
def test_who_starts_it_has_to_say_how(
    line: str, may_start: list[bool], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))
    assert program.main() == 2
    assert "expected {" in capsys.readouterr().err
    assert may_start == []


def test_it_serves_until_its_input_ends(
    may_start: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    (stdin, giving), (reading, stdout) = os.pipe(), os.pipe()
    os.write(giving, b'{"token": "secret", "start_master": true}\n')
    answers: list[Any] = []

    def ask() -> None:
        with os.fdopen(reading) as said:
            port = json.loads(said.readline())["port"]
        try:
            for token in ("wrong", "secret"):
                with closing(HTTPConnection("127.0.0.1", port)) as http:
                    http.request("GET", "/socket", headers={"Authorization": f"Bearer {token}"})
                    answers.append(http.getresponse().status)
            os.write(giving, b"more is ignored")
        finally:
            os.close(giving)

    asking = threading.Thread(target=ask)
    with os.fdopen(stdin) as given, os.fdopen(stdout, "w") as out, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", given)
        patch.setattr("sys.stdout", out)
        asking.start()
        with pytest.raises(Ended, match="0"):
            program.main()
    asking.join()
    assert answers == [403, 400], "400: the token is right, and no socket was wanted"
    assert may_start == [True]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert paths.feeder_locks() == [paths.feeder_lock(os.getpid())]
    assert Path.cwd() == paths.data_dir(), "which tells whether the lock was removed"


def test_an_input_that_is_a_file_is_at_its_end(
    may_start: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "given").write_text('{"token": "secret", "start_master": false}\n')
    with (tmp_path / "given").open() as given, monkeypatch.context() as patch:
        patch.setattr("sys.stdin", given)
        with pytest.raises(Ended, match="0"):
            program.main()
    assert may_start == [False]
