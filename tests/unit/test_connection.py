"""The line to the master: refusals become errors, lines stay whole, a moved master is found."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from det_jupyter import connection
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.paths import write_private
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import (
    CaptureError,
    ConfigError,
    Conflict,
    DetError,
    MasterUnreachable,
    NotFound,
    ProtocolMismatch,
)
from tests.problems import refusal, said
from tests.processes import at_home


def info(port: int) -> MasterInfo:
    return MasterInfo(
        url=f"http://127.0.0.1:{port}", token=f"token-{port}", pid=1, started_at=0.0,
        version="0", protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip


def session(
    answer: Callable[[httpx.Request], httpx.Response], successor: int | None = None
) -> Session:
    locate = None if successor is None else (lambda: info(successor))
    return Session(info(1), locate=locate, transport=httpx.MockTransport(answer))


def test_a_master_that_leaves_is_asked_no_more_and_its_successor_is() -> None:
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.port or 0)
        if len(asked) < 3:
            leaving = refusal("MasterUnreachable", "the master is stopping")
            return httpx.Response(503, json=leaving)
        return httpx.Response(200, json="fine")

    assert session(answer, successor=2).post("/experiments", {}) == "fine"
    assert asked == [1, 2, 2]


@pytest.mark.parametrize(
    ("name", "kind"), [("NotFound", NotFound), ("Conflict", Conflict), ("Surprise", DetError)]
)
def test_a_refusal_is_raised_as_the_error_that_it_names(name: str, kind: type[DetError]) -> None:
    body = refusal(name, "no such thing")
    with pytest.raises(kind, match="no such thing"):
        session(lambda request: httpx.Response(409, json=body)).get("/x")


def test_a_refused_configuration_keeps_its_problems_apart() -> None:
    body = {"error": "ConfigError", "problems": [{"path": path, "text": "wrong"} for path in "ab"]}
    with pytest.raises(ConfigError) as caught:
        session(lambda request: httpx.Response(422, json=body)).post("/x", {})
    assert said(caught.value.problems) == ["a: wrong", "b: wrong"]


def dead_then_alive(asked: list[str]) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.port}")
        if request.url.port == 1:
            raise httpx.ReadError("connection reset", request=request)
        assert request.headers["Authorization"] == "Bearer token-2"
        return httpx.Response(200, json="fine")

    return answer


def test_a_restarted_master_is_found_and_asked_again() -> None:
    asked: list[str] = []
    assert session(dead_then_alive(asked), successor=2).get("/x") == "fine"
    assert asked == ["GET 1", "GET 2"]


def test_what_may_have_been_done_already_is_not_asked_twice() -> None:
    asked: list[str] = []
    with pytest.raises(MasterUnreachable):
        session(dead_then_alive(asked), successor=2).post("/experiments", {})
    assert asked == ["POST 1"]
    assert session(dead_then_alive(asked), successor=2).post("/pause", repeatable=True) == "fine"


def test_what_may_have_been_done_is_said_to_be_uncertain() -> None:
    with pytest.raises(MasterUnreachable, match="may have been carried out: check, and repeat it"):
        session(dead_then_alive([]), successor=2).post("/delete")
    with pytest.raises(MasterUnreachable, match="master status"):
        session(dead_then_alive([])).get("/x")


def test_a_dying_master_that_is_still_announced_is_asked_until_its_successor_answers() -> None:
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.port or 0)
        if len(asked) < 4:
            raise httpx.ReadError("connection reset", request=request)
        return httpx.Response(200, json="fine")

    # What announces the dead one is its file: for a moment after SIGKILL it still looks alive.
    assert session(answer, successor=1).get("/x") == "fine"
    assert asked == [1, 1, 1, 1]


def test_a_master_that_is_silent_is_not_asked_a_second_time() -> None:
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.port or 0)
        raise httpx.ReadTimeout("timed out", request=request)

    with pytest.raises(MasterUnreachable, match="`kill -KILL 1` ends it"):
        session(answer, successor=1).get("/x")
    assert asked == [1]


@pytest.mark.parametrize(
    ("path", "body"),
    [("/experiments", {"notebook": "caf\udce9.ipynb"}), ("/templates/caf\udce9", {})],
)
def test_half_a_character_is_refused_in_a_sentence(path: str, body: dict[str, str]) -> None:
    with pytest.raises(DetError, match=r"half a character cannot be sent: .*\\udce9"):
        session(lambda request: httpx.Response(200, json="fine")).post(path, body)


def test_a_session_that_is_dropped_closes_its_connections() -> None:
    transport = ClosedTransport(lambda request: httpx.Response(200, json={}))
    session = Session(info(1), transport=transport)
    session.get("/x")
    del session
    gc.collect()
    assert transport.is_closed


class ClosedTransport(httpx.MockTransport):
    """Notes that it was closed."""

    is_closed = False

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


class Masters:
    """Stands for the processes that are started as masters: each ends with its status."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, status: int | None) -> None:
        self.status = status
        self.num_started = 0
        self.announced: MasterInfo | None = None
        self.announces = False
        self.lock_is_held = False
        monkeypatch.setattr(connection, "spawn_master", self._spawn)
        monkeypatch.setattr(connection, "find_master", lambda: self.announced)
        monkeypatch.setattr(connection, "is_locked", lambda path: self.lock_is_held)
        monkeypatch.setattr(connection, "waiting_for", self._waiting)
        monkeypatch.setattr(connection, "_log_tail", lambda: "the last line")
        monkeypatch.setattr(paths, "find_full_folder", lambda: "")

    def _spawn(self) -> Any:
        self.num_started += 1
        return SimpleNamespace(pid=7, poll=lambda: self.status)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[Callable[[int], None]]:
        yield self._still

    def _still(self, pid: int) -> None:
        if self.announces:
            self.announced = info(1)


