"""How news are numbered, held back for slow tabs, and merged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages.pages import MOST_UNACKED
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.front.pages import topic as topics
from det_jupyter.front.pages.topic import Following, Topic
from tests.frames import unpack

COST_SHARE = topics._COST_SHARE


@pytest.fixture(autouse=True)
def _making_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pause follow a version: its length depends on how busy the computer is."""
    monkeypatch.setattr(topics, "_COST_SHARE", 0)


class Counter:
    """A source whose state is how often something happened."""

    period_s = 0.0
    max_age_s: float | None = None

    def __init__(self) -> None:
        self.num = 0
        self.made: list[int] = []
        self.num_begun = self.num_ended = 0
        self.errors: list[Exception] = []
        self.mark: Callable[[], None] = lambda: None

    def start(self, mark: Callable[[], None]) -> Callable[[], None]:
        self.mark = mark
        self.num_begun += 1
        return self.end

    def end(self) -> None:
        self.num_ended += 1

    def update(self, version: int) -> bool:
        if self.errors:
            raise self.errors.pop()
        is_new = not self.made or self.made[-1] != self.num
        self.made.append(self.num)
        return is_new

    def news(self, since: int) -> Any:
        return {"num": self.num, "is_whole": since == 0}

    def happen(self) -> None:
        self.num += 1
        self.mark()


class Tab:
    """What a tab was sent."""

    def __init__(self, since: int = 0) -> None:
        self.frames: list[dict[str, Any]] = []
        self.following = Following(7, since, lambda frame: self.frames.append(unpack(frame)))

    @property
    def nums(self) -> list[int]:
        return [frame["data"]["num"] for frame in self.frames]

    def ack(self) -> None:
        self.following.ack(self.frames[-1]["seq"])


async def in_thread(call: Callable[[], Any]) -> Any:
    return call()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Callable[[Counter, Topic], Awaitable[None]]) -> Counter:
    source = Counter()

    async def act() -> None:
        over: list[str] = []
        topic = Topic(source, in_thread, lambda: over.append("over"))
        await test(source, topic)
        topic.stop()

    asyncio.run(act())
    return source


def test_news_are_numbered_upwards_and_a_state_that_is_the_same_is_none() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        tab = Tab()
        topic.add(tab.following)
        await settle()
        source.happen()
        await settle()
        source.mark()
        await settle()
        assert tab.nums == [0, 1]
        assert tab.frames[0]["seq"] < tab.frames[1]["seq"]
        assert [frame["data"]["is_whole"] for frame in tab.frames] == [True, False]

    run(act)


def test_a_tab_that_does_not_acknowledge_is_sent_no_more_and_then_the_newest() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        slow, quick = Tab(), Tab()
        topic.add(slow.following)
        topic.add(quick.following)
        for _ in range(50):
            source.happen()
            await settle()
            quick.ack()
            topic.wake()
        assert len(slow.nums) == MOST_UNACKED
        assert quick.nums[-1] == 50
        slow.ack()
        topic.wake()
        await settle()
        assert len(slow.nums) == MOST_UNACKED + 1
        assert slow.nums[-1] == 50

    run(act)


def test_nothing_is_made_while_no_tab_can_take_it() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        hidden = Tab()
        topic.add(hidden.following)
        for _ in range(30):
            source.happen()
            await settle()
        assert len(source.made) == MOST_UNACKED

    run(act)


def test_a_version_that_was_costly_to_make_is_followed_by_a_pause_three_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(topics, "_COST_SHARE", COST_SHARE)
    monkeypatch.setattr(topics, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def act(source: Counter, topic: Topic) -> None:
        make = source.update

        def make_for_a_second(version: int) -> bool:
            now[0] += 1.0
            return make(version)

        source.update = make_for_a_second  # type: ignore[method-assign]  # a fake's
        tab = Tab()
        topic.add(tab.following)
        await settle()
        for after_s, nums in ((0.0, [0]), (2.75, [0]), (0.25, [0, 3])):
            now[0] += after_s
            source.happen()
            topic.wake()  # for the real clock goes on slowly
            await settle()
            assert tab.nums == nums

    run(act)


def test_a_tab_that_comes_again_is_sent_what_it_lacks_alone() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        first = Tab()
        topic.add(first.following)
        await settle()
        seq = first.frames[-1]["seq"]
        topic.remove(first.following)
        again = Tab(since=seq)
        topic.add(again.following)
        await settle()
        assert again.frames == []
        source.happen()
        await settle()
        assert [frame["data"] for frame in again.frames] == [{"num": 1, "is_whole": False}]

    run(act)


def test_a_new_tab_is_sent_a_version_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(source: Counter, topic: Topic) -> None:
        topic.add(Tab().following)
        await settle()
        topic.add(Tab().following)
        await settle()
        assert len(source.made) == 1, "it is fresh"
        monkeypatch.setattr(topics, "_FRESH_S", -1.0)
        topic.add(known := Tab(since=topic._version).following)
        await settle()
        assert len(source.made) == 1, "that tab has it"
        topic.remove(known)
        topic.add(Tab().following)
        await settle()
        assert len(source.made) == 2

    run(act)


def test_a_state_with_an_age_is_made_again_though_nothing_happens() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        source.max_age_s = 0.001
        tab = Tab()
        topic.add(tab.following)
        while len(source.made) < 3:
            await asyncio.sleep(0.001)
        assert tab.nums == [0], "the same is told once"
        source.num += 1
        while len(tab.nums) < 2:
            await asyncio.sleep(0.001)

    run(act)


def test_a_number_of_another_life_means_nothing() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        for since in (topic._first - 1, 1, 2**53):
            tab = Tab(since=since)
            topic.add(tab.following)
            await settle()
            assert tab.frames[0]["data"]["is_whole"]

    run(act)


def test_without_a_master_it_is_tried_again_until_it_works() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        topics._RETRY_S, before = 0.0, topics._RETRY_S
        try:
            source.errors = [MasterUnreachable("gone"), MasterUnreachable("gone")]
            tab = Tab()
            topic.add(tab.following)
            while not tab.nums:
                await asyncio.sleep(0.001)
            assert tab.nums == [0]
        finally:
            topics._RETRY_S = before

    run(act)


def test_what_is_gone_ends_with_a_sentence() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        tab = Tab()
        topic.add(tab.following)
        await settle()
        source.errors = [NotFound("experiment 7 was deleted")]
        source.happen()
        await settle()
        assert tab.frames[-1] == {"op": "error", "id": 7, "error": "experiment 7 was deleted"}
        assert topic.is_idle

    assert run(act).num_ended == 1


def test_a_mistake_of_ours_ends_the_topic_and_not_the_feeder() -> None:
    async def act(source: Counter, topic: Topic) -> None:
        source.errors = [ZeroDivisionError("oh")]
        tab = Tab()
        topic.add(tab.following)
        await settle()
        assert tab.frames == [{"op": "error", "id": 7, "error": "ZeroDivisionError: oh"}]

    run(act)
