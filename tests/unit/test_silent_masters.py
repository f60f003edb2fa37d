"""What a program does when a master refuses, is silent, is stopped, or gives way to another."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from det_jupyter import connection
from det_jupyter.connection import Session
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.paths import write_private
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import BACKGROUND
from det_jupyter.errors import DetError, MasterUnreachable, NotFound
from tests.problems import refusal
from tests.processes import at_home, wait_until
from tests.unit.test_connection import ClosedTransport, Masters, info, own_info, session


def test_a_user_asks_but_a_program_of_its_own_says_that_it_does() -> None:
    asked: list[httpx.Headers] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers)
        return httpx.Response(200, json=str(request.url.query.decode()))

    transport = httpx.MockTransport(answer)
    assert Session(info(1), transport=transport).get("/x", a=1, b=None, c="") == "a=1&c="
    Session(info(1), transport=transport, is_background=True).get("/x")
    assert [headers.get(BACKGROUND) for headers in asked] == [None, "1"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "Conflict"}', b"{}"])
def test_an_answer_that_is_no_refusal_of_ours_is_shown_as_it_is(body: bytes) -> None:
    with pytest.raises(DetError, match=r"^the master answered 502: ") as caught:
        session(lambda request: httpx.Response(502, content=body + b" " * 300)).get("/x")
    assert str(caught.value).endswith((body + b" " * 300)[:200].decode())


@pytest.mark.parametrize("name", ["sys", "Problem", "http_status", "RankStall"])
def test_an_error_that_is_none_of_ours_is_an_error_all_the_same(name: str) -> None:
    body = refusal(name, "first")
    body["problems"].append({"path": "", "text": "second"})
    with pytest.raises(DetError, match=r"^first\nsecond$") as caught:
        session(lambda request: httpx.Response(400, json=body)).get("/x")
    assert type(caught.value) is DetError


def test_what_does_not_exist_is_named_by_its_number() -> None:
    body = {**refusal("NotFound", "there is none"), "what": "trial", "number": 3}
    with pytest.raises(NotFound) as caught:
        session(lambda request: httpx.Response(404, json=body)).get("/trials/3")
    assert (caught.value.what, caught.value.number) == ("trial", 3)


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout])
def test_what_was_not_sent_is_sent_to_the_next_master_whatever_it_is(
    error: type[httpx.TransportError],
) -> None:
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.port or 0)
        if len(asked) < 3:
            raise error("refused", request=request)
        return httpx.Response(200, json="fine")

    assert session(answer, successor=2).post("/experiments", {}) == "fine"
    assert asked == [1, 2, 2]


class Seconds:
    """A clock that only sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        monkeypatch.setattr(connection, "time", clock)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_successor_that_does_not_come_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    clock = Seconds(monkeypatch)
    leaving = refusal("MasterUnreachable", "the master is stopping")

    def answer(request: httpx.Request) -> httpx.Response:
        if is_refused:
            return httpx.Response(503, json=leaving)
        raise httpx.ConnectError("refused", request=request)

    said = "is stopping" if is_refused else r"at http://127\.0\.0\.1:2 does not answer \(refused\)"
    with pytest.raises(MasterUnreachable, match=said):
        session(answer, successor=2).get("/x")
    assert 110.0 < clock.now < 111.0


def test_a_master_that_was_replaced_while_it_was_silent_is_asked_at_its_new_place() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.port == 1:
            raise httpx.ReadTimeout("timed out", request=request)
        return httpx.Response(200, json="fine")

    assert session(answer, successor=2).get("/x") == "fine"
    uncertain = r":1 does not answer \(timed out\); the request may have been carried out"
    with pytest.raises(MasterUnreachable, match=uncertain):  # not: kill the one that answers
        session(answer, successor=2).post("/experiments", {})


