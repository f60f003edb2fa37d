"""Measured numbers are stored once, packed, rolled up, and read in the resolution of a picture."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from det_jupyter.contract.messages import (
    Series,
    SeriesPage,
    SeriesQuery,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.contract.values.measures import COUNTER
from det_jupyter.master.background.cleanup import pack_series
from det_jupyter.master.service.storing import series_packing, stored_series
from det_jupyter.master.service.storing.series_reading import read_agent, read_trial
from det_jupyter.master.service.storing.stored_series import Level
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    ask,
    batches,
    bench_with_trial,
    gang_exited,
    gang_started,
    make_chunk,
)
from tests.problems import sentences_of

LATER = 1e6  # everything has been silent for long


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def sampled(at: float, cpu: float = 50.0, rank: float = 7.0, run: str = RUN) -> SystemSample:
    return SystemSample(
        at=at,
        values={"host": {"cpu_util_simple": cpu}, f"rank:{run}:0": {"cpu_util": rank}},
    )


def send(bench: Bench, *samples: SystemSample) -> None:
    bench.report(SystemSampled(samples=list(samples)))


def times(at: float, first: int, forward: float = 0.5, batches: int = 10) -> StepTimes:
    part = PartTimes(num=batches, total=forward, p50=0.05, p95=0.06, max=0.07)
    return StepTimes(
        at=at, first=first, batches=batches, samples=80, seconds=1.0, parts={"forward": part}
    )


def of_trial(bench: Bench, of: str = "system", trial_id: int = 1, **query: object) -> SeriesPage:
    asked = SeriesQuery.model_validate({"of": of, **query})
    return read_trial(bench.store.path, trial_id, asked, ended_at=None)


def of_agent(bench: Bench, **query: object) -> SeriesPage:
    asked = SeriesQuery.model_validate({"of": "system", **query})
    return read_agent(bench.store.path, AGENT, asked)


def points(page: SeriesPage, source: str, name: str) -> list[tuple[float, float]]:
    return [
        pair
        for one in page.series
        if (one.source, one.name) == (source, name)
        for pair in zip(one.x, one.mid, strict=True)
    ]


def pack(bench: Bench, now: float = LATER) -> None:
    asyncio.run(pack_series(bench.service, now))


def count(bench: Bench, table: str) -> int:
    return int(bench.store._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_samples_belong_to_the_machine_or_to_the_trial(bench: Bench) -> None:
    send(bench, sampled(10), sampled(11, cpu=60))
    assert points(of_agent(bench), "host", "cpu_util_simple") == [(10, 50), (11, 60)]
    assert points(of_agent(bench), "rank:0", "cpu_util") == []
    assert points(of_trial(bench), "host", "cpu_util_simple") == [(10, 50), (11, 60)]
    assert points(of_trial(bench), "rank:0", "cpu_util") == [(10, 7), (11, 7)]
    assert of_trial(bench).began_at == 1.0
    assert of_trial(bench).interval_s == 1.0


def test_a_trial_has_of_its_machine_only_the_time_of_its_runs(bench: Bench) -> None:
    send(bench, sampled(0.5))
    send(bench, sampled(1.5))
    bench.report(gang_exited(killed=True))  # at 2
    send(bench, sampled(30))
    assert [x for x, _ in points(of_agent(bench), "host", "cpu_util_simple")] == [0.5, 1.5, 30]
    assert [x for x, _ in points(of_trial(bench), "host", "cpu_util_simple")] == [1.5]


def test_a_trial_on_several_agents_has_each_ones_host_and_its_own_gpus(bench: Bench) -> None:
    series = bench.store.series
    with bench.store.transaction():
        series.end_run(1, 1, 5.0)
        series.begin_run(1, 2, 8.0, {AGENT: ["GPU-1", "MIG-7"], "there": []})
    values = {source: {"gpu_util": 5.0} for source in ("gpu:GPU-1", "gpu:GPU-2", "mig:MIG-7")}
    missing = {"host": {"disk_iops": "no permission"}, "gpu:GPU-2": {"gpu_power": "no permission"}}
    for agent_id in (AGENT, "there"):
        host = {"host": {"cpu_util_simple": 1.0}}
        samples = [SystemSample(at=at, values=values | host) for at in (3.0, 6.0, 9.0)]
        series.add_samples(
            0.0, agent_id, SystemSampled(samples=samples, missing=missing), lambda run, rank: None
        )
    found = {(one.source, one.name): one.x or one.missing for one in of_trial(bench).series}
    assert found == {
        (f"host:{AGENT}", "cpu_util_simple"): [3.0, 9.0],
        ("host:there", "cpu_util_simple"): [9.0],
        ("gpu:GPU-1", "gpu_util"): [9.0],
        ("mig:MIG-7", "gpu_util"): [9.0],
        (f"host:{AGENT}", "disk_iops"): "no permission",
        ("host:there", "disk_iops"): "no permission",
    }


def test_a_run_whose_start_was_never_reported_is_cut_too(bench: Bench) -> None:
    """Its agent was lost before it could report; the batches after the checkpoint come again."""
    with bench.store.transaction():
        bench.store.series.cut(2, 3, 40)  # nothing has reported runs 1 and 2 of this trial
    cuts = bench.store._db.execute("SELECT run, steps_completed FROM series_cuts")
    assert cuts.fetchall() == [(2, 40)]


def test_processes_of_unknown_runs_are_dropped(bench: Bench) -> None:
    for run in ("1.1.9", "9.9.9", "", "x:y"):
        send(bench, sampled(10, run=run))
    bench.report(
        SystemSampled(samples=[SystemSample(at=11, values={f"rank:{RUN}:7": {"cpu_util": 1.0}})])
    )
    assert [one.source for one in of_trial(bench).series] == ["host"]


def test_samples_that_come_twice_or_too_late_are_stored_once(bench: Bench) -> None:
    send(bench, sampled(10), sampled(11))
    send(bench, sampled(11), sampled(10), sampled(12))
    pack(bench)
    send(bench, sampled(12), sampled(11.5))
    expected = [10, 11, 12]
    assert [x for x, _ in points(of_agent(bench), "host", "cpu_util_simple")] == expected
    assert [x for x, _ in points(of_trial(bench), "rank:0", "cpu_util")] == expected


def test_a_clock_that_was_set_back_far_is_believed(bench: Bench) -> None:
    send(bench, sampled(5000), sampled(5001))
    send(bench, sampled(100), sampled(101))
    for since, expected in ((0, [100, 101]), (4000, [5000, 5001])):
        page = of_agent(bench, since=since, until=since + 2000, columns=4000)
        assert [x for x, _ in points(page, "host", "cpu_util_simple")] == expected


def test_unknown_names_and_numbers_without_an_end_are_left_out(bench: Bench) -> None:
    values = {f"name{i}": 1.0 for i in range(5000)}
    values |= {"memory_free": 1e300, "cpu_util_simple": 3.0, "disk_iops": float("nan")}
    send(bench, SystemSample(at=10, values={"host": values, "": {}, "gpu:x": {}}))
    assert [one.name for one in of_agent(bench).series] == ["cpu_util_simple"]


def test_what_is_missing_says_why_until_it_is_there(bench: Bench) -> None:
    why = "no permission"
    missing = {"host": {"disk_iops": why}, f"rank:{RUN}:0": {"memory_pss": why}}
    bench.report(SystemSampled(samples=[sampled(10)], missing=missing))
    found = {(one.source, one.name): one.missing for one in of_trial(bench).series if one.missing}
    assert found == {("host", "disk_iops"): why, ("rank:0", "memory_pss"): why}
    send(bench, SystemSample(at=12, values={"host": {"disk_iops": 4.0}}))
    assert [one.name for one in of_agent(bench).series if one.missing] == []


def test_packing_and_rolling_up_lose_no_extreme_of_a_picture(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few rows to a level, all levels are reached soon."""
    levels = (Level(0.0, 100, 100), Level(10.0, 20, 40), Level(60.0, 10, 10))
    for module in (stored_series, series_packing):
        monkeypatch.setattr(module, "LEVELS", levels)
    monkeypatch.setattr(series_packing, "LAST_STEP_S", 600.0)
    monkeypatch.setattr(series_packing, "_NUM_PACKED", 20)
    drawn = random.Random(1)
    values = [drawn.uniform(0, 100) for _ in range(1500)]
    for at, value in enumerate(values):
        send(bench, sampled(1000.0 + at, cpu=value, rank=value))
        if at % 20 == 19:
            pack(bench, now=1000.0)
    steps = bench.store._db.execute(
        "SELECT step_s, sum(num) FROM series_chunks WHERE owner LIKE 'agent%' GROUP BY 1"
    )
    kept = dict(steps.fetchall())
    assert kept.keys() == {0.0, 10.0, 60.0, 600.0}
    assert 100 <= kept[0.0] <= 300, "not more than what is to be kept, and what is not rolled up"
    for page, source, name in (
        (of_agent(bench, columns=3), "host", "cpu_util_simple"),
        (of_trial(bench, columns=3), "rank:0", "cpu_util"),
    ):
        (series,) = [one for one in page.series if (one.source, one.name) == (source, name)]
        assert min(series.low) == pytest.approx(min(values), rel=1e-5)
        assert max(series.high) == pytest.approx(max(values), rel=1e-5)
        assert len(series.x) == 3
    asked = of_agent(bench, columns=1, names=["cpu_util_simple"])
    (whole,) = asked.series
    assert whole.mid == [pytest.approx(sum(values) / len(values), rel=1e-5)]
    recent = of_agent(bench, columns=100, since=2450.0, until=2500.0)
    assert len(points(recent, "host", "cpu_util_simple")) == 50, "as measured"
    assert of_agent(bench, columns=600, since=1000, until=1400).interval_s > 1


