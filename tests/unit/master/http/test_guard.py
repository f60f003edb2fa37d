"""Every request is checked before it is routed: token, Host header, and size of the body."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from det_jupyter.contract.messages import BACKGROUND
from det_jupyter.master.http import guard
from det_jupyter.master.http.guard import Guard

TOKEN = "secret"


class App:
    """Receives the whole body of each request and answers 200."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.idle_s: list[float] = []  # of the guard, while a request is open
        self.guard = Guard(self, TOKEN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_complete = b"", False
        while not is_complete:
            message = await receive()
            body += message["body"]
            is_complete = not message.get("more_body", False)
        self.bodies.append(body)
        self.idle_s.append(self.guard.idle_s)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def request(
    app: App,
    path: str = "/status",
    body: tuple[bytes, ...] = (b"",),
    headers: Mapping[str, str] | None = None,
) -> Message:
    """Send a request through the guard; return the start of the response."""
    given = {"host": "127.0.0.1:8080", "authorization": f"Bearer {TOKEN}"} | {**(headers or {})}
    parts = [
        {"type": "http.request", "body": part, "more_body": index + 1 < len(body)}
        for index, part in enumerate(body)
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        if not parts:
            await asyncio.Event().wait()
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
    }
    asyncio.run(app.guard(scope, receive, send))
    return sent[0] if sent else {}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost:80", "[::1]:80", "[::1]"])
def test_a_request_to_the_loopback_interface_with_the_token_is_passed_on(host: str) -> None:
    app = App()
    assert request(app, headers={"host": host}, body=(b"a", b"b"))["status"] == 200
    assert app.bodies == [b"ab"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:80"}, 403),
        ({"host": ""}, 403),
        ({"authorization": TOKEN}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Bearer sécret"}, 401),
        ({"content-length": str(guard.MOST_BODY_BYTES + 1)}, 413),
    ],
)
def test_another_request_is_refused_unread_and_its_connection_closed(
    headers: dict[str, str], status: int
) -> None:
    app = App()
    start = request(app, headers=headers)
    assert start["status"] == status
    assert (b"connection", b"close") in start["headers"]
    assert app.bodies == []


def test_a_body_of_the_greatest_size_is_passed_on_and_a_larger_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "MOST_BODY_BYTES", 4)
    app = App()
    assert request(app, body=(b"ab", b"cd"))["status"] == 200
    assert request(app, body=(b"ab", b"cd", b"e")) == {}  # the real app answers the error
    assert app.bodies == [b"abcd"]
    assert isinstance(caplog.records[0].exc_info[1], HTTPException)  # type: ignore[index]


def test_users_requests_end_the_idle_time_and_those_of_other_programs_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    app = App()
    now = 105.0
    request(app, path="/api/v1/agents/box/reports")
    assert app.guard.idle_s == 5.0
    request(app, headers={BACKGROUND: "1"})  # of a process that sends to a tracker
    assert app.guard.idle_s == 5.0
    request(app)
    assert app.idle_s == [5.0, 5.0, 0.0]
    now = 107.0
    assert app.guard.idle_s == 2.0


def test_a_body_that_does_not_go_on_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.001)

    async def silent() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(HTTPException) as refusal:
        asyncio.run(guard.BoundedBody(silent)())
    assert refusal.value.status_code == 408
    assert "has not come for 0.001 s" in refusal.value.detail


def test_a_scope_that_is_no_request_is_not_passed_on() -> None:
    app = App()

    async def never(*_: object) -> Any:
        raise AssertionError

    asyncio.run(app.guard({"type": "websocket"}, never, never))
    assert app.bodies == []


def test_after_its_body_a_client_may_be_silent_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.001)
    messages: list[Message] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": b"b", "more_body": False},
        {"type": "http.request", "body": b"a", "more_body": True},
    ]

    async def receive() -> Message:
        if len(messages) == 1:
            await asyncio.sleep(0.02)
        return messages.pop()

    async def read() -> list[str]:
        body = guard.BoundedBody(receive)
        return [(await body())["type"] for _ in range(3)]

    assert asyncio.run(read()) == ["http.request", "http.request", "http.disconnect"]
