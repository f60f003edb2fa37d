"""Who may ask what: every endpoint and verb, with every kind of credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tornado.web import RequestHandler

from det_jupyter.front.jupyter_server.routes import ROUTES
from tests.integration.server.master_stand_in import master_stand_in
from tests.integration.server.support import XSRF, Client

EVIL = {"Origin": "https://elsewhere.example"}

# Every endpoint and verb, and the resource and action that the authorizer is asked for: a new
# handler without a row here fails.
ENDPOINTS = {
    ("GET", "info"): None,  # says what the user may do, also if that is nothing
    ("POST", "master/start"): ("execute", "det_jupyter:cluster"),
    ("POST", "cell"): ("read", "det_jupyter:experiments"),
    ("GET", "socket"): ("read", "det_jupyter:experiments"),
    **{
        (route.method, "api/" + "/".join(route.pattern).replace("*", "1")): (
            route.action,
            f"det_jupyter:{route.resource}",
        )
        for route in ROUTES
    },
}
REQUESTS = [each for each in ENDPOINTS if each != ("GET", "socket")]
# Their answers depend on pages: test_server_questions.py.
ID = "([0-9a-f]+)"
QUESTIONS = {
    ("POST", "questions"): ("write", "det_jupyter:experiments"),
    ("PUT", "questions/0"): ("write", "det_jupyter:experiments"),
}


def test_every_handler_has_a_row(extension: Any) -> None:
    verbs = ("get", "head", "post", "put", "patch", "delete")
    handlers = {
        (verb.upper(), path.removeprefix("/det-jupyter/").removesuffix("(.*)").replace(ID, "0"))
        for path, handler, _ in extension.handlers
        for verb in verbs
        if getattr(handler, verb) is not RequestHandler._unimplemented_method
    }
    rows = {(verb, "api/" if path.startswith("api/") else path) for verb, path in ENDPOINTS}
    assert handlers == rows | QUESTIONS.keys()


@pytest.mark.parametrize("is_strict", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no token"),
        pytest.param({"Authorization": "token wrong"}, id="wrong token"),
        pytest.param({"Authorization": "Bearer "}, id="empty token"),
        pytest.param({"Cookie": "username-127-0-0-1=made-up"}, id="made-up cookie"),
    ],
)
async def test_strangers_reach_nothing(client: Client, headers: dict[str, str]) -> None:
    with master_stand_in() as master:
        for method, path in [*REQUESTS, *QUESTIONS]:
            answer = await client.ask(path, method, headers=headers)
            assert answer.status == 403, (method, path)
            assert answer.data["problems"], (method, path)
        assert await client.socket_status(headers) == 403
        assert master.asked == []


async def test_what_the_authorizer_denies_is_refused_and_says_what_is_missing(
    client: Client, allow: Callable[..., None], extension: Any
) -> None:
    everything = {needs for needs in ENDPOINTS.values() if needs}
    with master_stand_in() as master:
        for (method, path), needs in [*ENDPOINTS.items(), *QUESTIONS.items()]:
            if needs is None or path == "socket":
                continue
            allow(*everything - {needs})
            answer = await client.ask(path, method)
            assert answer.status == 403, (method, path)
            assert f"not allowed to {needs[0]} {needs[1]}" in answer.problem
        assert master.asked == []
        allow(*everything - {("read", "det_jupyter:experiments")})
        assert await client.socket_status(client.token) == 403
        assert extension._tabs == set()


async def test_a_user_who_may_do_one_thing_may_do_just_that(
    client: Client, allow: Callable[..., None]
) -> None:
    with master_stand_in() as master:
        for (method, path), needs in ENDPOINTS.items():
            if needs is None or path == "socket":
                continue
            allow(needs)
            answer = await client.ask(path, method)
            assert answer.status == 200, (method, path, answer.body)
        assert len(master.asked) == len(ROUTES)
        allow(("read", "det_jupyter:experiments"))
        assert await client.socket_status(client.token) == 101


async def test_a_cookie_alone_changes_nothing(client: Client) -> None:
    headers = {"Cookie": await client.cookie()}
    with master_stand_in() as master:
        for method, path in [*REQUESTS, *QUESTIONS]:
            answer = await client.ask(path, method, headers=headers)
            assert answer.status == (200 if method == "GET" else 403), (method, path)
        assert all(asked.method == "GET" for asked in master.asked)


async def test_a_cookie_with_its_xsrf_token_does_all(client: Client) -> None:
    headers = {"Cookie": await client.cookie(), "X-XSRFToken": XSRF}
    with master_stand_in():
        for method, path in REQUESTS:
            answer = await client.ask(path, method, headers=headers)
            assert answer.status == 200, (method, path, answer.body)
        assert await client.socket_status({"Cookie": headers["Cookie"]}) == 101


async def test_another_site_reaches_nothing_with_the_users_cookie(client: Client) -> None:
    headers = {"Cookie": await client.cookie(), "X-XSRFToken": XSRF, **EVIL}
    with master_stand_in() as master:
        for method, path in REQUESTS:
            answer = await client.ask(path, method, headers=headers)
            assert answer.status in (403, 404), (method, path)
        assert master.asked == []
    assert await client.socket_status({"Cookie": headers["Cookie"], **EVIL}) == 403
    null = {"Cookie": headers["Cookie"], "Origin": "null"}
    assert await client.socket_status(null) == 403


async def test_a_token_in_the_address_opens_a_socket(client: Client) -> None:
    token = client.app.identity_provider.token
    assert await client.socket_status({}, f"?token={token}") == 101
    assert await client.socket_status({}, "?token=wrong") == 403


async def test_the_handshake_says_what_a_user_may_do(
    client: Client, allow: Callable[..., None]
) -> None:
    everything = (await client.ask("info")).data
    assert everything["may_read"]
    assert everything["may_write"]
    assert everything["may"]["cluster"] == ["read", "write", "execute"]
    allow(("read", "det_jupyter:experiments"))
    some = (await client.ask("info")).data
    assert (some["may_read"], some["may_write"]) == (True, False)
    assert some["may"]["logs"] == []
    allow()
    nothing = (await client.ask("info")).data
    assert not nothing["may_read"]
    assert nothing["master"] == {"state": "stopped", "version": "", "problem": "", "command": ""}
