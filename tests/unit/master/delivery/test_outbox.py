"""The outbox: which places are sent to, in which turn, and what ends that."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from det_jupyter.master.delivery import outbox as module
from det_jupyter.master.delivery.outbox import Outbox
from det_jupyter.master.service.service import Service
from tests.waiting import until


class Channel:
    """Sends to a place until a test lets it end."""

    def __init__(self, **due: float) -> None:
        self.due = due
        self.failures: list[Exception] = []
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.looks = 0

    async def find(self) -> None:
        self.looks += 1
        if self.failures:
            raise self.failures.pop()

    def due_at(self) -> Mapping[str, float]:
        return self.due

    async def send(self, place: str) -> None:
        self.began.append(place)
        self.ends[place] = asyncio.Event()
        await self.ends[place].wait()


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def play(
    channel: Channel,
    scene: Callable[[Outbox[str], Clock], Awaitable[object]],
    *,
    given_back: list[int] | None = None,
) -> None:
    give_back = ([] if given_back is None else given_back).append
    reserve = SimpleNamespace(give_back=lambda: give_back(1))
    service = cast(Service, SimpleNamespace(reserve=reserve))

    async def run() -> None:
        clock = Clock()
        outbox = Outbox[str](channel, service, clock=clock, period_s=0.001)
        await scene(outbox, clock)
        await outbox.close()
        assert outbox.sending == {}

    asyncio.run(run())


async def ended(outbox: Outbox[str], channel: Channel, place: str) -> None:
    channel.ends[place].set()
    await until(lambda: place not in outbox.sending, "it has ended")


def test_places_are_sent_to_side_by_side_when_they_are_due() -> None:
    channel = Channel(a=0.0, b=100.0, c=100.1)

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        assert await outbox.start_due() == 0.001  # the next look is before another is due
        await until(lambda: channel.began == ["a", "b"], "it begins")
        await outbox.start_due()
        assert list(outbox.sending) == ["a", "b"]
        clock.now = 100.1
        await outbox.start_due()
        assert list(outbox.sending) == ["a", "b", "c"]

    play(channel, scene)


def test_the_next_turn_is_that_of_the_place_whose_last_one_is_longest_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_AT_ONCE", 1)
    channel = Channel(a=0.0, b=0.0, c=0.0)

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        for num in range(1, 6):
            await outbox.start_due()
            await until(lambda num=num: len(channel.began) == num, "it begins")  # type: ignore[misc]
            await ended(outbox, channel, channel.began[-1])
            clock.now += 1

    play(channel, scene)
    assert channel.began == ["a", "b", "c", "a", "b"]


def test_a_place_for_which_nothing_waited_meanwhile_is_not_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_AT_ONCE", 1)
    channel = Channel(a=0.0)

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        for due in ({"a": 0.0}, {}, {"a": 0.0, "b": 0.0}):
            channel.due = due
            await outbox.start_due()
            if outbox.sending:
                await until(lambda: len(channel.ends) == len(channel.began), "it begins")
                await asyncio.sleep(0)
                await ended(outbox, channel, channel.began[-1])
        assert channel.began == ["a", "b"]

    play(channel, scene)


@pytest.mark.parametrize(
    ("most", "later_s", "other_at", "expected"),
    [(1, 60.0, 0.0, True), (1, 60.1, 0.0, False), (1, 60.1, 1e9, True), (2, 60.1, 0.0, True)],
)
def test_a_turn_is_over_after_a_minute_if_there_is_no_room_for_another_that_is_due(
    monkeypatch: pytest.MonkeyPatch, most: int, later_s: float, other_at: float, expected: bool
) -> None:
    monkeypatch.setattr(module, "_MOST_AT_ONCE", most)
    channel = Channel(a=0.0)

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        await outbox.start_due()
        channel.due["b"] = other_at
        clock.now += later_s
        assert outbox.has_turn("a") == expected

    play(channel, scene)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_place_whose_attempt_cannot_be_stored_rests_and_gets_the_reserve_of_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(module, "_AFTER_ERROR_S", 0.001)
    channel, given_back = Channel(a=0.0), list[int]()

    async def fail(place: str) -> None:
        raise OSError(number, "it fails")

    monkeypatch.setattr(channel, "send", fail)

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        await outbox.start_due()
        await until(lambda: not outbox.sending, "it rests no longer")

    play(channel, scene, given_back=given_back)
    assert len(given_back) == (number == errno.ENOSPC)


def test_a_failure_to_look_ends_no_sending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AFTER_ERROR_S", 0.001)
    channel = Channel(a=0.0)
    channel.failures = [OSError("it fails")]

    async def scene(outbox: Outbox[str], clock: Clock) -> None:
        running = asyncio.create_task(outbox.run())
        await until(lambda: channel.looks > 2 and channel.began == ["a"], "it looks again")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    play(channel, scene)
