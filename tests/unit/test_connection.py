"""The line to the master: refusals become errors, lines stay whole, a moved master is found."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable

import httpx
import pytest

from det_jupyter.connection import Session
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import ConfigError, Conflict, DetError, MasterUnreachable, NotFound
from tests.problems import refusal, said


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


def test_lines_are_split_at_line_ends_only() -> None:
    lines = [{"text": "one\u2028two\u0085"}, {"text": "three"}]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines) + "\n"
    answer = session(lambda request: httpx.Response(200, content=text.encode()))
    assert list(answer.stream("/feed")) == [*lines, None]


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
    with pytest.raises(MasterUnreachable, match="may be done or not: look, and ask again"):
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
