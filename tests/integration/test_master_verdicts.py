"""The master judges running trials from what their ranks and machines report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.messages import Chunk, RunReport, SystemSample, SystemSampled, Verdict
from det_jupyter.diagnosis import RunVerdict
from tests.integration.master_support import (
    RUN,
    Bench,
    bench_with_trial,
    first_step,
    gang_exited,
    last_words,
    make_chunk,
    started,
)
from tests.unit.diagnosis.samples import HEALTHY, NOW, Parts, interval, together

SLOW_DATA: Parts = {**HEALTHY, "dataloader_next": 12.0}


class Ranks:
    """Two ranks that journal where their time goes."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._sizes = [0, 0]
        self._index = 0
        for rank in (0, 1):
            self.write(rank, [started(), *([first_step()] if rank == 0 else [])])

    def write(self, rank: int, records: list[object]) -> Chunk:
        chunk = make_chunk(records, offset=self._sizes[rank], rank=rank)  # type: ignore[arg-type]
        self._sizes[rank] += chunk.size_bytes
        self.bench.report(chunk)
        return chunk

    def train(self, own: list[Parts], num_intervals: int = 6) -> None:
        for _ in range(num_intervals):
            self.bench.now += 1.0
            for rank, parts in enumerate(together(own)):
                self.write(rank, [interval(self._index, parts)])
            self._index += 1


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def verdict_of(bench: Bench) -> Verdict | None:
    return bench.service.views.trial(1).verdict


def test_a_verdict_is_published_with_the_trial_and_stays_when_it_has_ended(bench: Bench) -> None:
    ranks = Ranks(bench)
    assert verdict_of(bench) is None
    ranks.train([HEALTHY, SLOW_DATA])
    found = verdict_of(bench)
    assert found is not None
    assert (found.kind, found.causes[0].rank) == ("straggler", 1)
    ranks.write(0, list(last_words()))
    bench.report(gang_exited())
    assert verdict_of(bench) == found
    assert bench.service.views.experiment(1).trials[0].verdict == found


def test_a_verdict_is_no_news_while_it_is_the_same(bench: Bench) -> None:
    ranks = Ranks(bench)
    ranks.train([HEALTHY, HEALTHY])
    seq = bench.store.feed.last_seq
    ranks.train([HEALTHY, HEALTHY])
    assert bench.store.feed.last_seq == seq


def test_the_end_of_a_short_run_is_judged_at_once(bench: Bench) -> None:
    ranks = Ranks(bench)
    bench.now += 100
    ranks.train([HEALTHY, HEALTHY], 1)
    found = verdict_of(bench)
    assert found is not None
    assert found.kind == "unknown"
    for index in (1, 2, 3):
        for rank in (0, 1):
            ranks.write(rank, [interval(index, together([HEALTHY, HEALTHY])[rank])])
    ranks.write(0, list(last_words()))
    bench.report(gang_exited())
    found = verdict_of(bench)
    assert found is not None
    assert found.kind == "healthy"


def test_a_run_that_ends_without_news_is_judged_too(bench: Bench) -> None:
    ranks = Ranks(bench)
    ranks.train([HEALTHY, SLOW_DATA], 4)
    found = verdict_of(bench)
    assert found is not None
    assert "too few intervals" in found.sentence
    ranks.write(0, list(last_words()))
    bench.report(gang_exited())
    found = verdict_of(bench)
    assert found is not None
    assert found.kind == "straggler"


def test_a_new_master_keeps_the_last_verdict_and_goes_on_from_what_comes(tmp_path: Path) -> None:
    path = tmp_path / "det.sqlite3"
    with bench_with_trial(path) as bench:
        ranks = Ranks(bench)
        ranks.train([HEALTHY, SLOW_DATA])
    again = Bench(path)
    try:
        again.register(runs=[RunReport(allocation_id=RUN, alive=True)])
        found = verdict_of(again)
        assert found is not None
        assert found.kind == "straggler"
        again.now = bench.now
        ranks.bench = again
        ranks.train([HEALTHY, HEALTHY], 8)
        found = verdict_of(again)
        assert found is not None
        assert found.kind == "healthy"
    finally:
        again.service.close()


def test_samples_of_the_machine_change_the_advice(bench: Bench) -> None:
    ranks = Ranks(bench)
    ranks.train([HEALTHY, HEALTHY], 1)
    values = {"host": {"cpu_util_simple": 97.0}}
    bench.report(SystemSampled(samples=[SystemSample(at=NOW, values=values)]))
    ranks.train([SLOW_DATA, SLOW_DATA])
    found = verdict_of(bench)
    assert found is not None
    assert "more workers will not help" in found.sentence


def test_a_rule_that_raises_hurts_no_intake(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(RunVerdict, "judge", fail)
    ranks = Ranks(bench)
    ranks.train([HEALTHY, HEALTHY])
    ranks.write(0, list(last_words()))
    assert verdict_of(bench) is None
    assert bench.service.views.trial(1).steps_completed == 100
    assert [r.message for r in caplog.records if "judged" in r.message] == [
        "trial=1 cannot be judged"
    ]


def test_a_verdict_goes_with_its_experiment(bench: Bench) -> None:
    ranks = Ranks(bench)
    ranks.train([HEALTHY, HEALTHY])
    assert bench.store.verdict(1) is not None
    for _ in bench.store.delete_experiment(1, [1]):
        pass
    assert bench.store.verdict(1) is None
