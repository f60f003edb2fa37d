"""Answers the questions of pages: those of live/answers.py, and buttons."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.follow import fetch_cluster
from det_jupyter.errors import DetError
from det_jupyter.feeder.master import MasterLine
from det_jupyter.live.answers import ANSWERERS, answer
from det_jupyter.live.commands import carry_out_command
from det_jupyter.live.kept import kept_answer

CHANGING = frozenset({"change", "command", "profile"})
MOST_OF_TAB = 12  # questions at a time
_NUM_THREADS = 16  # a profile takes one for as long as it takes

READ_ONLY = "you may look at experiments on this server, and not change them"
TOO_MANY = "too many questions at once; ask again when some are answered"


def command_answer(
    client: Client, experiment_id: int, question: Mapping[str, Any]
) -> dict[str, Any]:
    """Carry out the button `command`: a verb, or a remedy by its lines."""
    queue = fetch_cluster(client, experiment_id).queue
    reasons = [entry.reason for entry in queue if entry.experiment_id == experiment_id]
    carry_out_command(client, experiment_id, str(question.get("command")), reasons)
    return {}


ANSWERERS_HERE = {**ANSWERERS, "command": command_answer, "kept": kept_answer}


class Questions:
    """Answers questions in threads.

    Args:
        line: Talks to the master.
    """

    def __init__(self, line: MasterLine) -> None:
        self._line = line
        self._threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="det-answer")

    async def answer(
        self, experiment_id: int, question: Mapping[str, Any], *, may_write: bool
    ) -> dict[str, Any]:
        """Return the answer; its `error` says why there is none."""
        if str(question.get("type")) in CHANGING and not may_write:
            return {"error": READ_ONLY}
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._answer, experiment_id, question)

    def close(self) -> None:
        """Take no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, experiment_id: int, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            client = self._line.client()
        except DetError as error:
            return {"error": str(error)}
        return answer(client, experiment_id, question, ANSWERERS_HERE)
