"""One tab's socket: what it follows and asks. Frames that make no sense are answered as errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, assert_never

from det_jupyter.errors import DetError, UsageError
from det_jupyter.feeder.codec import pack, to_text
from det_jupyter.feeder.frames import Ack, Ask, Follow, Leave, Ping, args_of, parse
from det_jupyter.feeder.hub import Hub
from det_jupyter.feeder.questions import MOST_OF_TAB, TOO_MANY, Questions
from det_jupyter.feeder.topic import Following, Topic
from det_jupyter.words import error_text

logger = logging.getLogger(__name__)

MOST_TOPICS = 100


class Tab:
    """A tab.

    Args:
        hub: Has the topics.
        questions: Answers.
        send: Sends a frame.
        may_write: Whether it may change anything.
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
        self._followed: dict[int, tuple[Topic, Following]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def take(self, message: str | bytes) -> None:
        """Do what a frame says."""
        try:
            frame = parse(message)
        except UsageError as error:
            self._send(to_text(op="error", id=None, error=str(error)))
            return
        match frame:
            case Follow():
                self._follow(frame)
            case Ack():
                self._ack(frame)
            case Leave():
                self._leave(frame.id)
            case Ask():
                self._ask(frame)
            case Ping():
                self._send(to_text(op="pong"))
            case _:
                assert_never(frame)

    def close(self) -> None:
        """Leave all topics; answers that come are not sent."""
        for number in list(self._followed):
            self._leave(number)
        for task in self._asking:
            task.cancel()

    def _follow(self, frame: Follow) -> None:
        self._leave(frame.id)
        self._followed = {n: pair for n, pair in self._followed.items() if not pair[1].is_over}
        following = Following(frame.id, frame.since, self._send)
        try:
            args = args_of(frame)
            if len(self._followed) >= MOST_TOPICS:
                raise UsageError(f"a tab can follow {MOST_TOPICS} topics at a time")
            topic = self._hub.topic(frame.topic, args)
        except DetError as error:
            following.send_error(str(error))
            return
        self._followed[frame.id] = (topic, following)
        topic.add(following)

    def _ack(self, frame: Ack) -> None:
        if frame.id in self._followed:
            topic, following = self._followed[frame.id]
            following.ack(frame.seq)
            topic.wake()

    def _leave(self, number: int) -> None:
        if number in self._followed:
            topic, following = self._followed.pop(number)
            topic.remove(following)
            self._hub.leave(topic)

    def _ask(self, frame: Ask) -> None:
        if len(self._asking) >= MOST_OF_TAB:
            self._answer(frame.id, {"error": TOO_MANY})
            return
        task = asyncio.create_task(self._ask_and_answer(frame))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask_and_answer(self, frame: Ask) -> None:
        try:
            said = await self._questions.answer(
                frame.experiment_id, frame.question, may_write=self._may_write
            )
            self._answer(frame.id, said)
        except Exception as error:  # the boundary to the browser
            logger.exception("a question about experiment %d", frame.experiment_id)
            self._answer(frame.id, {"error": error_text(error)})

    def _answer(self, number: int, said: dict[str, Any]) -> None:
        data = {name: value for name, value in said.items() if name not in ("error", "request")}
        self._send(pack(data).frame(op="answer", id=number, error=said.get("error", "")))
