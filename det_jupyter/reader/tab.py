"""One browser tab: the documents that it follows, and its questions.

Invalid frames are answered with errors.

Questions are those of client/answers/answering.py, and `kept`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, assert_never

from det_jupyter.client import Client
from det_jupyter.client.answers.answering import (
    ANSWERERS,
    Answerer,
    Question,
    answer,
)
from det_jupyter.contract.documents.codec import pack, to_text
from det_jupyter.contract.messages.pages import KeptAnswer
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError, UsageError
from det_jupyter.reader.frames import Ack, Ask, Follow, Ping, Unfollow, args_of, error_frame, parse
from det_jupyter.reader.hub import Hub
from det_jupyter.reader.live_document import Following, LiveDocument
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.view import ViewState
from det_jupyter.view.forms.notebook_output import kept_forms

logger = logging.getLogger(__name__)

MOST_FOLLOWED = 100  # most documents that a tab follows
CHANGING = frozenset({"change", "command", "profile", "register", "tensorboard"})
MOST_OF_TAB = 12  # most questions of a tab at the same time
_NUM_THREADS = 16  # a question for a profile occupies a thread until the profile is recorded

READ_ONLY = "you may look at experiments on this server, and not change them"
TOO_MANY = "too many questions at once; ask again when some are answered"


class Questions:
    """Answers the questions of all tabs, in a pool of threads.

    Args:
        state_of: Returns the view state of an experiment.
    """

    def __init__(self, connection: MasterConnection, state_of: Callable[[int], ViewState]) -> None:
        def kept_answer(client: Client, experiment_id: int, question: Question) -> KeptAnswer:
            return KeptAnswer(kept=kept_forms(state_of(experiment_id)))

        self._connection = connection
        self._answerers: Mapping[str, Answerer] = {**ANSWERERS, "kept": kept_answer}
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="det-answer")
        # Buttons act one after the other, in the order in which they were pressed.
        self._commands = ThreadPoolExecutor(1, thread_name_prefix="det-command")

    async def answer(
        self, experiment_id: int, question: Mapping[str, Any], *, may_write: bool
    ) -> dict[str, Any]:
        """Return the answer, or `{"error": ...}`."""
        kind = str(question.get("type"))
        if kind in CHANGING and not may_write:
            return {"error": READ_ONLY}
        threads = self._commands if kind == "command" else self._threads
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(threads, self._answer, experiment_id, question)

    def close(self) -> None:
        for threads in (self._threads, self._commands):
            threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, experiment_id: int, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            client = self._connection.client()
        except DetError as error:
            return {"error": str(error)}
        return answer(client, experiment_id, question, self._answerers)


class Tab:
    """The reader's state of one browser tab.

    Args:
        send: Sends a frame to the tab.
        may_write: Whether the tab's user may change experiments.
    """

    def __init__(
        self,
        hub: Hub,
        questions: Questions,
        send: Callable[[str | bytes], None],
        *,
        may_write: bool,
    ) -> None:
        self._hub = hub
        self._questions = questions
        self._send = send
        self._may_write = may_write
        self._followed: dict[int, tuple[LiveDocument, Following]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def handle(self, message: str | bytes) -> None:
        """Handle a frame from the tab."""
        try:
            frame = parse(message)
        except UsageError as error:
            self._send(error_frame(None, error))
            return
        match frame:
            case Follow():
                self._follow(frame)
            case Ack():
                self._ack(frame)
            case Unfollow():
                self._leave(frame.id)
            case Ask():
                self._ask(frame)
            case Ping():
                self._send(to_text(op="pong"))
            case _:
                assert_never(frame)

    def close(self) -> None:
        """Leave all documents and cancel questions."""
        for number in list(self._followed):
            self._leave(number)
        for task in self._asking:
            task.cancel()

    def _follow(self, frame: Follow) -> None:
        self._leave(frame.id)
        self._followed = {n: pair for n, pair in self._followed.items() if not pair[1].is_over}
        following = Following(frame.id, frame.version, self._send)
        try:
            args = args_of(frame)
            if len(self._followed) >= MOST_FOLLOWED:
                raise UsageError(f"a tab can follow {MOST_FOLLOWED} documents at a time")
            document = self._hub.document(frame.document, args)
        except DetError as error:
            following.send_error(error)
            return
        self._followed[frame.id] = (document, following)
        document.add(following)

    def _ack(self, frame: Ack) -> None:
        if frame.id in self._followed:
            document, following = self._followed[frame.id]
            following.ack(frame.version)
            document.wake()

    def _leave(self, number: int) -> None:
        if number in self._followed:
            document, following = self._followed.pop(number)
            document.remove(following)
            self._hub.leave(document)

    def _ask(self, frame: Ask) -> None:
        if len(self._asking) >= MOST_OF_TAB:
            self._answer(frame.id, {"error": TOO_MANY})
            return
        task = asyncio.create_task(self._send_answer_to(frame))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _send_answer_to(self, frame: Ask) -> None:
        try:
            answer = await self._questions.answer(
                frame.experiment_id, frame.question, may_write=self._may_write
            )
            self._answer(frame.id, answer)
        except Exception as error:  # the boundary to the browser
            logger.exception("a question about experiment %d", frame.experiment_id)
            self._answer(frame.id, {"error": error_text(error)})

    def _answer(self, number: int, answer: dict[str, Any]) -> None:
        data = {name: value for name, value in answer.items() if name not in ("error", "request")}
        self._send(pack(data).frame(op="answer", id=number, error=answer.get("error", "")))
