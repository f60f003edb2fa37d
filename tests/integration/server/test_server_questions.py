"""Questions of assistants, in a real Jupyter server: shown by pages, answered once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from det_jupyter.errors import Conflict
from det_jupyter.front.assistants import asking
from det_jupyter.front.assistants.changes import Question
from det_jupyter.front.jupyter_server import questions
from tests.integration.server.support import Client

KILL = {"tool": "kill", "title": "An assistant asks to kill", "text": "Experiment 7"}


@pytest.fixture
def events(jp_serverapp: Any, extension: Any) -> asyncio.Queue[dict[str, Any]]:
    """Return the questions that pages get."""
    found: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def listen(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        found.put_nowait(data)

    jp_serverapp.event_logger.add_listener(schema_id=questions.SCHEMA_ID, listener=listen)
    return found


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_an_answer_of_a_page_reaches_the_assistant(
    client: Client, events: asyncio.Queue[dict[str, Any]], answer: str
) -> None:
    asked = asyncio.create_task(client.ask("questions", "POST", body=KILL))
    question = await events.get()
    assert (question["title"], question["text"]) == (KILL["title"], KILL["text"])
    place = f"questions/{question['id']}"
    assert (await client.ask(place, "PUT", body={"answer": "shown"})).status == 200
    assert (await client.ask(place, "PUT", body={"answer": answer})).status == 200
    assert (await asked).data == {"answer": answer}
    assert await events.get() == {"id": question["id"], "title": "", "text": ""}
    late = await client.ask(place, "PUT", body={"answer": "yes"})
    assert (late.status, late.data["error"]) == (404, "NotFound")


async def test_a_question_that_no_page_shows_is_unseen(
    client: Client, events: asyncio.Queue[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "SEEN_S", 0.01)
    assert (await client.ask("questions", "POST", body=KILL)).data == {"answer": "unseen"}


async def test_a_question_that_is_shown_and_not_answered_ends(
    client: Client, events: asyncio.Queue[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_S", 0.01)
    asked = asyncio.create_task(client.ask("questions", "POST", body=KILL))
    place = f"questions/{(await events.get())['id']}"
    await client.ask(place, "PUT", body={"answer": "shown"})
    assert (await asked).data == {"answer": "unanswered"}


@pytest.mark.parametrize("det_options", [{"allowed_tools": ["kill"]}])
async def test_what_the_settings_allow_is_not_asked(
    client: Client, events: asyncio.Queue[dict[str, Any]]
) -> None:
    assert (await client.ask("questions", "POST", body=KILL)).data == {"answer": "yes"}
    assert events.empty()


async def test_strange_questions_and_answers_are_refused(client: Client, extension: Any) -> None:
    bodies: list[Any] = [[], {}, KILL | {"text": ""}, KILL | {"tool": 7}]
    for body in bodies:
        assert (await client.ask("questions", "POST", body=body)).status == 400
    assert (await client.ask("questions/ab", "PUT", body={"answer": "perhaps"})).status == 400
    assert (await client.ask("questions/ab", "PUT", body={"answer": "yes"})).status == 404


async def test_asking_and_answering_need_the_right_to_change_experiments(
    client: Client, allow: Callable[..., None]
) -> None:
    allow(("read", "det_jupyter:experiments"))
    assert (await client.ask("questions", "POST", body=KILL)).status == 403
    assert (await client.ask("questions/ab", "PUT", body={"answer": "yes"})).status == 403


@pytest.fixture
def server(client: Client, jp_serverapp: Any) -> dict[str, Any]:
    """Return what the server's own file says of it."""
    url = f"http://127.0.0.1:{client.http_port}{client.base_url}"
    return {"url": url, "token": jp_serverapp.identity_provider.token, "pid": 1}


async def test_a_tool_asks_by_the_servers_own_address(
    client: Client,
    events: asyncio.Queue[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    server: dict[str, Any],
) -> None:
    monkeypatch.setattr(asking, "_running_servers", lambda: [server, server | {"token": "no"}])
    asked = asyncio.create_task(asking.require_yes(Question(**KILL)))
    question = await events.get()
    await client.ask(f"questions/{question['id']}", "PUT", body={"answer": "no"})
    with pytest.raises(Conflict, match="the user said no"):
        await asked


async def test_a_question_is_closed_when_the_assistant_stops_waiting(
    client: Client,
    events: asyncio.Queue[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    server: dict[str, Any],
) -> None:
    monkeypatch.setattr(asking, "_running_servers", lambda: [server])
    asked = asyncio.create_task(asking.require_yes(Question(**KILL)))
    question = await events.get()
    asked.cancel()
    assert await events.get() == {"id": question["id"], "title": "", "text": ""}