def test_a_master_that_runs_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(monkeypatch, None)
    masters.announced = info(1)
    assert (connection.ensure_master(), masters.num_started) == (info(1), 0)


def test_a_master_is_started_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(monkeypatch, None)
    masters.announces = True
    assert (connection.ensure_master(), masters.num_started) == (info(1), 1)


def test_a_start_that_fails_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(monkeypatch, 3)
    with pytest.raises(MasterUnreachable, match=r"start \(exit status 3\)\.\nthe last line"):
        connection.ensure_master()
    assert masters.num_started == 1


def test_a_start_beside_a_master_that_was_ending_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters = Masters(monkeypatch, 0)
    with pytest.raises(MasterUnreachable, match=r"exit status 0"):
        connection.ensure_master()
    assert masters.num_started == 5


def test_a_stopped_master_that_has_announced_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    still = connection.waiting_for
    masters = Masters(monkeypatch, 0)
    masters.lock_is_held = True
    monkeypatch.setattr(connection, "waiting_for", still)
    with subprocess.Popen(["sleep", "600"]) as stopped:
        stopped.send_signal(signal.SIGSTOP)
        holder = ProcessIdentity.of(stopped.pid)
        monkeypatch.setattr(connection, "holder_of", lambda path: holder)
        with pytest.raises(MasterUnreachable, match=rf"`kill -CONT {stopped.pid}` lets it go on"):
            connection.ensure_master()
        stopped.kill()


def test_a_full_disk_is_the_reason_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(monkeypatch, 3)
    monkeypatch.setattr(paths, "find_full_folder", lambda: "/data is full")
    with pytest.raises(MasterUnreachable, match="did not start: /data is full"):
        connection.ensure_master()

    def refuse() -> Any:
        raise OSError("no process")

    monkeypatch.setattr(connection, "spawn_master", refuse)
    with pytest.raises(MasterUnreachable, match="cannot be started: /data is full"):
        connection.ensure_master()
    monkeypatch.setattr(paths, "find_full_folder", lambda: "")
    with pytest.raises(MasterUnreachable, match="cannot be started: no process"):
        connection.ensure_master()
    assert masters.num_started == 1


@pytest.fixture
def announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write the file by which a master is found."""
    with at_home(tmp_path, {}):

        def write(found: MasterInfo | str, *, lock_is_held: bool = True) -> None:
            text = found if isinstance(found, str) else found.model_dump_json()
            write_private(paths.master_file(), text)
            monkeypatch.setattr(connection, "is_locked", lambda path: lock_is_held)

        yield write


def own_info(**changes: Any) -> MasterInfo:
    own = ProcessIdentity.of(os.getpid())
    facts = {"pid": own.pid, "birth": own.birth, "host": own.host}
    return info(1).model_copy(update=facts | changes)


def test_a_master_is_found_if_it_lives(announced: Callable[..., None]) -> None:
    assert connection.find_master() is None
    announced(own_info())
    assert connection.find_master() == own_info()
    announced(own_info(birth="1@x"))  # its pid is another process's now
    assert connection.find_master() is None


def test_a_master_of_another_version_is_named_with_what_replaces_it(
    announced: Callable[..., None],
) -> None:
    announced(own_info(protocol=1, version="0.1"))
    with pytest.raises(ProtocolMismatch, match=r"is det_jupyter 0\.1 \(protocol 1\)") as caught:
        connection.find_master()
    assert caught.value.command == f"{sys.executable} -m det_jupyter.master restart"
    assert connection.announced_master() == own_info(protocol=1, version="0.1")
    announced("{}")
    with pytest.raises(ProtocolMismatch, match="was written by another version"):
        connection.find_master()
    announced("{}", lock_is_held=False)
    assert connection.find_master() is None


def test_a_master_of_an_older_version_lives_while_it_holds_the_lock(
    announced: Callable[..., None],
) -> None:
    older = own_info(birth="")
    announced(older)
    assert connection.find_master() == older
    announced(older, lock_is_held=False)
    assert connection.find_master() is None


def test_a_master_on_another_computer_is_named(
    announced: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    announced(own_info(host="elsewhere", birth="1@x"))
    holder = SimpleNamespace(is_here=False)
    monkeypatch.setattr(connection, "holder_of", lambda path: holder)
    with pytest.raises(MasterUnreachable, match="master runs on elsewhere"):
        connection.find_master()


def test_a_request_that_deletes_is_sent_once_and_its_answer_returned() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.path}")
        return httpx.Response(200, json={"freed": 5})

    assert session(answer).delete("/checkpoints/x") == {"freed": 5}
    assert asked == ["DELETE /api/v1/checkpoints/x"]

    def fail(request: httpx.Request) -> httpx.Response:
        asked.append("again")
        raise httpx.ReadError("gone")

    with pytest.raises(MasterUnreachable):
        session(fail, successor=2).delete("/checkpoints/x")
    assert asked.count("again") == 1


def test_a_refused_capture_has_its_problems_apart() -> None:
    body = refusal("CaptureError", "x cannot be pickled")
    with pytest.raises(CaptureError, match="x cannot be pickled"):
        session(lambda request: httpx.Response(400, json=body)).post("/experiments", {})


def test_a_line_that_needs_a_master_revives_only_one_that_was_killed(
    announced: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ensure_master", lambda: info(9))
    with pytest.raises(MasterUnreachable, match="no det_jupyter master runs; `det x` starts one"):
        connection.require_master("det x", may_revive=True)
    announced(own_info(birth="1@x"))
    assert connection.require_master("det x", may_revive=True) == info(9)
    with pytest.raises(MasterUnreachable):
        connection.require_master("det x")
    announced(own_info())
    assert connection.require_master("det x", may_revive=True) == own_info()
