"""Asks the user in JupyterLab: each Jupyter server of the user shows a dialog in its pages.

The servers are found by the files that they write for their user, with address and token; nothing
listens for answers here. The first answer counts, and closes the dialogs of the other servers.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from typing import Any, Literal, cast, get_args

import httpx

from det_jupyter.errors import Conflict
from det_jupyter.front.assistants.changes import Question

Answer = Literal["yes", "no", "unanswered", "unseen"]
_ANSWER_S = 330.0  # the server's own limit is shorter


async def require_yes(question: Question, *, is_own: bool = False) -> None:
    """Return if the user agrees in JupyterLab, or its settings allow the tool.

    Args:
        is_own: Whether this process is the Jupyter server to ask; others are not asked then.

    Raises:
        Conflict: The user has not agreed; the message says how to.
    """
    servers = await asyncio.to_thread(_running_servers)
    if is_own:
        servers = [server for server in servers if server["pid"] == os.getpid()]
    check(await _first_answer(servers, question), question.tool)


def check(answer: Answer, tool: str) -> None:
    """Raise a Conflict unless the answer is yes."""
    match answer:
        case "yes":
            return
        case "no":
            raise Conflict(f"{tool}: the user said no; nothing is changed")
        case "unanswered":
            raise Conflict(
                f"{tool}: the user has not answered in JupyterLab; nothing is changed. "
                "Ask the user whether to call it again"
            )
        case "unseen":
            raise Conflict(
                f"{tool}: it needs the user's yes, and no JupyterLab with det_jupyter is open to "
                "ask in; nothing is changed. The user can open one and let you call it again, or "
                f"allow it always: `det mcp --allow {tool}` in the assistant's settings"
            )


def _running_servers() -> list[dict[str, Any]]:
    from jupyter_server.serverapp import list_running_servers  # it takes half a second

    return [each for each in list_running_servers() if each["token"] and not each.get("sock")]


async def _first_answer(servers: list[dict[str, Any]], question: Question) -> Answer:
    """Return the first yes or no; without one, what came closest."""
    asked = {asyncio.create_task(_ask(server, question)) for server in servers}
    answers: set[Answer] = {"unseen"}
    try:
        for one in asyncio.as_completed(asked):
            answer = await one
            if answer in ("yes", "no"):
                return answer
            answers.add(answer)
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return "unanswered" if "unanswered" in answers else "unseen"


async def _ask(server: dict[str, Any], question: Question) -> Answer:
    """Ask by one server; one that does not answer, or lacks the extension, has not shown it."""
    headers = {"Authorization": f"token {server['token']}"}
    url = f"{server['url']}det-jupyter/questions"
    timeout = httpx.Timeout(_ANSWER_S, connect=2.0)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as http:
        try:
            response = await http.post(url, json=asdict(question), headers=headers)
            answer = response.json()["answer"] if response.is_success else None
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return "unseen"
    return cast(Answer, answer) if answer in get_args(Answer) else "unseen"
