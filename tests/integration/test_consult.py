"""Queries of samplers are answered one after another, and never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import Kill, State
from det_jupyter.master.background import consult as consulting
from det_jupyter.master.background.consult import consult
from det_jupyter.master.machine.model.commands import ConsultSampler
from det_jupyter.master.machine.model.events import Event
from det_jupyter.master.sampling.optuna_study import TrialHistory
from det_jupyter.master.sampling.samplers import Samplers
from det_jupyter.master.service.service import Service
from det_jupyter.master.service.storing.store import Store
from tests.unit.master.machine_world import submitted

SEARCHER = {
    "name": "optuna",
    "metric": "error",
    "max_length": {"batches": 10},
    "max_trials": 3,
    "max_concurrent_trials": 2,
}


class Counting:
    """Samplers that return the number of former trials, or fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails

    def sample(
        self,
        experiment_id: int,
        config: Mapping[str, Any],
        index: int,
        history: Sequence[TrialHistory],
    ) -> dict[str, Any]:
        if self.fails:
            raise ValueError("no such distribution")
        return {"lr": float(len(history))}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(Store(tmp_path / "det.sqlite3"))
    service.apply(submitted(slots=1, searcher=SEARCHER))
    yield service
    service.close()


def run(service: Service, samplers: Counting, until: Callable[[], bool]) -> None:
    """Answer queries until a condition holds."""

    async def main() -> None:
        task = asyncio.create_task(consult(service, cast("Samplers", samplers)))
        try:
            while not until():
                await asyncio.sleep(0.005)
                assert not task.done(), "nobody answers any more"
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await cast("Awaitable[None]", task)

    asyncio.run(main())


def num_trials(service: Service) -> int:
    return len(service.machine.state.trials)


def test_each_trial_is_made_of_its_answer(service: Service) -> None:
    run(service, Counting(), lambda: num_trials(service) == 2)
    assert [trial.hparams for trial in service.machine.state.trials.values()] == [
        {"lr": 0.0},
        {"lr": 1.0},
    ]


def test_what_was_asked_before_a_restart_is_asked_again(tmp_path: Path, service: Service) -> None:
    again = Service(Store(tmp_path / "det.sqlite3"))
    run(again, Counting(), lambda: num_trials(again) == 2)
    again.store.close()


def test_an_answer_that_could_not_be_stored_is_asked_for_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consulting, "_RETRY_S", 0.01)
    take, failures = service.take, [OSError("the disk is full")]

    def full(event: Event) -> None:
        if failures:
            raise failures.pop()
        take(event)

    monkeypatch.setattr(service, "take", full)
    run(service, Counting(), lambda: num_trials(service) == 2)


def test_a_sampler_that_fails_ends_the_experiment_with_what_it_said(service: Service) -> None:
    (experiment,) = service.machine.state.experiments.values()
    run(service, Counting(fails=True), lambda: experiment.state.is_terminal)
    assert experiment.state is State.ERROR
    assert experiment.message == "searcher.sampler: ValueError: no such distribution"


def test_nothing_is_asked_for_an_experiment_that_has_ended_or_is_gone(service: Service) -> None:
    asked: list[int] = []

    class Noting(Counting):
        def sample(
            self,
            experiment_id: int,
            config: Mapping[str, Any],
            index: int,
            history: Sequence[TrialHistory],
        ) -> dict[str, Any]:
            asked.append(experiment_id)
            return super().sample(experiment_id, config, index, history)

    question, *_ = service.machine.pending_questions()
    assert isinstance(question, ConsultSampler)
    service.apply(Kill(experiment_id=1))
    service.questions.put_nowait(question)
    service.questions.put_nowait(replace(question, experiment_id=9))
    service.apply(submitted(slots=1, searcher=SEARCHER))
    run(service, Noting(), lambda: len(asked) > 0)
    assert set(asked) == {2}
