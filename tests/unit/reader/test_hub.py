"""Documents are shared, and end when no tab is left; tabs are bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.documents.codec import unpack
from det_jupyter.errors import MasterUnreachable
from det_jupyter.master.service.storing.store import Store
from det_jupyter.reader import hub as hubs
from det_jupyter.reader import tab as tabs
from det_jupyter.reader.frames import ComparisonArgs, ExperimentArgs, NoArgs, UsageArgs
from det_jupyter.reader.hub import Hub
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.replica import Replica
from det_jupyter.reader.tab import MOST_OF_TAB, Questions, Tab


class Nobody(MasterConnection):
    """A connection to no master."""

    def client(self) -> Any:
        raise MasterUnreachable("no master")


Test = Callable[[Hub], Coroutine[Any, Any, None]]


class Slow(Questions):
    """Answers when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()

    async def answer(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        await self.may_answer.wait()
        return {"error": "", "type": "config", "yaml": "a: 1"}


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Test], None]:
    """Run a test with a hub, whose master has nothing."""

    def run_one(test: Test) -> None:
        async def act() -> None:
            path = tmp_path / "det.sqlite3"
            replica = Replica(path)
            hub = Hub(replica, path, Nobody(), linger_s=0.01)
            try:
                await test(hub)
            finally:
                hub.close()
                while threads():
                    await asyncio.sleep(0.01)
                replica._forget()

        with closing(Store(tmp_path / "det.sqlite3")):
            asyncio.run(act())

    return run_one


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"det-replica", "det-samples"}


def test_documents_are_one_for_all_tabs_and_end_with_the_last(
    run: Callable[[Test], None],
) -> None:
    async def act(hub: Hub) -> None:
        assert hub.document("cluster", NoArgs()) is hub.document("cluster", NoArgs())
        assert hub.document("usage", UsageArgs(period_s=2)) is not hub.document(
            "usage", UsageArgs()
        )
        one, other = (Tab(hub, Slow(), lambda frame: None, may_write=True) for _ in range(2))
        for tab in (one, other):
            tab.handle('{"op": "follow", "id": 1, "document": "cluster"}')
            tab.handle('{"op": "follow", "id": 2, "document": "usage"}')
        assert threads() == {"det-replica", "det-samples"}
        one.close()
        await asyncio.sleep(0.05)
        assert threads()
        other.close()
        while threads():
            await asyncio.sleep(0.02)

    run(act)


def test_each_document_has_its_source(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "LiveDocument", lambda source, *_: source)

    async def act(hub: Hub) -> None:
        made: list[Any] = [
            hub.document("experiments", NoArgs()),
            hub.document("cluster", NoArgs()),
            hub.document("trials", NoArgs()),
            hub.document("usage", UsageArgs(period_s=2)),
            hub.document("experiment", ExperimentArgs(experiment_id=7, chosen=3)),
            hub.document("comparison", ComparisonArgs(experiment_ids=[3, 7])),
        ]
        assert [(type(each).__name__, each.period_s) for each in made] == [
            ("ExperimentsSource", 0.1), ("StateSource", 0.25), ("StateSource", 1.0),
            ("UsageSource", 2.0), ("ExperimentSource", 0.25), ("StateSource", 2.0),
        ]  # fmt: skip
        hub._documents.clear()

    run(act)


def test_a_tab_follows_so_many_documents_and_asks_so_many_questions(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs, "MOST_FOLLOWED", 3)
    monkeypatch.setattr(hubs, "_MOST_FOLLOWED", 2)

    async def act(hub: Hub) -> None:
        said: list[dict[str, Any]] = []
        slow = Slow()
        tab = Tab(hub, slow, lambda frame: said.append(unpack(frame)), may_write=True)
        for number in range(1, 4):
            tab.handle(
                f'{{"op": "follow", "id": {number}, "document": "experiment", '
                f'"args": {{"experiment_id": {number}}}}}'
            )
        assert [(each["id"], each["error"]) for each in said] == [
            (
                3,
                "2 experiments are shown in pages or waited for, as many as one reader follows; "
                "close some pages, or wait for fewer experiments",
            )
        ]
        for number in (4, 5):
            tab.handle(f'{{"op": "follow", "id": {number}, "document": "cluster"}}')
        assert (said[-1]["id"], said[-1]["error"]) == (5, "a tab can follow 3 documents at a time")
        for number in range(MOST_OF_TAB + 1):
            tab.handle(
                f'{{"op": "ask", "id": {number}, "experiment_id": 1, "question": '
                '{"type": "config"}}'
            )
        assert said[-1]["error"].startswith("too many questions at once")
        await asyncio.sleep(0)
        slow.may_answer.set()

        def answers() -> list[dict[str, Any]]:
            return [each for each in said if each["op"] == "answer" and not each["error"]]

        while len(answers()) < MOST_OF_TAB:
            await asyncio.sleep(0.01)
        assert answers()[0]["data"] == {"type": "config", "yaml": "a: 1"}
        tab.close()

    run(act)


def test_experiments_that_no_tab_follows_any_more_leave_room_for_others(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, "_MOST_FOLLOWED", 2)

    async def act(hub: Hub) -> None:
        hub._linger_s = 600.0
        said: list[dict[str, Any]] = []
        for number in range(1, 5):  # as a loop that waits for each
            tab = Tab(hub, Slow(), lambda frame: said.append(unpack(frame)), may_write=True)
            tab.handle(
                f'{{"op": "follow", "id": 1, "document": "experiment", '
                f'"args": {{"experiment_id": {number}}}}}'
            )
            tab.close()
        assert said == []

    run(act)


def test_documents_that_are_over_leave_room_for_others(
    run: Callable[[Test], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tabs, "MOST_FOLLOWED", 1)

    async def act(hub: Hub) -> None:
        said: list[dict[str, Any]] = []
        tab = Tab(hub, Slow(), lambda frame: said.append(unpack(frame)), may_write=True)
        args = ExperimentArgs(experiment_id=7, chosen=None)
        before = hub.document("experiment", args)
        for number in (1, 2):
            tab.handle(
                f'{{"op": "follow", "id": {number}, "document": "experiment", '
                '"args": {"experiment_id": 7}}'
            )
            while len(said) < number:
                await asyncio.sleep(0.01)
        assert [each["error"] for each in said] == [
            "there is no experiment 7; `list` shows those that are"
        ] * 2
        assert hub.document("experiment", args) is not before, "it is not kept"
        tab.close()

    run(act)
