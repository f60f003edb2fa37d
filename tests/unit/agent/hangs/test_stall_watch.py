"""Stalled gangs are told from slow ones, whatever the order of what happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.agent.hangs.stall_watch import (
    Finding,
    Look,
    OthersSample,
    RankSample,
    StallWatch,
)

Change = Callable[[int, RankSample], RankSample]  # of a second, and of rank 1

SLEEPS = Look(position="time.sleep", waits=False)
WAITS = Look(position="all_reduce", waits=True)


class World:
    """Two ranks that have trained for 4 s; then rank 1 stands still and rank 0 waits for it."""

    def __init__(
        self, *, after_s: float = 6.0, looks: tuple[Look, Look] = (WAITS, SLEEPS)
    ) -> None:
        self.watch = StallWatch(after_s)
        self.looks = looks
        self.now = 1000.0
        self.ranks = [RankSample(rank=rank, progress=(0,), beats=1) for rank in (0, 1)]
        self.finding = Finding()
        for batch in range(1, 5):
            self.step(lambda second, rank: rank, batch=batch)

    def step(self, change: Change, *, batch: int | None = None, after_s: float = 1.0) -> Finding:
        """Let a second pass, in which `change` happens to rank 1."""
        self.now += after_s
        wanted = self.finding.wants_look
        ranks = []
        for rank, look in zip(self.ranks, self.looks, strict=True):
            progress = rank.progress if batch is None else (batch,)
            beats = None if rank.beats is None else rank.beats + 1
            others = rank.others or OthersSample()
            after = replace(rank, progress=progress, beats=beats, others=others, look=None)
            ranks.append(replace(after, look=look) if wanted else after)
        ranks[1] = change(int(self.now), ranks[1])
        if ranks[1].state == "T":
            ranks[1] = replace(ranks[1], look=None)
        self.ranks = ranks
        self.finding = self.watch.step(ranks, self.now)
        return self.finding

    def stands(self, seconds: int, change: Change = lambda second, rank: rank) -> list[Finding]:
        """Return the findings of so many seconds without progress."""
        return [self.step(change) for _ in range(seconds)]


def works(cpu_s: float) -> Change:
    return lambda second, rank: replace(rank, cpu_s=rank.cpu_s + cpu_s)


def stalled(findings: list[Finding]) -> bool:
    return any(finding.stalled is not None for finding in findings)


def test_a_rank_that_stands_still_is_found_within_the_limit_and_two_looks() -> None:
    findings = World().stands(10)
    first = next(i for i, finding in enumerate(findings) if finding.stalled is not None)
    assert 5 <= first <= 7
    assert findings[first].stalled == {0: "waits", 1: "still"}
    assert findings[first].quiet_s >= 6
    assert all(finding.stalled == {0: "waits", 1: "still"} for finding in findings[first:])


def test_a_rank_that_moves_is_slow() -> None:
    def cpu(second: int, rank: RankSample) -> RankSample:
        return replace(rank, cpu_s=rank.cpu_s + 0.3)

    def starved(second: int, rank: RankSample) -> RankSample:
        return replace(rank, core_wait_s=rank.core_wait_s + 0.9)

    def downloads(second: int, rank: RankSample) -> RankSample:
        return replace(rank, wakes=rank.wakes + 1 + 3 * (rank.look is not None))

    def disk(second: int, rank: RankSample) -> RankSample:
        return replace(rank, state="D")

    def loads(second: int, rank: RankSample) -> RankSample:
        others = rank.others or OthersSample()
        return replace(rank, others=replace(others, child_cpu_s=others.child_cpu_s + 0.5))

    def thread(second: int, rank: RankSample) -> RankSample:
        others = rank.others or OthersSample()
        return replace(rank, others=replace(others, wakes=others.wakes + 20))

    for change in (cpu, starved, downloads, disk, loads, thread):
        assert not stalled(World().stands(40, change)), change.__name__


def test_a_rank_that_cannot_run_python_holds_the_lock() -> None:
    def holds(second: int, rank: RankSample) -> RankSample:
        others = rank.others or OthersSample()  # other threads try to get the lock
        return replace(rank, beats=5, others=replace(others, wakes=others.wakes + 200))

    assert World().stands(20, holds)[-1].stalled == {0: "waits", 1: "held"}


def test_a_stopped_rank_is_found_and_a_stopped_gang_is_the_users_doing() -> None:
    def stopped(second: int, rank: RankSample) -> RankSample:
        return replace(rank, state="T")

    world = World()
    assert world.stands(10, stopped)[-1].stalled == {0: "waits", 1: "stopped"}
    assert world.step(lambda second, rank: replace(rank, state="S")).stalled is None
    world = World()
    world.ranks[0] = replace(world.ranks[0], state="T")
    assert not stalled(world.stands(200, stopped))


def test_progress_takes_it_back_and_the_same_place_gets_more_time() -> None:
    world = World()
    assert stalled(world.stands(20))
    assert world.step(lambda second, rank: rank, batch=9).stalled is None
    assert not stalled(world.stands(36))  # it stood there for 20 s and went on
    assert stalled(world.stands(10))


def test_a_rank_that_moves_again_takes_it_back() -> None:
    world = World()
    assert stalled(world.stands(10))
    assert world.step(works(0.5)).stalled is not None  # for a moment: a look, or a client
    assert world.step(works(0.5)).stalled is None


def test_ranks_that_all_wait_are_stalled_too() -> None:
    assert World(looks=(WAITS, WAITS)).stands(12)[-1].stalled == {0: "waits", 1: "waits"}


def test_ranks_that_hold_up_no_other_get_a_minute() -> None:
    world = World(looks=(SLEEPS, SLEEPS))
    assert not stalled(world.stands(55))
    assert stalled(world.stands(40))


def test_a_debugger_is_no_stall() -> None:
    debugged = Look(position="cmd.py", waits=False, is_debugged=True)
    assert not stalled(World(looks=(WAITS, debugged)).stands(200))


def test_a_wait_for_a_device_that_spins_is_a_wait() -> None:
    def spin(world: World) -> list[Finding]:
        findings = []
        for _ in range(20):
            rank = world.ranks[0]
            world.ranks[0] = replace(rank, cpu_s=rank.cpu_s + 1.0, spins=True)
            findings.append(world.step(lambda second, rank: replace(rank, spins=True)))
        return findings

    assert spin(World())[-1].stalled == {0: "waits", 1: "still"}
    assert not stalled(spin(World(looks=(replace(WAITS, waits=False), SLEEPS))))


def test_devices_that_have_the_same_collective_to_do_get_a_minute() -> None:
    """They may compute for long before it, while the main threads wait for their results."""

    def seconds_until_stalled(*entered: str) -> int:
        looks = [Look(position="item", waits=True, entered=each) for each in entered]
        world = World(looks=(looks[0], looks[1]))
        world.ranks = [replace(rank, spins=True) for rank in world.ranks]
        findings = world.stands(100)
        return next(i for i, finding in enumerate(findings, 1) if finding.stalled)

    assert seconds_until_stalled("1: all_reduce [4]", "1: all_reduce [4]") >= 60
    assert seconds_until_stalled("1: all_reduce [4]", "1: all_reduce [3]") < 12


def test_a_suspended_computer_is_no_stall() -> None:
    world = World()
    world.stands(3)
    assert world.step(lambda second, rank: rank, after_s=3600).stalled is None
    assert not stalled(world.stands(4))


@given(st.lists(st.sampled_from(["cpu", "batch", "gap", "nothing", "nothing"]), max_size=60))
def test_a_gang_is_stalled_only_after_the_limit_without_movement(events: list[str]) -> None:
    world, idle_s = World(), 0
    for event in events:
        batch = world.ranks[1].progress[0] + 1 if event == "batch" else None
        used = 1.0 if event == "cpu" else 0.0
        was_stalled = world.finding.stalled is not None
        finding = world.step(
            works(used),
            batch=batch,
            after_s=100.0 if event == "gap" else 1.0,
        )
        idle_s = idle_s + 1 if event == "nothing" else 0
        if finding.stalled is not None and not was_stalled:
            assert idle_s >= 6
        if event == "batch":
            assert finding.stalled is None


@given(st.lists(st.booleans(), min_size=30, max_size=30))
def test_a_rank_that_moves_at_least_every_five_seconds_is_never_stalled(
    moving: list[bool],
) -> None:
    world, idle = World(), 0
    for moves in moving:
        idle = 0 if moves or idle == 4 else idle + 1
        used = 0.5 if idle == 0 else 0.0
        finding = world.step(works(used))
        assert finding.stalled is None