def test_a_master_that_is_stopped_is_named_with_what_continues_it() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGSTOP)
        own = ProcessIdentity.of(process.pid)
        found = info(1).model_copy(update={"pid": own.pid, "birth": own.birth, "host": own.host})
        wait_until(lambda: found.process.is_frozen, "it is stopped")
        transport = httpx.MockTransport(lambda request: pytest.fail("it is asked"))
        try:
            with pytest.raises(MasterUnreachable, match="is stopped, and what trains") as caught:
                Session(found, transport=transport).get("/x")
            assert caught.value.command == f"kill -CONT {own.pid}"
            with (
                connection.waiting_for("the master, which is starting") as still,
                pytest.raises(MasterUnreachable, match=r"which is starting .*, is stopped"),
            ):
                still(own.pid)
        finally:
            process.kill()


def test_a_long_wait_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Seconds(monkeypatch)
    with connection.waiting_for("the master") as still:
        while clock.now < 119.9:
            still(os.getpid())
        assert caplog.records == []
        while clock.now < 170.0:
            still(os.getpid())
    (record,) = caplog.records
    assert record.getMessage().startswith(f"still waiting for the master (process {os.getpid()});")


def test_a_master_that_did_not_start_is_told_with_the_end_of_its_output(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with at_home(tmp_path, {}):
        monkeypatch.setattr(connection, "find_master", lambda: None)
        monkeypatch.setattr(paths, "find_full_folder", lambda: "")
        monkeypatch.setattr(
            connection, "spawn_master", lambda: SimpleNamespace(pid=os.getpid(), poll=lambda: 3)
        )
        log = paths.master_output()
        for text, shown in (
            (None, []),
            ("".join(f"line {n}\n" for n in range(40)), [f"line {n}" for n in range(25, 40)]),
        ):
            if text is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                log.write_text(text)
            with pytest.raises(MasterUnreachable) as caught:
                connection.ensure_master()
            assert str(caught.value).splitlines()[1:] == [f"Last lines of {log}:", *shown]


def test_a_connection_finds_the_master_and_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([info(1), info(2)])
    monkeypatch.setattr(connection, "ensure_master", lambda: next(found))
    opened = connection.connect()
    assert opened.info == info(1)
    opened.relocate()
    assert opened.info == info(2)
    opened.close()


def test_what_the_next_master_may_have_done_is_said_to_be_uncertain_too() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        error = httpx.ConnectError if request.url.port == 1 else httpx.ReadError
        raise error("reset", request=request)

    with pytest.raises(
        MasterUnreachable, match=r":2 does not answer .* may have been carried out"
    ):
        session(answer, successor=2).post("/experiments", {})


def test_a_put_is_sent_again_and_its_answer_returned() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(f"{request.method} {request.url.port} {request.content.decode()}")
        if len(asked) == 1:
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, json="stored")

    assert session(answer, successor=2).put("/templates/x", {"a": 1}) == "stored"
    assert asked == ['PUT 1 {"a":1}', 'PUT 2 {"a":1}']


def test_all_connections_of_a_session_are_closed_with_it() -> None:
    transport = ClosedTransport(lambda request: httpx.Response(200, json={}))
    opened = Session(info(1), transport=transport)
    opened.get("/x")
    opened.close()
    assert transport.is_closed


def test_what_does_not_exist_may_have_no_number() -> None:
    body = refusal("NotFound", "there is none")
    with pytest.raises(NotFound) as caught:
        session(lambda request: httpx.Response(404, json=body)).get("/x")
    assert (caught.value.what, caught.value.number) == ("", 0)


def test_a_start_that_finds_another_master_takes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    masters = Masters(monkeypatch, 0)
    announced = iter([None, info(1)])
    monkeypatch.setattr(connection, "find_master", lambda: next(announced))
    assert (connection.ensure_master(), masters.num_started) == (info(1), 1)


@pytest.mark.parametrize(
    ("is_own", "has_holder", "is_found"), [(True, True, True), (False, False, False)]
)
def test_only_a_master_that_holds_the_lock_elsewhere_is_elsewhere(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_own: bool,
    has_holder: bool,
    is_found: bool,
) -> None:
    holder = SimpleNamespace(is_here=False) if has_holder else None
    monkeypatch.setattr(connection, "holder_of", lambda path: holder)
    found = own_info() if is_own else own_info(host="elsewhere", birth="1@x")
    with at_home(tmp_path, {}):
        write_private(paths.master_file(), found.model_dump_json())
        assert connection.find_master() == (found if is_found else None)
