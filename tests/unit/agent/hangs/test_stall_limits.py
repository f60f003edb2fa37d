"""Where the limits are: what just counts as movement, and when ranks are looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from det_jupyter.agent.hangs.stall_watch import Look, OthersSample, StallWatch, _others_move
from tests.unit.agent.hangs.test_stall_watch import (
    SLEEPS,
    WAITS,
    Change,
    World,
    others,
    stalled,
    works,
)


def main_thread(**grown: float) -> Change:
    """Return what lets these counts of the main thread grow each second."""
    return lambda second, rank: replace(
        rank, **{name: getattr(rank, name) + by for name, by in grown.items()}
    )


def reads(*files: bytes | None) -> Change:
    """Return a main thread that is woken each second, and reads these files in turn."""
    return lambda second, rank: replace(
        rank, wakes=rank.wakes + 1, reads=files[second % len(files)]
    )


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        (works(0.051), True),
        (works(0.049), False),
        (main_thread(core_wait_s=0.5), True),
        (main_thread(core_wait_s=0.49), False),
        (main_thread(cpu_s=0.0078125, core_wait_s=0.4921875), True),
        (main_thread(core_wait_s=1.0, wakes=20), True),
        (main_thread(core_wait_s=1.0, wakes=21), False),  # it polls, and waits for a core
        (reads(b"0x3"), True),
        (reads(b"0x3", b"0x4"), False),
        (reads(None), False),
        (others(cpu_s=0.11), True),
        (others(cpu_s=0.09), False),
        (others(cpu_s=0.0625, core_wait_s=0.4375), True),
        (others(core_wait_s=0.49), False),
        (others(num_bytes=1000), True),
        (others(num_bytes=999), False),
        (others(num_printed=1), True),
        (lambda second, rank: replace(rank, others=None), False),
    ],
)
def test_what_just_moves_is_slow_and_what_moves_less_is_stalled(
    change: Change, moves: bool
) -> None:
    assert stalled(World().stands(20, change)) is not moves


@pytest.mark.parametrize("gap_s", [0.5, 1.0, 4.0])
def test_what_counts_as_movement_is_a_share_of_the_time_between_two_looks(gap_s: float) -> None:
    before = OthersSample()
    for grown, moves in (
        ({"cpu_s": 0.11}, True),
        ({"cpu_s": 0.09}, False),
        ({"core_wait_s": 0.5}, True),
        ({"core_wait_s": 0.49}, False),
        ({"num_bytes": 1000}, True),
        ({"num_bytes": 998}, False),
    ):
        counts: Any = {name: by * gap_s for name, by in grown.items()}
        after = replace(before, **counts)
        assert _others_move(before, after, gap_s) is moves, grown


@pytest.mark.parametrize(
    "disk", [{"state": "D"}, {"others": OthersSample(at_disk=True)}], ids=["main", "a child"]
)
def test_a_wait_for_a_disk_is_movement_for_a_minute(disk: dict[str, object]) -> None:
    world = World()
    waits: Change = lambda second, rank: replace(rank, **disk)  # type: ignore[arg-type]  # noqa: E731
    assert not stalled(world.stands(62, waits))
    assert stalled(world.stands(12, waits))
    world = World()
    assert not stalled(world.stands(40, waits))
    world.stands(1, lambda second, rank: replace(rank, state="S", others=OthersSample()))
    assert not stalled(world.stands(4, waits))


def test_a_rank_in_a_collective_waits_though_its_loader_waits_for_a_disk() -> None:
    world = World()
    for _ in range(12):
        world.ranks[0] = replace(world.ranks[0], others=OthersSample(at_disk=True))
        finding = world.step(lambda second, rank: rank)
    assert finding.stalled == {0: "waits", 1: "still"}


def seconds_of_looks(world: World, seconds: int, change: Change) -> list[int]:
    findings = world.stands(seconds, change)
    return [i for i, finding in enumerate(findings, 1) if finding.wants_look]


DEBUGGED = Look(position="cmd.py", waits=False, is_debugged=True)


@pytest.mark.parametrize(
    ("looks", "change", "seconds"),
    [
        # Ranks that sleep are looked at more and more rarely.
        ((SLEEPS, SLEEPS), works(0.0), [3, 5, 8, 13, 20, 31, 47]),
        ((WAITS, DEBUGGED), works(0.0), [3, 5, 8, 13, 20, 31, 47, 70]),
        # Another thread of one computes: it may begin to wait for others meanwhile.
        ((SLEEPS, SLEEPS), others(cpu_s=1.0), [3, 33, 63]),
        ((SLEEPS, SLEEPS), works(1.0), []),
    ],
)
def test_ranks_are_looked_at_from_the_third_second_on(
    looks: tuple[Look, Look], change: Change, seconds: list[int]
) -> None:
    assert seconds_of_looks(World(looks=looks), 75, change) == seconds


def test_progress_has_ranks_looked_at_soon_again() -> None:
    world = World(looks=(SLEEPS, SLEEPS))
    assert seconds_of_looks(world, 40, works(0.0)) == [3, 5, 8, 13, 20, 31]
    world.step(works(0.0), batch=9)
    assert seconds_of_looks(world, 12, works(0.0)) == [3, 5, 8]


def test_how_long_ranks_have_stood_still_is_told_from_the_last_movement() -> None:
    world = World()
    world.stands(7, works(0.5))
    findings = world.stands(12)
    first = next(finding for finding in findings if finding.stalled is not None)
    number = findings.index(first) + 1
    assert first.quiet_s == number  # and not from the last batch
    assert findings[-1].quiet_s == 19.0


@pytest.mark.parametrize("others_wait", [True, False])
@pytest.mark.parametrize("state", ["S", "T"])
def test_ranks_that_others_elsewhere_may_wait_for_get_no_longer(
    others_wait: bool, state: str
) -> None:
    world = World(looks=(SLEEPS, SLEEPS))
    world.watch = StallWatch(6.0, others_wait=others_wait)
    for batch in range(5, 9):
        world.step(works(0.0), batch=batch)
    world.ranks = [replace(rank, state=state) for rank in world.ranks]
    findings = world.stands(12, lambda second, rank: replace(rank, state=state))
    kind = "stopped" if state == "T" else "still"
    assert findings[-1].stalled == ({0: kind, 1: kind} if others_wait else None)


def test_new_ranks_begin_anew() -> None:
    world = World()
    assert not stalled(world.stands(5))
    world.ranks[1] = replace(world.ranks[1], rank=2)
    assert not stalled(world.stands(6))
    assert world.stands(6)[-1].stalled == {0: "waits", 2: "still"}


def test_a_computer_that_slept_begins_anew() -> None:
    world = World()
    assert not stalled(world.stands(5))
    world.step(works(0.0), after_s=100.0)
    findings = world.stands(12)
    first = next(finding for finding in findings if finding.stalled is not None)
    assert findings.index(first) >= 5
    assert first.quiet_s == findings.index(first) + 1
