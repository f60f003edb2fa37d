"""Questions of assistants to the user, shown as a dialog in the open pages of JupyterLab.

    POST questions          of an assistant's tool; answered when the user has answered
    event `question`        to all pages: show it; later, with an empty title: it is over
    PUT questions/ID        of a page: it shows the dialog, or the user's yes or no

Without a page that shows it, the answer is "unseen". A program with the server's token can answer,
too; with this token it can also make the change itself.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from tornado import web

from det_jupyter.contract.values.text import printable
from det_jupyter.errors import NotFound
from det_jupyter.front.jupyter_server.handlers import Endpoint, authenticated, require

SCHEMA = Path(__file__).parent / "events" / "question.yaml"
SCHEMA_ID = "https://github.com/det-jupyter/det_jupyter/events/question"
SEEN_S, ANSWER_S = 5.0, 300.0
_MOST_CHARACTERS = 10_000
_SHOWN, _ANSWERS = "shown", ("yes", "no")


class _Pending:
    def __init__(self) -> None:
        self.seen = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()


class OpenQuestions:
    """The questions that are open.

    Args:
        emit: Emits the event with this data.
        allowed: Names of the tools that need no question.
    """

    def __init__(
        self, emit: Callable[[dict[str, Any]], object], allowed: Collection[str] = ()
    ) -> None:
        self._emit = emit
        self._allowed = allowed
        self._open: dict[str, _Pending] = {}

    async def ask(self, tool: str, title: str, text: str) -> str:
        """Return yes, no, unanswered or unseen; a cancelled question is closed in the pages."""
        if tool in self._allowed:
            return "yes"
        name, pending = uuid.uuid4().hex, _Pending()
        self._open[name] = pending
        self._emit({"id": name, "title": title, "text": text})
        try:
            async with asyncio.timeout(SEEN_S):
                await pending.seen.wait()
            async with asyncio.timeout(ANSWER_S):
                return await pending.answer
        except TimeoutError:
            return "unanswered" if pending.seen.is_set() else "unseen"
        finally:
            del self._open[name]
            self._emit({"id": name, "title": "", "text": ""})

    def take(self, name: str, answer: str) -> None:
        """Take what a page says about a question; the first answer counts.

        Raises:
            NotFound: It is over.
        """
        if (pending := self._open.get(name)) is None:
            raise NotFound(
                "this question is over: it was answered, or the assistant does not wait"
            )
        pending.seen.set()
        if answer in _ANSWERS and not pending.answer.done():
            pending.answer.set_result(answer)


class AskQuestion(Endpoint):
    """`POST questions`: {tool, title, text}; answers {answer}."""

    def initialize(self, questions: OpenQuestions) -> None:
        self._questions = questions
        self._asking: asyncio.Task[str] | None = None

    @authenticated
    async def post(self) -> None:
        """Ask, and answer when the user has answered."""
        await require(self, "write", "experiments")
        body = self.get_json_body()
        body = body if isinstance(body, dict) else {}
        values = [body.get(key) for key in ("tool", "title", "text")]
        if not all(isinstance(value, str) and value for value in values):
            raise web.HTTPError(400, "expected tool, title and text, as texts")
        tool, title, text = (printable(str(value))[:_MOST_CHARACTERS] for value in values)
        self._asking = asyncio.create_task(self._questions.ask(tool, title, text))
        await asyncio.wait([self._asking])
        if not self._asking.cancelled():
            self.finish(json.dumps({"answer": self._asking.result()}))

    def on_connection_close(self) -> None:
        """Close the question: the assistant does not wait any more."""
        if self._asking is not None:
            self._asking.cancel()


class AnswerQuestion(Endpoint):
    """`PUT questions/ID`: {answer}, which is shown, yes or no."""

    def initialize(self, questions: OpenQuestions) -> None:
        self._questions = questions

    @authenticated
    async def put(self, name: str) -> None:
        """Take what a page says."""
        await require(self, "write", "experiments")
        body = self.get_json_body()
        answer = body.get("answer") if isinstance(body, dict) else None
        if answer not in (_SHOWN, *_ANSWERS):
            raise web.HTTPError(400, "expected an answer: shown, yes or no")
        self._questions.take(name, answer)
        self.finish(json.dumps({}))
