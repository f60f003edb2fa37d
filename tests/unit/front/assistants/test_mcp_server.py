"""`det mcp` with a client of the SDK, in this process: reading at once, changes after a yes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp import Client
from mcp.types import ElicitResult

from det_jupyter.front.assistants import asking, mcp_server
from det_jupyter.front.assistants.mcp_server import make_server
from det_jupyter.front.assistants.tool_table import CHANGES, TOOLS
from tests.unit.front.cli.conftest import Master, Typed

ERAS = ("legacy", "auto")  # the handshake of 2025 and before, and the protocol of 2026


class User:
    """A user who answers each form, and the forms."""

    def __init__(self, action: str, **content: Any) -> None:
        self.action: Any = action
        self.content = content
        self.asked: list[str] = []

    def __str__(self) -> str:
        return f"{self.action} {self.content}"

    async def answer(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action=self.action, content=self.content)


@cache
def usual_server() -> Any:
    """Return the server without options; tests share it, as its schemas take 0.1 s."""
    return make_server()


def talk(
    talking: Callable[[Client], Awaitable[Any]], *, server: Any = None, **options: Any
) -> Any:
    """Return what `talking` returns, with a client of the server."""

    async def connected() -> Any:
        async with Client(server or usual_server(), **options) as client:
            return await talking(client)

    return asyncio.run(connected())


def call(name: str, values: dict[str, Any], **options: Any) -> tuple[bool, str]:
    """Return whether a call has failed, and its text."""

    async def talking(client: Client) -> tuple[bool, str]:
        result = await client.call_tool(name, values)
        return bool(result.is_error), "\n".join(block.text for block in result.content)

    result: tuple[bool, str] = talk(talking, **options)
    return result


def test_the_tools_say_what_they_take_and_whether_they_change_something(master: Master) -> None:
    async def talking(client: Client) -> Any:
        return (await client.list_tools()).tools

    tools = {each.name: each for each in talk(talking)}
    assert [*tools] == [each.name for each in TOOLS]
    assert {name for name, each in tools.items() if not each.annotations.read_only_hint} == {
        *CHANGES
    }
    assert tools["kill"].annotations.destructive_hint
    schema = tools["kill"].input_schema
    assert schema["required"] == ["ids"]
    assert schema["properties"]["ids"]["items"] == {"type": "integer"}
    assert [*schema["properties"]] == ["ids"]


@pytest.mark.parametrize("mode", ERAS)
def test_reading_asks_no_question(master: Master, mode: str) -> None:
    user = User("decline")
    failed, text = call("list_experiments", {}, mode=mode, elicitation_callback=user.answer)
    assert not failed
    assert text.splitlines()[0].split()[:3] == ["id", "name", "state"]
    assert user.asked == []


@pytest.mark.parametrize("mode", ERAS)
def test_a_change_is_made_after_a_yes_in_the_form(master: Master, mode: str) -> None:
    user = User("accept")
    failed, text = call("kill", {"ids": [7]}, mode=mode, elicitation_callback=user.answer)
    assert not failed, text
    assert master.asked == [(7, "kill")]
    (question,) = user.asked
    assert "det experiment kill 7" in question


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    "user", [User("decline"), User("cancel"), User("accept", agree=False)], ids=str
)
def test_without_a_yes_nothing_is_changed(master: Master, mode: str, user: User) -> None:
    failed, text = call("kill", {"ids": [7]}, mode=mode, elicitation_callback=user.answer)
    assert failed
    assert "the user said no; nothing is changed" in text
    assert master.asked == []


@pytest.mark.parametrize("mode", ERAS)
def test_a_question_is_asked_once_also_if_its_facts_change_meanwhile(
    master: Master, mode: str
) -> None:
    class Renaming(User):
        async def answer(self, context: Any, params: Any) -> ElicitResult:
            master.view = master.view.model_copy(update={"name": f"name {len(self.asked)}"})
            return await super().answer(context, params)

    user = Renaming("accept")
    for _ in range(2):
        failed, text = call("kill", {"ids": [7]}, mode=mode, elicitation_callback=user.answer)
        assert not failed, text
    first, second = user.asked
    assert "name 0" not in first
    assert "“name 0”" in second


def test_without_forms_jupyterlab_is_asked(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def say_yes(question: Any) -> None:
        asked.append(question.tool)

    monkeypatch.setattr(mcp_server, "require_yes", say_yes)
    failed, _ = call("pause", {"ids": [7]})
    assert (failed, asked, master.asked) == (False, ["pause"], [(7, "pause")])


def test_without_forms_and_jupyterlab_it_is_said_what_is_needed(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_running_servers", lambda: [])
    failed, text = call("pause", {"ids": [7]})
    assert failed
    assert "det mcp --allow pause" in text
    assert master.asked == []


def test_what_is_allowed_asks_no_question(master: Master) -> None:
    failed, _ = call("pause", {"ids": [7]}, server=make_server({"pause"}))
    assert (failed, master.asked) == (False, [(7, "pause")])


def test_a_server_that_only_reads_has_no_changes(master: Master) -> None:
    async def talking(client: Client) -> Any:
        return (await client.list_tools()).tools

    names = {each.name for each in talk(talking, server=make_server(is_read_only=True))}
    assert names == {each.name for each in TOOLS} - {*CHANGES}


def test_wrong_values_are_said_before_the_user_is_asked(master: Master) -> None:
    user = User("accept")
    failed, text = call("kill", {"ids": [99]}, elicitation_callback=user.answer)
    assert failed
    assert "there is no experiment 99" in text
    assert user.asked == []


@pytest.mark.parametrize("mode", ERAS)
def test_misspelt_arguments_are_refused(master: Master, mode: str) -> None:
    failed, text = call("list_experiments", {"stat": "running"}, mode=mode)
    assert failed
    assert text.startswith("list_experiments: got stat, expected some of text, name, ")


def test_the_skill_is_a_resource(master: Master) -> None:
    async def talking(client: Client) -> Any:
        return (await client.read_resource("det://skill")).contents

    (content,) = talk(talking)
    assert content.text.startswith("---\nname: det-jupyter\n")


def test_the_skill_is_printed(det: Typed) -> None:
    assert det("mcp --skill").out.startswith("---\nname: det-jupyter\n")


def test_unknown_names_to_allow_are_refused(det: Typed) -> None:
    shell = det("mcp --allow pause,fly")
    assert shell.status == 2
    assert "--allow: got fly, expected some of submit, fork" in shell.err