def test_timings_are_seconds_per_batch_by_rank(bench: Bench) -> None:
    bench.report(make_chunk([times(11, 1), times(12, 11, forward=1.0)]))
    bench.report(make_chunk([times(11, 1, forward=0.1)], rank=1))
    page = of_trial(bench, "timings")
    assert points(page, "rank:0", "forward") == [(10, 0.05), (11, 0.1)]
    assert points(page, "rank:1", "forward") == [(10, 0.01)]
    by_batch = of_trial(bench, "timings", axis="batches", sources=["rank:0"], names=["forward"])
    assert points(by_batch, "rank:0", "forward") == [(1, 0.05), (11, 0.1)]
    pack(bench)
    assert count(bench, "series_rows") == 0
    assert of_trial(bench, "timings") == page


def test_of_a_users_sections_and_counters_those_within_bounds_are_kept(bench: Bench) -> None:
    part, endless = times(11, 1).parts["forward"], PartTimes(1, 1e31, 0.0, 0.0, 0.0)
    sections = {"forward": part, "n" * 201: part, "endless": endless}
    sections |= {f"section{index:03}": part for index in range(100)}
    counters = {"n" * 201: 1.0, "boundless": -1e31}
    counters |= {f"counter{index:03}": 1.0 for index in range(100)}
    bench.report(make_chunk([replace(times(11, 1), parts=sections, counters=counters)]))
    kept = ["forward", "section098", f"{COUNTER}counter098"]
    left_out = ["n" * 201, "endless", "section099", f"{COUNTER}boundless", f"{COUNTER}counter099"]
    page = of_trial(bench, "timings", names=[*kept, *left_out])
    assert {each.name for each in page.series} == set(kept)


