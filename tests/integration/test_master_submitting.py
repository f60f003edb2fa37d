"""The master accepts a submission once, and refuses it at once while it shuts down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import ContinueTrial
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.errors import ConfigError, MasterUnreachable
from det_jupyter.master.http.routes_search import _train_on
from tests.integration.master_support import (
    Bench,
    bench_with_trial,
    first_step,
    gang_exited,
    last_words,
    make_chunk,
    make_request,
    started,
)


def test_the_same_key_is_the_same_experiment_after_a_restart_too(tmp_path: Path) -> None:
    request = make_request().model_copy(update={"key": "k1"})
    other = make_request().model_copy(update={"key": "k2"})
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        taken = [asyncio.run(bench.service.submit(each)).id for each in (request, request, other)]
    assert taken == [2, 2, 3]
    bench = Bench(
        tmp_path / "det.sqlite3"
    )  # the next master, to which the client repeats the request
    bench.register()
    assert asyncio.run(bench.service.submit(request)).id == 2
    assert asyncio.run(bench.service.submit(make_request())).id == 4  # no key: not repeatable
    assert asyncio.run(bench.service.submit(make_request())).id == 5
    bench.service.close()


def test_two_requests_of_a_key_that_both_wait_for_an_agent_make_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "det.sqlite3")
    request = make_request().model_copy(update={"key": "k"})

    async def both() -> list[int]:
        submissions = [asyncio.create_task(bench.service.submit(request)) for _ in range(2)]
        await asyncio.sleep(0.1)
        bench.register()
        return [view.id for view in await asyncio.gather(*submissions)]

    assert asyncio.run(both()) == [1, 1]
    bench.service.close()


def test_a_refused_submission_leaves_its_key_free(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        wrong = make_request(resources={"slots_per_trial": 99}).model_copy(update={"key": "k"})
        with pytest.raises(ConfigError):
            asyncio.run(bench.service.submit(wrong))
        right = make_request().model_copy(update={"key": "k"})
        assert asyncio.run(bench.service.submit(right)).id == 2


def test_a_trial_is_trained_on_once_by_its_key(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        checkpoint = CheckpointSaved(
            at=1.0, uuid="u", steps_completed=100, path="/u", size_bytes=1, metadata={}
        )
        bench.report(make_chunk([started(), first_step(), checkpoint, *last_words()]))
        bench.report(gang_exited())
        body = ContinueTrial(length=200, key="k")
        ids = [_train_on(bench.service, 1, body).id for _ in range(2)]
        assert ids == [2, 2]


def test_the_master_parses_what_is_submitted_once(tmp_path: Path, parses: list[Any]) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        parses.clear()
        view = asyncio.run(bench.service.submit(make_request()))
        assert (
            bench.service.machine.state.experiment(view.id).settings.to_document() == view.config
        )
        assert len(parses) == 1


def test_a_submission_that_waits_for_an_agent_hears_at_once_that_the_master_leaves(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "det.sqlite3")

    async def submit_and_leave() -> None:
        submission = asyncio.create_task(bench.service.submit(make_request()))
        await asyncio.sleep(0.1)
        bench.service.begin_to_leave()
        async with asyncio.timeout(10):  # otherwise it waits 15 s for an agent
            with pytest.raises(MasterUnreachable, match="the master is stopping"):
                await submission

    asyncio.run(submit_and_leave())
    bench.service.close()
