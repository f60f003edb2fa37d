"""How versions are numbered, held back for slow tabs, and merged into patches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.documents.codec import unpack
from det_jupyter.contract.documents.patches import Document, apply_changes
from det_jupyter.contract.messages.pages import MOST_UNACKED
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.reader import live_document as documents
from det_jupyter.reader.live_document import Following, LiveDocument

COST_SHARE = documents._COST_SHARE


@pytest.fixture(autouse=True)
def _making_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pause follow a version: its length depends on how busy the computer is."""
    monkeypatch.setattr(documents, "_COST_SHARE", 0)


class Counter:
    """A source whose document says how often something happened."""

    period_s = 0.0
    max_age_s: float | None = None

    def __init__(self) -> None:
        self.num: int | None = 0
        self.padding = ""
        self.made: list[int | None] = []
        self.num_begun = self.num_ended = 0
        self.committed = 0  # what it knows once it has caught up
        self.errors: list[Exception] = []
        self.mark: Callable[[], None] = lambda: None

    def start(self, mark: Callable[[], None]) -> Callable[[], None]:
        self.mark = mark
        self.num_begun += 1
        return self.end

    def end(self) -> None:
        self.num_ended += 1

    def make(self) -> Document | None:
        if self.errors:
            raise self.errors.pop()
        self.made.append(self.num)
        return None if self.num is None else {"num": self.num, "padding": self.padding}

    def catch_up(self) -> None:
        if self.committed:
            self.num = self.committed

    def happen(self) -> None:
        self.num = (self.num or 0) + 1
        self.mark()


class Tab:
    """What a tab was sent: frames, and the number in each version of its document."""

    def __init__(self, has: int = 0, document: Document | None = None) -> None:
        self.frames: list[dict[str, Any]] = []
        self.nums: list[int] = []
        self.document = document or {}
        self.following = Following(7, has, self._take)

    def _take(self, sent: str | bytes) -> None:
        frame = unpack(sent)
        self.frames.append(frame)
        if frame["op"] == "error":
            return
        data = frame["data"]
        is_whole = frame["op"] == "document"
        self.document = data if is_whole else apply_changes(self.document, data)
        self.nums.append(self.document["num"])

    @property
    def ops(self) -> list[str]:
        return [frame["op"] for frame in self.frames]

    def ack(self) -> None:
        self.following.ack(self.frames[-1]["version"])


async def in_thread(call: Callable[[], Any]) -> Any:
    return call()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def left(document: LiveDocument) -> tuple[Tab, Tab]:
    """Return a tab that has followed and left, and one that still follows."""
    first, other = Tab(), Tab()
    for tab in (first, other):
        document.add(tab.following)
    await settle()
    document.remove(first.following)
    return first, other


def run(test: Callable[[Counter, LiveDocument], Awaitable[None]]) -> Counter:
    source = Counter()

    async def act() -> None:
        over: list[str] = []
        document = LiveDocument(source, in_thread, lambda: over.append("over"), source.catch_up)
        await test(source, document)
        document.stop()

    asyncio.run(act())
    return source


def test_versions_ascend_and_a_document_that_is_the_same_is_none() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        tab = Tab()
        document.add(tab.following)
        await settle()
        source.happen()
        await settle()
        source.mark()
        await settle()
        assert tab.nums == [0, 1]
        assert tab.frames[0]["version"] == tab.frames[1]["since"] < tab.frames[1]["version"]
        assert tab.ops == ["document", "patch"]

    run(act)


def test_a_tab_that_does_not_acknowledge_is_sent_no_more_and_then_the_newest() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        slow, quick = Tab(), Tab()
        document.add(slow.following)
        document.add(quick.following)
        for _ in range(50):
            source.happen()
            await settle()
            quick.ack()
            document.wake()
        assert len(slow.nums) == MOST_UNACKED
        assert quick.nums[-1] == 50
        slow.ack()
        document.wake()
        await settle()
        assert len(slow.nums) == MOST_UNACKED + 1
        assert slow.nums[-1] == 50

    run(act)


def test_nothing_is_made_while_no_tab_can_take_it() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        hidden = Tab()
        document.add(hidden.following)
        for _ in range(30):
            source.happen()
            await settle()
        assert len(source.made) == MOST_UNACKED

    run(act)


