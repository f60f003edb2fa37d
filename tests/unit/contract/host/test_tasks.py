"""Coroutines that end together, and calls that may hang."""

from __future__ import annotations

import asyncio
import threading

import pytest

from det_jupyter.contract.host.tasks import BlockingCalls, in_thread, run_all


def test_first_error_cancels_the_others_and_is_raised_alone() -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("no such file")

    with pytest.raises(LookupError, match="no such file"):
        asyncio.run(run_all([wait(), fail(), wait()]))
    assert cancelled == [True, True]


def test_result_and_error_of_a_thread_are_those_of_the_call() -> None:
    assert asyncio.run(in_thread(lambda: threading.current_thread().daemon))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(lambda: 1 // 0))


def test_call_that_hangs_holds_up_no_other_and_is_made_once() -> None:
    answered = threading.Event()
    made = []

    def hang() -> str:
        made.append("hanging")
        answered.wait()
        return "late"

    async def look() -> list[dict[str, str]]:
        calls: BlockingCalls[str, str] = BlockingCalls()
        both = {"drive": hang, "disk": lambda: "fine"}
        found = [await calls.results(both, 0.05) for _ in range(3)]
        answered.set()
        return [*found, await calls.results({"drive": hang}, 60)]

    fine = {"disk": "fine"}
    assert asyncio.run(look()) == [fine, fine, fine, {"drive": "late"}]
    assert made == ["hanging"]


def test_result_of_a_call_that_is_no_longer_wanted_is_dropped() -> None:
    answered = threading.Event()

    async def look() -> tuple[dict[str, bool], dict[str, int]]:
        calls: BlockingCalls[str, int] = BlockingCalls()
        first = await calls.results({"old": lambda: int(answered.wait())}, 0.01)
        answered.set()
        return dict.fromkeys(first, True), await calls.results({"new": lambda: 2}, 60)

    assert asyncio.run(look()) == ({}, {"new": 2})


def test_error_of_a_call_is_raised_and_the_call_can_be_made_again() -> None:
    async def look() -> dict[str, int]:
        calls: BlockingCalls[str, int] = BlockingCalls()
        with pytest.raises(OSError, match="gone"):
            await calls.results({"disk": fail}, 60)
        return await calls.results({"disk": lambda: 1}, 60)

    def fail() -> int:
        raise OSError("gone")

    assert asyncio.run(look()) == {"disk": 1}