def test_timings_of_batches_that_are_trained_again_stay_on_the_time_axis_alone(
    bench: Bench,
) -> None:
    bench.report(make_chunk([batches(1, [0.5] * 30), times(11, 1), times(12, 11), times(13, 21)]))
    bench.report(gang_exited(code=1))
    bench.report(gang_started("1.1.2"))
    assert points(of_trial(bench, "timings", axis="batches"), "rank:0", "forward") == []
    bench.report(make_chunk([times(21, 1, forward=0.9)], run="1.1.2"))
    assert points(of_trial(bench, "timings", axis="batches"), "rank:0", "forward") == [(1, 0.09)]
    by_time = points(of_trial(bench, "timings"), "rank:0", "forward")
    assert [x for x, _ in by_time] == [10, 11, 12, 20]


def test_deleting_an_experiment_deletes_its_series_and_leaves_the_machines(bench: Bench) -> None:
    send(bench, *(sampled(10 + i) for i in range(5)))
    bench.report(make_chunk([times(11, 1)]))
    pack(bench)
    send(bench, *(sampled(20 + i) for i in range(5)))
    for _ in bench.store.delete_experiment(1, [1]):
        pass
    assert of_trial(bench).series == []
    assert of_trial(bench, "timings").series == []
    assert len(points(of_agent(bench), "host", "cpu_util_simple")) == 10
    owners = {
        row[0]
        for table in ("series_rows", "series_chunks")
        for row in bench.store._db.execute(f"SELECT owner FROM {table}")
    }
    assert owners == {f"agent:{AGENT}"}
    assert count(bench, "series_runs") == 0


def test_rows_and_chunks_that_are_damaged_are_passed_over(bench: Bench) -> None:
    send(bench, sampled(10), sampled(11))
    pack(bench)
    send(bench, sampled(12), sampled(13))
    bench.store._db.execute("UPDATE series_chunks SET blob = x'00' WHERE source = 'host'")
    bench.store._db.execute("UPDATE series_rows SET json = '{' WHERE at = 12")
    assert points(of_agent(bench), "host", "cpu_util_simple") == [(13, 50)]
    pack(bench)
    assert count(bench, "series_rows") == 0
    assert points(of_agent(bench), "host", "cpu_util_simple") == [(13, 50)]


def test_a_trial_that_was_deleted_while_it_was_packed_leaves_nothing(bench: Bench) -> None:
    send(bench, sampled(10))
    keys = series_packing.find_due(bench.store.path, LATER)
    packed = [series_packing.pack(bench.store.path, key) for key in keys]
    for _ in bench.store.delete_experiment(1, [1]):
        pass
    for each in packed:
        bench.store.series.replace_rows(each)
    assert of_trial(bench).series == []


