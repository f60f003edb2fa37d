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
        self.ranks = [RankSample(rank=rank, beats=1) for rank in (0, 1)]
        self.finding = Finding()
        for batch in range(1, 5):
            self.step(lambda second, rank: rank, batch=batch)

    def step(self, change: Change, *, batch: int | None = None, after_s: float = 1.0) -> Finding:
        """Let a second pass, in which `change` happens to rank 1."""
        self.now += after_s
        wanted = self.finding.wants_look
        ranks = []
        for rank, look in zip(self.ranks, self.looks, strict=True):
            begun = rank.batch if batch is None else batch
            beats = None if rank.beats is None else rank.beats + 1
            others = rank.others or OthersSample()
            after = replace(rank, batch=begun, beats=beats, others=others, look=None)
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
    assert first == 5
    assert findings[first].stalled == {0: "waits", 1: "still"}
    assert findings[first].quiet_s == 6
    assert all(finding.stalled == {0: "waits", 1: "still"} for finding in findings[first:])


def test_a_rank_that_moves_is_slow() -> None:
    def cpu(second: int, rank: RankSample) -> RankSample:
        return replace(rank, cpu_s=rank.cpu_s + 0.3)

    def starved(second: int, rank: RankSample) -> RankSample:
        return replace(rank, core_wait_s=rank.core_wait_s + 0.9)

    def reads(second: int, rank: RankSample) -> RankSample:
        return replace(rank, wakes=rank.wakes + 1, reads=b"0x3")

    def disk(second: int, rank: RankSample) -> RankSample:
        return replace(rank, state="D")

    for change in (cpu, starved, reads, disk):
        assert not stalled(World().stands(40, change)), change.__name__


def others(**grown: float) -> Change:
    """Return what lets the counts of a rank's other threads and processes grow each second."""

    def change(second: int, rank: RankSample) -> RankSample:
        now = rank.others or OthersSample()
        counts = {name: getattr(now, name) + by for name, by in grown.items()}
        return replace(rank, others=replace(now, **counts))

    return change


def test_a_rank_whose_processes_or_downloads_move_is_slow() -> None:
    at_disk = OthersSample(at_disk=True)
    for change in (
        others(cpu_s=0.5),
        others(cpu_s=0.02, core_wait_s=0.9),
        others(num_bytes=3000),
        others(num_printed=1),
        lambda second, rank: replace(rank, others=at_disk),
    ):
        assert not stalled(World().stands(40, change))


def polls(often: int) -> Change:
    """Return a main thread that polls so often in a second, beside processes that need cores."""
    return lambda second, rank: replace(
        rank,
        wakes=rank.wakes + often,
        cpu_s=rank.cpu_s + 0.0001 * often,
        core_wait_s=rank.core_wait_s + 0.003 * often,
    )


def test_a_rank_that_polls_is_stalled_however_often_it_wakes() -> None:
    for often in (1, 2, 5, 20, 200):
        findings = World().stands(10, polls(often))
        assert findings[-1].stalled == {0: "waits", 1: "still"}, often


def test_a_read_with_a_time_limit_or_of_another_connection_is_no_data() -> None:
    def alternates(second: int, rank: RankSample) -> RankSample:
        return replace(rank, wakes=rank.wakes + 5, reads=b"0x3" if second % 2 else None)

    assert stalled(World().stands(10, alternates))


def test_a_loop_that_polls_in_several_lines_is_at_one_of_them_twice() -> None:
    places = iter(range(100))
    world = World()
    for _ in range(30):
        line = next(places) % 3
        world.looks = (WAITS, Look(position=f"line {line}", waits=False))
        finding = world.step(polls(2))
    assert finding.stalled == {0: "waits", 1: "still"}


def test_background_threads_and_processes_do_not_hide_a_stall() -> None:
    """A prefetch thread that polls, a tracker's process that uses a few percent, a heartbeat."""
    for change in (others(cpu_s=0.03, core_wait_s=0.2), others(num_bytes=300)):
        findings = World().stands(10, change)
        assert findings[-1].stalled == {0: "waits", 1: "still"}


def test_a_rank_in_a_collective_waits_whatever_its_other_threads_do() -> None:
    world, busy = World(), others(cpu_s=1.0, num_bytes=10**6)
    for _ in range(12):
        world.ranks[0] = busy(0, world.ranks[0])
        finding = world.step(lambda second, rank: rank)
    assert finding.stalled == {0: "waits", 1: "still"}


