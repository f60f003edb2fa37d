"""A check of an agent's connections never holds up what the agent does meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest

from det_jupyter.agent.link import checking
from det_jupyter.contract.messages import CheckConnections, ConnectionsChecked, GangLink


def measured(probe: Path) -> ConnectionsChecked:
    async def measure() -> ConnectionsChecked:
        master = httpx.MockTransport(lambda _: httpx.Response(200))
        async with httpx.AsyncClient(transport=master, base_url="http://master") as http:
            link = GangLink(
                agents=["b"], addresses=["here"], ports=[1], certificate="", secret="s"
            )
            command = CheckConnections(check_id="c", link=link, probe=str(probe))
            return await checking.measure(http, "/agents/b", command, "b")

    return asyncio.run(measure())


def test_a_folder_is_in_common_if_the_masters_file_is_there(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.touch()
    assert measured(probe).has_folder
    assert not measured(probe).has_folder


def test_a_folder_that_does_not_answer_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(_: Path) -> bool:
        threading.Timer(0.5, answers.set).start()
        return answers.wait(600)

    monkeypatch.setattr(checking, "_take", hang)
    monkeypatch.setattr(checking, "_FOLDER_S", 0.05)
    assert not measured(tmp_path / "probe").has_folder
