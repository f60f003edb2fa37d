"""Questions of pages that make no sense are answered with a sentence."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.tab import Questions


class Line(MasterConnection):
    """A connection to a master that is not asked."""

    def __init__(self) -> None:
        super().__init__(may_start=False)

    def client(self) -> Client:
        return cast("Client", None)


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ({}, "there is no question None"),
        ({"type": ["change"]}, "there is no question ['change']"),
        ({"type": "change", "changes": [1]}, "change: got [1], expected changes by name"),
        ({"type": "change", "changes": {"a": 1}}, "change: got 'a', expected some of lr, "),
    ],
)
def test_what_is_no_question_is_answered_with_a_sentence(
    question: dict[str, Any], sentence: str
) -> None:
    questions = Questions(Line())
    answer = asyncio.run(questions.answer(1, question, may_write=True))
    questions.close()
    assert answer["error"].startswith(sentence)