def test_a_rank_that_begins_to_wait_while_its_other_threads_compute_is_seen_to_wait() -> None:
    world, busy = World(looks=(SLEEPS, SLEEPS)), others(cpu_s=1.0)
    for second in range(80):
        world.ranks[0] = busy(0, world.ranks[0])
        finding = world.step(lambda second, rank: rank)
        if second == 10:
            world.looks = (WAITS, SLEEPS)
    assert finding.stalled == {0: "waits", 1: "still"}


def test_until_the_first_batch_is_over_the_ranks_get_three_times_as_long() -> None:
    def seconds(*, first: int, batch: int, collectives: int) -> int:
        watch, finding = StallWatch(6.0, first_batch=first), Finding()
        looks = (WAITS, SLEEPS)
        for second in range(1, 60):
            samples = [
                RankSample(
                    rank=rank,
                    batch=batch if second > 1 else 0,
                    collectives=(collectives if second > 1 else 0,),
                    beats=second,
                    look=look if finding.wants_look else None,
                )
                for rank, look in enumerate(looks)
            ]
            finding = watch.step(samples, 1000.0 + second)
            if finding.stalled is not None:
                break
        return second

    # They begin in the second second, and then stand still for 6 s or 18 s.
    assert seconds(first=1, batch=0, collectives=12) == 20  # DDP is made
    assert seconds(first=1, batch=1, collectives=14) == 20
    assert seconds(first=501, batch=501, collectives=300) == 20  # a run that continues
    assert seconds(first=501, batch=502, collectives=15) == 8
    assert seconds(first=1, batch=0, collectives=99) == 20
    assert seconds(first=1, batch=0, collectives=100) == 8  # a loop that tells no batches


def test_a_look_that_is_not_answered_says_nothing_of_a_rank_that_is_only_late() -> None:
    unknown = Look(position="", waits=False, is_answered=False)
    assert not stalled(World(looks=(unknown, unknown)).stands(100))


def test_a_rank_that_cannot_run_python_holds_the_lock() -> None:
    def holds(second: int, rank: RankSample) -> RankSample:
        # Other threads try to get the lock.
        return replace(others(cpu_s=0.04)(second, rank), beats=5)

    unanswered = replace(SLEEPS, position="", is_answered=False)
    assert World(looks=(WAITS, unanswered)).stands(20, holds)[-1].stalled == {
        0: "waits",
        1: "held",
    }


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
    assert not stalled(world.stands(41))  # it stood there for 21 s and went on
    assert stalled(world.stands(1))
    assert world.step(lambda second, rank: rank, batch=10).stalled is None
    assert not stalled(world.stands(85))  # and now for 43 s
    assert stalled(world.stands(1))
    world.looks = (WAITS, replace(SLEEPS, position="another place"))
    world.step(lambda second, rank: rank, batch=11)
    assert not stalled(world.stands(5))
    assert stalled(world.stands(1))


def test_a_rank_that_moves_again_takes_it_back() -> None:
    world = World()
    assert stalled(world.stands(6))
    for _ in range(3):
        assert world.step(works(0.5)).stalled is not None  # for a moment: a look, or a client
        assert world.step(works(0.0)).stalled is not None
    assert world.step(works(0.5)).stalled is not None
    assert world.step(works(0.5)).stalled is None


def test_ranks_that_all_wait_are_stalled_too() -> None:
    assert World(looks=(WAITS, WAITS)).stands(12)[-1].stalled == {0: "waits", 1: "waits"}


def test_ranks_that_hold_up_no_other_get_a_minute() -> None:
    world = World(looks=(SLEEPS, SLEEPS))
    assert not stalled(world.stands(59))
    assert stalled(world.stands(1))


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

    assert seconds_until_stalled("1: all_reduce [4]", "1: all_reduce [4]") == 60
    assert seconds_until_stalled("1: all_reduce [4]", "1: all_reduce [3]") == 6


def test_a_suspended_computer_is_no_stall() -> None:
    world = World()
    world.stands(3)
    assert world.step(lambda second, rank: rank, after_s=3600).stalled is None
    assert not stalled(world.stands(4))


@given(st.lists(st.sampled_from(["cpu", "batch", "gap", "nothing", "nothing"]), max_size=60))
def test_a_gang_is_stalled_only_after_the_limit_without_movement(events: list[str]) -> None:
    world, idle_s = World(), 0
    for event in events:
        batch = world.ranks[1].batch + 1 if event == "batch" else None
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