def test_what_has_been_silent_is_packed(bench: Bench) -> None:
    """It was stored at 1000 by the master's clock."""
    send(bench, sampled(10))
    assert len(series_packing.find_due(bench.store.path, 1000 + 3600)) == 0
    assert len(series_packing.find_due(bench.store.path, 1000 + 5 * 3600)) == 2
    send(bench, sampled(11))
    assert len(series_packing.find_due(bench.store.path, 1000 + 299)) == 0
    assert len(series_packing.find_due(bench.store.path, 1000 + 301)) == 2
    assert len(series_packing.find_due(bench.store.path, 1000 - 301)) == 2, "a clock set back"


def test_metrics_are_answered_by_column(bench: Bench) -> None:
    bench.report(make_chunk([batches(1, [0.5, "NaN", 0.1, 0.2]), batches(5, [9.0])]))
    answer = ask(bench, "GET", "/trials/1/series?of=metrics&axis=batches&columns=2")
    (series,) = SeriesPage.model_validate(answer.json()).series
    assert series == Series(
        source="batches", name="loss", title="loss",
        x=[1, 3], low=[0.5, 0.1], mid=[0.5, 3.1], high=[0.5, 9.0],
    )  # fmt: skip
    assert (
        ask(bench, "GET", "/trials/1/series?of=metrics&axis=batches&max_points=1").json()["series"]
        == []
    )
    part = ask(bench, "GET", "/trials/1/series?of=metrics&axis=batches&since=3&until=4").json()
    assert part["series"][0]["x"] == [3, 4]
    late = make_chunk([replace(batches(6, [7.0]), at=99.0)])
    late.offset = bench.store.offset(RUN, "journal-0")
    bench.report(late)
    since = ask(bench, "GET", "/trials/1/series?of=metrics&since=50").json()
    assert since["series"][0]["x"] == [99]


@pytest.mark.parametrize(
    ("path", "status", "problem"),
    [
        ("/trials/9/series?of=system", 404, "there is no trial 9"),
        ("/trials/1/series?of=system&axis=batches", 422, "by time"),
        ("/trials/1/series?of=nothing", 422, "of: got 'nothing'"),
        ("/trials/1/series?of=metrics&columns=0", 422, "columns: got"),
        ("/agents/nobody/series?of=system", 404, f"those are: {AGENT}"),
        (f"/agents/{AGENT}/series?of=timings", 422, "expected system by time"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    bench: Bench, path: str, status: int, problem: str
) -> None:
    answer = ask(bench, "GET", path)
    assert answer.status_code == status
    assert problem in sentences_of(answer.json())[0]


def test_series_of_a_machine_are_answered(bench: Bench) -> None:
    send(bench, sampled(10))
    assert ask(bench, "GET", f"/agents/{AGENT}/series?of=system&names=cpu_util_simple").json()[
        "series"
    ]
    assert not ask(bench, "GET", f"/agents/{AGENT}/series?of=system&names=disk_iops").json()[
        "series"
    ]
    assert ask(bench, "GET", "/trials/1/series?of=system&sources=rank:0&sources=host").json()[
        "series"
    ]


def test_a_machine_that_is_looked_at_is_sampled(bench: Bench) -> None:
    before = bench.commands()
    ask(bench, "GET", f"/agents/{AGENT}/series?of=system")
    assert bench.commands() == [*before, "take_samples"]
    ask(bench, "GET", "/trials/1/series?of=system")
    assert bench.commands() == [*before, "take_samples"], "trials are sampled while they run"


def test_the_reason_of_a_missing_value_is_shown_until_there_is_one(bench: Bench) -> None:
    def missing() -> dict[str, str]:
        page = of_agent(bench)
        return {one.name: one.missing for one in page.series if one.missing}

    reasons = {"host": {"disk_iops": "no permission", "unheard of": "x"}}
    bench.report(SystemSampled(samples=[sampled(10)], missing=reasons))
    assert missing() == {"disk_iops": "no permission"}
    reasons = {"host": {"disk_iops": "no such disk"}}
    bench.report(SystemSampled(samples=[sampled(11)], missing=reasons))
    assert missing() == {"disk_iops": "no such disk"}
    send(bench, SystemSample(at=12, values={"host": {"disk_iops": 5.0}}))
    assert missing() == {}


def test_a_query_may_name_sources_and_times_to_the_ends(bench: Bench) -> None:
    send(bench, sampled(10), sampled(11, cpu=60), sampled(12))
    page = of_trial(bench, sources=["host"])
    assert {one.source for one in page.series if one.x} == {"host"}
    page = of_trial(bench, since=10, until=11)
    assert points(page, "rank:0", "cpu_util") == [(10, 7), (11, 7)]
    assert points(page, "host", "cpu_util_simple") == [(10, 50), (11, 60)]
