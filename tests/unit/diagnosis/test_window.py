"""What the recent past of a run has, and when it is too little."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import SystemSample
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.diagnosis.rank_times import RankTimes
from det_jupyter.diagnosis.window import NO_BATCH, Window
from tests.unit.diagnosis.samples import NOW, RUN, gpus, setting


def times(at: float, batches: int = 20, seconds: float = 1.0, **parts: Any) -> StepTimes:
    own = {name: PartTimes(1, total, total, total, total) for name, total in parts.items()}
    return StepTimes(
        at=NOW + at, first=1, batches=batches, samples=32, seconds=seconds, parts=own
    )  # fmt: skip


def window(*of_ranks: list[StepTimes], about: Any = None) -> Window:
    """Return what has seen these intervals, after a first one of each rank."""
    found = Window(about or setting(len(of_ranks)))
    for rank, intervals in enumerate(of_ranks):
        for each in (times(0), *intervals):
            found.add_times(rank, each)
    return found


ENOUGH = [times(1), times(2)]


@pytest.mark.parametrize(
    ("of_ranks", "words"),
    [
        ([ENOUGH, []], "rank 1 reported no times after the first interval"),
        ([[], ENOUGH, []], "2 ranks reported no times after the first interval"),
        (
            [ENOUGH, [times(1, 0), times(2, 0)]],
            NO_BATCH,
        ),
        (
            [ENOUGH, [times(1, 9), times(2, 10)]],
            "19 of 20 batches after the first interval",
        ),
        ([ENOUGH, [times(1)]], "only one interval after the first"),
        (
            [ENOUGH, [times(1, seconds=0.5), times(2, seconds=0.4)]],
            "less than a second after the first interval",
        ),
        ([ENOUGH, [times(1, 10, seconds=0.5), times(2, 10, seconds=0.5)]], ""),
    ],
)
def test_what_there_is_too_little_of_is_said(of_ranks: list[list[StepTimes]], words: str) -> None:
    assert window(*of_ranks).missing() == words


def test_an_interval_that_is_known_is_not_added() -> None:
    found = RankTimes()
    assert [found.add(times(at)) for at in (0, 0, 1, 1, 0, 2)] == [
        True, False, True, False, False, True,
    ]  # fmt: skip
    assert (found.batches, found.seconds, found.begin) == (40, 2.0, NOW)


def test_the_window_is_a_minute_with_enough_batches() -> None:
    found = RankTimes()
    for at in range(100):
        found.add(times(at))
    assert (len(found.recent), found.seconds, found.batches) == (60, 60.0, 1200)
    for batches, num in ((6, 24), (5, 20)):
        seldom = RankTimes()
        for at in range(10):
            seldom.add(times(100 * at, batches, seconds=50.0))
        assert (len(seldom.recent), seldom.batches) == (4, num)


def test_what_takes_a_share_once_is_unclear() -> None:
    found = window([times(1), times(2, validation=0.2), times(3)])
    assert found.without_period(0.1) == ""
    found = window([times(1), times(2, validation=0.31), times(3)])
    assert found.without_period(0.1) == "only one validation so far"
    found = window([times(1), times(2, validation=0.25)])
    assert [found.without_period(least) != "" for least in (0.125, 0.126)] == [True, False]


def test_what_happens_often_is_told_with_its_length_and_period() -> None:
    found = RankTimes()
    for at in range(9):
        parts: dict[str, Any] = {"validation": 0.25} if at in (2, 6) else {}
        found.add(times(at, **parts))
    [periodic] = found.cycles().values()
    assert (periodic.seconds, periodic.every_s) == (0.25, 4.0)
    assert periodic.share == pytest.approx(0.0625)


@pytest.mark.parametrize(("now", "every_s"), [(50, 10.0), (55, 22.5)])
def test_what_has_not_happened_for_two_periods_happens_more_seldom(
    now: int, every_s: float
) -> None:
    found = RankTimes()
    for at in range(now + 1):
        parts: dict[str, Any] = {"validation": 0.5} if at in (10, 20, 30) else {}
        found.add(times(at, **parts))
    [periodic] = found.cycles().values()
    assert periodic.every_s == every_s
    assert periodic.share == pytest.approx(0.5 / every_s)


def test_parts_are_shares_without_what_is_periodic_and_sections() -> None:
    parts: dict[str, Any] = {"forward": 0.6, "validation": 0.2, "section.a": 0.5, "rest": 0.2}
    [rank] = window([times(1, **parts), times(2, **parts)]).facts().ranks
    assert rank.parts == {"forward": pytest.approx(0.75), "rest": pytest.approx(0.25)}
    assert rank.batch_s == pytest.approx(1.6 / 40)
    assert rank.waits == (0.0, 0.0)


def test_exchanges_are_divided_by_the_rank_where_they_are_shortest() -> None:
    first = [times(at, exchange=0.5, forward=0.5) for at in (1, 2)]
    second = [times(at, exchange=0.2, forward=0.8) for at in (1, 2)]
    slow, quick = reversed(window(first, second).facts().ranks)
    assert slow.parts == {
        "forward": pytest.approx(0.8),
        "exchange_transfer": pytest.approx(0.2),
        "exchange_wait": 0.0,
    }
    assert quick.parts["exchange_wait"] == pytest.approx(0.3)
    assert list(quick.waits) == pytest.approx([0.5, 0.5])


def test_the_others_do_not_wait_for_a_rank_that_saves() -> None:
    chief = [times(at, checkpoint=0.4, forward=0.6) for at in (1, 2)]
    other = [times(at, exchange_wait=0.5, forward=0.5) for at in (1, 2)]
    _, rank = window(chief, other).facts().ranks
    assert rank.parts["exchange_wait"] == pytest.approx(0.1 / 0.6)


def test_slices_that_a_rank_has_nothing_in_are_left_out() -> None:
    steady = [times(at) for at in (1, 2, 3, 4)]
    gap = [times(1), times(4)]
    for rank in window(steady, gap).facts().ranks:
        assert len(rank.waits) == 2


def sampled(*values: dict[str, float], of: str = "host", agent: str = "local") -> Window:
    found = window(ENOUGH, about=setting(places=gpus(1)))
    for index, each in enumerate(values):
        found.add_sample(agent, SystemSample(at=NOW + index, values={of: each}))
    return found


def test_samples_of_the_last_minute_are_averaged() -> None:
    found = sampled({"x": 1.0}, {"x": 3.0}, {"y": 5.0}).facts()
    assert found.means == {("local", "host"): {"x": 2.0, "y": 5.0}}
    found = sampled(*({"x": float(i)} for i in range(100))).facts()
    assert found.host("local", "x") == pytest.approx(69.0)


@pytest.mark.parametrize(
    ("of", "agent"), [("rank:8.1.1:0", "local"), ("gpu:G7", "local"), ("host", "elsewhere")]
)
def test_samples_of_others_are_left_out(of: str, agent: str) -> None:
    assert sampled({"x": 1.0}, of=of, agent=agent).facts().means == {}


@pytest.mark.parametrize(("every_s", "num"), [(0.89, 1), (0.9, 2)])
def test_samples_that_come_too_quickly_are_left_out(every_s: float, num: int) -> None:
    found = window(ENOUGH, about=setting(places=gpus(1)))
    for index in range(2):
        sample = SystemSample(at=NOW + index * every_s, values={"host": {"x": 2.0 * index}})
        found.add_sample("local", sample)
    assert found.facts().host("local", "x") == (0.0 if num == 1 else 1.0)


def test_memory_is_followed_every_five_seconds_with_what_is_left() -> None:
    found = window(ENOUGH, about=setting(places=gpus(1)))
    for index in range(12):
        values = {
            "host": {"memory_free": 9.0},
            "gpu:G0": {"gpu_free_memory": 7.0},
            f"rank:{RUN}:0": {"memory_pss": 1.0 + index, "memory_rss": 5.0, "gpu_memory": 3.0},
        }
        found.add_sample("local", SystemSample(at=NOW + index, values=values))
    growths = {growth.name: growth for growth in found.facts().growths}
    assert growths.keys() == {"memory_pss", "gpu_memory"}, "the other counts shared pages whole"
    assert growths["gpu_memory"].free_bytes == 7.0
    assert {growth.free_bytes for growth in growths.values()} == {7.0, 9.0}
    assert growths["gpu_memory"].at == (NOW, NOW + 5, NOW + 10)


def test_the_window_holds_240_intervals_at_most() -> None:
    found = RankTimes()
    for at in range(300):
        found.add(times(0.1 * at, seconds=0.1))
    assert (len(found.recent), found.batches) == (240, 4800)


def test_two_intervals_stay_however_long_they_are() -> None:
    found = window([times(100 * at, 50, seconds=100.0) for at in (1, 2, 3)])
    assert found.missing() == ""
    assert found.facts().batches == 100


def test_an_interval_is_in_the_slice_that_has_its_middle() -> None:
    found = RankTimes()
    for at in (0, 1, 2.4, 4):
        found.add(times(at))
    slices = [[times.at - NOW for times in each] for each in found.sliced(NOW, NOW + 4, 4)]
    assert slices == [[1], [pytest.approx(2.4)], [], [4]]


@pytest.mark.parametrize("at", [(5, 6, 7, 8), (1, 2, 3, 4)])
def test_ranks_are_compared_where_both_have_times(at: tuple[int, ...]) -> None:
    steady = [times(each, exchange_wait=0.5) for each in range(1, 9)]
    for rank in window(steady, [times(each) for each in at]).facts().ranks:
        assert len(rank.waits) == 2, "of four slices, of which one rank has two"


def test_what_happens_several_times_in_one_interval_is_told_with_its_period() -> None:
    validated = StepTimes(
        at=NOW + 2, first=1, batches=20, samples=32, seconds=4.0,
        parts={"validation": PartTimes(2, 1.0, 0.5, 0.5, 0.5)},
    )  # fmt: skip
    found = window([times(1), validated, times(3)])
    assert found.without_period(0.1) == ""
    [periodic] = found.facts().periodic.values()
    assert (periodic.seconds, periodic.every_s) == (0.5, 3.0)
    assert periodic.share == pytest.approx(1 / 6)


def test_a_validation_in_each_of_three_intervals_in_a_row_happens_often() -> None:
    validations = [times(at, validation=0.2) for at in (4, 5, 6)]
    found = window([*(times(at) for at in (1, 2, 3)), *validations])
    assert found.without_period(0.1) == ""
    [periodic] = found.facts().periodic.values()
    assert periodic.share == pytest.approx(0.1)
    assert periodic.every_s == 2.0


@pytest.mark.parametrize("seconds", [0.5, 1.0, 4.0])
def test_waits_are_shares_of_the_time_however_long_an_interval_is(seconds: float) -> None:
    waiting = [
        times(seconds * i, seconds=seconds, exchange_wait=seconds / 4, forward=3 * seconds / 4)
        for i in (1, 2, 3)
    ]
    [rank] = window(waiting).facts().ranks
    assert list(rank.waits) == pytest.approx([0.25, 0.25, 0.25])


def test_a_run_has_seen_the_batches_that_every_rank_has_trained() -> None:
    assert window([times(1, 30), times(2, 30)], [times(1), times(2)]).facts().batches == 40
