"""Questions of pages: those that make no sense, and those that no master can answer."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.processes import birth_of
from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.tab import Questions
from det_jupyter.view import ViewState


class Line(MasterConnection):
    """A connection to a master that is not asked."""

    def client(self) -> Client:
        return cast("Client", None)


def no_state(number: int) -> ViewState:
    raise NotFound(f"there is no experiment {number}")


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
    questions = Questions(Line(), no_state)
    answer = asyncio.run(questions.answer(1, question, may_write=True))
    questions.close()
    assert answer["error"].startswith(sentence)


def announce(protocol: int) -> None:
    """Have this process look like a master."""
    info = MasterInfo(
        url="http://127.0.0.1:9", token="t", pid=os.getpid(), birth=birth_of(os.getpid()) or "",
        started_at=1.0, version="0", protocol=protocol, python="p", data_dir="d",
    )  # fmt: skip
    paths.master_file().parent.mkdir(parents=True, exist_ok=True)
    paths.write_private(paths.master_file(), info.model_dump_json())


def test_questions_wait_for_a_master_of_our_version_and_for_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    connection = MasterConnection()
    with pytest.raises(MasterUnreachable, match="start it"):
        connection.client()
    questions = Questions(connection, no_state)
    answer = asyncio.run(questions.answer(1, {"type": "config"}, may_write=True))
    questions.close()
    assert "start it" in answer["error"]
    announce(PROTOCOL + 1)
    with pytest.raises(MasterUnreachable, match=f"protocol {PROTOCOL + 1}"):
        connection.client()
    paths.master_file().unlink()
    paths.master_file().mkdir()
    with pytest.raises(MasterUnreachable):
        connection.client()
    paths.master_file().rmdir()
    announce(PROTOCOL)
    client = connection.client()
    assert connection.client() is client
    client.session.close()