def test_a_version_that_was_costly_to_make_is_followed_by_a_pause_three_times_as_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(documents, "_COST_SHARE", COST_SHARE)
    monkeypatch.setattr(documents, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def act(source: Counter, document: LiveDocument) -> None:
        make = source.make

        def make_for_a_second() -> Document | None:
            now[0] += 1.0
            return make()

        source.make = make_for_a_second  # type: ignore[method-assign]  # a fake's
        tab = Tab()
        document.add(tab.following)
        await settle()
        for after_s, nums in ((0.0, [0]), (2.75, [0]), (0.25, [0, 3])):
            now[0] += after_s
            source.happen()
            document.wake()  # for the real clock goes on slowly
            await settle()
            assert tab.nums == nums

    run(act)


def test_the_wait_for_a_thread_is_no_cost_of_a_version(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(documents, "_COST_SHARE", COST_SHARE)
    monkeypatch.setattr(documents, "time", SimpleNamespace(monotonic=lambda: now[0]))

    async def after_a_second(call: Callable[[], Any]) -> Any:
        now[0] += 1.0
        return call()

    async def act(source: Counter, document: LiveDocument) -> None:
        document._in_thread = after_a_second
        tab = Tab()
        document.add(tab.following)
        await settle()
        source.happen()
        await settle()
        assert tab.nums == [0, 1]

    run(act)


def test_a_tab_that_comes_again_is_sent_what_it_lacks_as_one_patch() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        first, other = await left(document)
        again = Tab(first.frames[-1]["version"], first.document)
        document.add(again.following)
        await settle()
        assert again.frames == []
        document.remove(again.following)
        for _ in range(3):
            source.happen()
            await settle()
            other.ack()
        later = Tab(first.frames[-1]["version"], first.document)
        document.add(later.following)
        await settle()
        assert (later.ops, later.nums) == (["patch"], [3])

    run(act)


def test_a_tab_that_lacks_more_than_is_kept_is_sent_the_whole() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        first, other = await left(document)
        for _ in range(4):
            source.padding = f"{source.num}" * (documents._KEPT_BYTES[0] // 3)
            source.happen()
            await settle()
            other.ack()
        assert other.ops == ["document", *["patch"] * 4]
        again = Tab(first.frames[-1]["version"], first.document)
        document.add(again.following)
        await settle()
        assert (again.ops, again.nums) == (["document"], [4])

    run(act)


def test_a_new_tab_is_sent_a_version_of_now() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.period_s = 60.0
        document.add(Tab().following)
        await settle()
        document.add(known := Tab(document._version).following)
        await settle()
        assert len(source.made) == 1, "that tab has it"
        document.remove(known)
        source.committed = 5
        document.add((tab := Tab()).following)
        await settle()
        assert (len(source.made), tab.nums) == (2, [5])

    run(act)


def test_a_tab_that_comes_while_a_version_is_made_is_sent_the_next() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.period_s = 60.0
        tab, make = Tab(), source.make

        def make_while_one_comes() -> Document | None:
            source.make = make  # type: ignore[method-assign]
            made = make()
            source.committed = 5
            document.add(tab.following)
            return made

        source.make = make_while_one_comes  # type: ignore[method-assign]
        document.add((first := Tab()).following)
        await settle()
        assert (first.nums[0], tab.nums) == (0, [5])

    run(act)


def test_a_new_tab_waits_where_what_was_committed_cannot_be_read() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        document.add(Tab().following)
        await settle()
        source.errors.append(MasterUnreachable("no"))
        document.add((tab := Tab()).following)
        await settle()
        assert (len(source.made), tab.nums) == (1, [])
        document._not_before = 0.0
        document.wake()
        await settle()
        assert (len(source.made), tab.nums) == (2, [0])

    run(act)


def test_a_document_with_an_age_is_made_again_though_nothing_happens() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.max_age_s = 0.001
        tab = Tab()
        document.add(tab.following)
        while len(source.made) < 3:
            await asyncio.sleep(0.001)
        assert tab.nums == [0], "the same is sent once"
        source.num = 1
        while len(tab.nums) < 2:
            await asyncio.sleep(0.001)

    run(act)


def test_a_document_that_is_costly_and_old_is_waited_for_and_not_polled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.max_age_s, source.period_s = 0.0, 3600.0  # it is too old, and may not be made yet
        document.add(Tab().following)
        await settle()
        turns = 0
        wait = document._wait_for_work

        async def counted() -> None:
            nonlocal turns
            turns += 1
            await wait()

        monkeypatch.setattr(document, "_wait_for_work", counted)
        document.wake()
        for _ in range(100):
            await asyncio.sleep(0)
        assert turns == 1

    run(act)


def test_a_version_of_another_life_means_nothing() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        for has in (1, 2**53):
            tab = Tab(has)
            document.add(tab.following)
            await settle()
            assert tab.ops == ["document"]

    run(act)


def test_what_is_not_known_yet_is_sent_when_it_is() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.num = None
        tab = Tab()
        document.add(tab.following)
        await settle()
        assert tab.frames == []
        source.happen()
        await settle()
        assert tab.nums == [1]

    run(act)


def test_without_a_master_it_is_tried_again_until_it_works() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        documents._RETRY_S, before = 0.0, documents._RETRY_S
        try:
            source.errors = [MasterUnreachable("gone"), MasterUnreachable("gone")]
            tab = Tab()
            document.add(tab.following)
            while not tab.nums:
                await asyncio.sleep(0.001)
            assert tab.nums == [0]
        finally:
            documents._RETRY_S = before

    run(act)


def test_what_is_gone_ends_with_a_sentence() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        tab = Tab()
        document.add(tab.following)
        await settle()
        source.errors = [NotFound("experiment 7 was deleted")]
        source.happen()
        await settle()
        assert tab.frames[-1] == {
            "op": "error",
            "id": 7,
            "error": "experiment 7 was deleted",
            "kind": "NotFound",
        }
        assert document.is_idle

    assert run(act).num_ended == 1


def test_a_mistake_of_ours_ends_the_document_and_not_the_reader() -> None:
    async def act(source: Counter, document: LiveDocument) -> None:
        source.errors = [ZeroDivisionError("oh")]
        tab = Tab()
        document.add(tab.following)
        await settle()
        assert tab.frames == [
            {"op": "error", "id": 7, "error": "ZeroDivisionError: oh", "kind": "DetError"}
        ]

    run(act)
