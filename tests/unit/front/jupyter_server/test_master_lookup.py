"""The master is looked for in a thread; requests that come meanwhile share the result."""

from __future__ import annotations

import asyncio
import threading

import pytest

from det_jupyter.contract.messages import MasterInfo
from det_jupyter.errors import DetError, MasterUnreachable, ProtocolMismatch
from det_jupyter.front.jupyter_server import master_lookup
from det_jupyter.front.jupyter_server.master_lookup import MasterLookup


class Search:
    """Stands for `find_master`: counts its calls and waits until it may return."""

    def __init__(self, *errors: Exception) -> None:
        self.num = 0
        self.may_return = threading.Event()
        self._errors = list(errors)

    def __call__(self) -> MasterInfo | None:
        self.num += 1
        assert self.may_return.wait(600)
        if self._errors:
            raise self._errors.pop(0)
        return None


def installed(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> Search:
    search = Search(*errors)
    monkeypatch.setattr(master_lookup, "find_master", search)
    return search


def test_those_who_ask_at_once_share_one_search_and_the_next_one_searches_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = installed(monkeypatch)

    async def act() -> None:
        lookup = MasterLookup()
        asking = [asyncio.create_task(lookup.state()) for _ in range(3)]
        await asyncio.sleep(0.02)
        search.may_return.set()
        assert {state.state for state in await asyncio.gather(*asking)} == {"stopped"}
        assert search.num == 1
        await lookup.state()
        assert search.num == 2

    asyncio.run(act())


def test_an_error_reaches_all_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    search = installed(monkeypatch, DetError("its folder is gone"))
    search.may_return.set()

    async def act() -> None:
        lookup = MasterLookup()
        found = await asyncio.gather(lookup.find(), lookup.find(), return_exceptions=True)
        assert [str(each) for each in found] == ["its folder is gone"] * 2
        assert all(isinstance(each, MasterUnreachable) for each in found)

    asyncio.run(act())


def test_a_folder_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    search = installed(monkeypatch)
    monkeypatch.setattr(master_lookup, "_FIND_TIMEOUT_S", 0.01)

    async def act() -> None:
        state = await MasterLookup().state()
        assert (state.state, "did not answer within" in state.problem) == ("stopped", True)
        search.may_return.set()
        await asyncio.sleep(0.02)

    asyncio.run(act())


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ProtocolMismatch("of version 0.2", command="det master stop"), "mismatch"),
        (MasterUnreachable("it hangs", command="kill 7"), "silent"),
        (MasterUnreachable("the folder is gone"), "stopped"),
    ],
)
def test_what_is_wrong_becomes_a_state(
    monkeypatch: pytest.MonkeyPatch, error: DetError, state: str
) -> None:
    installed(monkeypatch, error).may_return.set()
    found = asyncio.run(MasterLookup().state())
    assert (found.state, found.problem) == (state, str(error))
