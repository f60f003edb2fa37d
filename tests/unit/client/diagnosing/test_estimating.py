"""Estimates before a submission: what is run, where, and what is certain not to fit."""

from __future__ import annotations

from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.diagnosing import estimating
from det_jupyter.client.diagnosing.estimating import estimate, on_ranks, sampled, too_large
from det_jupyter.config import parse_config
from det_jupyter.contract.messages import (
    CreateExperiment,
    Curve,
    ExperimentView,
    SlotView,
    State,
    TrialEstimate,
)
from det_jupyter.contract.schema.hyperparameters import extreme_hparams
from det_jupyter.errors import ConfigError, Conflict, NotFound, RankFailed
from tests.problems import said
from tests.unit.front.verbs.cluster_samples import agent, pool, slot
from tests.unit.view.view_samples import experiment, failure, trial

GB = 10**9
MEASURED = {
    "parameter_bytes": 4.0, "gradient_bytes": 4.0, "optimizer_bytes": 8.0,
    "activation_bytes": 100.0, "peak_bytes": 120.0, "slot_bytes": 1000.0, "records_per_s": 9.0,
}  # fmt: skip


def config(**changes: Any) -> Any:
    written = {
        "name": "nets",
        "entrypoint": "Net",
        "hyperparameters": {
            "global_batch_size": 9,
            "opt": {"lr": {"type": "log", "base": 10, "minval": -3, "maxval": -1}},
            "width": {"type": "categorical", "vals": [64, 16, 32]},
        },
        "searcher": {
            "name": "random", "metric": "error", "max_trials": 4, "max_length": {"batches": 10},
        },
    }  # fmt: skip
    return parse_config(written | changes, default_seed=0)


class FakeMaster:
    """Ends each run at once, with these metrics or errors, one after the other."""

    def __init__(self, *outcomes: Any, num_free: int = 2, memory_bytes: int = 0) -> None:
        self.outcomes = outcomes
        gpu = SlotView(id=0, kind="cuda", index=0, name="H100", memory_bytes=memory_bytes)
        slots = [slot(0).model_copy(update={"slot": gpu}), slot(1)]
        self._pools = [pool(agent(*slots), num_free=num_free)]
        self.requests: list[CreateExperiment] = []
        self.there: set[int] = set()
        self.killed: list[int] = []
        self.no_memory = False

    def pools(self) -> list[Any]:
        return self._pools

    def create(self, request: CreateExperiment) -> ExperimentView:
        self.requests.append(request)
        self.there.add(len(self.requests))
        return experiment(id=len(self.requests))

    def experiment(self, experiment_id: int) -> ExperimentView:
        if experiment_id not in self.there:
            raise NotFound("it is gone")
        failed = None
        if isinstance(self.outcomes[experiment_id - 1], Exception):
            failed = failure(error="ValueError: boom", no_memory=self.no_memory)
        return experiment(trial(failure=failed), state=State.ERROR, id=experiment_id)

    def curves(self, experiment_id: int) -> list[Curve]:
        outcome = self.outcomes[experiment_id - 1]
        measured = outcome if isinstance(outcome, dict) else {}
        return [
            Curve(trial_id=1, group="rehearsal", name=n, steps=[1], values=[v], times=[9.0])
            for n, v in measured.items()
        ]

    def handle(self, experiment_id: int) -> Any:
        return FakeHandle(self, experiment_id)

    @property
    def rehearsals(self) -> list[str]:
        """What each run measured: the value of its environment variable."""
        found = [
            request.config["environment"]["environment_variables"] for request in self.requests
        ]
        return [str(variables).partition("REHEARSAL=")[2][:8] for variables in found]


class FakeHandle:
    """A handle on a run of the fake master."""

    def __init__(self, master: FakeMaster, experiment_id: int) -> None:
        self._master = master
        self.id = experiment_id

    def wait(self, timeout: float | None = None, *, on_tick: Any) -> State:
        outcome = self._master.outcomes[self.id - 1]
        status = "queued" if outcome == "waits" else "running"
        on_tick({"trials": [{"status": status}]})
        if isinstance(outcome, Exception):
            raise outcome
        return outcome if isinstance(outcome, State) else State.COMPLETED

    @property
    def view(self) -> ExperimentView:
        return self._master.experiment(self.id)

    def kill(self) -> None:
        self._master.killed.append(self.id)

    def delete(self, *, ask: bool) -> None:
        self._master.there.discard(self.id)


def estimated(master: FakeMaster, given: Any) -> list[TrialEstimate]:
    view = experiment()
    request = CreateExperiment(
        config={}, capsule=view.capsule, python=view.python, cwd=view.cwd, template="base"
    )
    found = estimate(cast("Client", master), request, given, master.handle)
    assert master.there == set(), "runs are deleted"
    return found


def test_a_search_is_measured_at_its_first_trial_and_at_its_ends() -> None:
    first, smallest, largest = sampled(config()).values()
    assert 0.001 <= first["opt"]["lr"] <= 0.1
    assert smallest == {"global_batch_size": 9, "opt": {"lr": 0.001}, "width": 16}
    assert largest == {"global_batch_size": 9, "opt": {"lr": 0.1}, "width": 64}
    assert list(sampled(config(hyperparameters={"global_batch_size": 9}))) == ["first"]


def test_ends_of_ranges_have_the_types_of_samples() -> None:
    drop = {"type": "double", "minval": 0, "maxval": 1}
    width = {"type": "int", "minval": 4.0, "maxval": 64.0}
    ends = extreme_hparams({"drop": drop, "width": width}, is_largest=True)
    assert repr(ends) == "{'drop': 1.0, 'width': 64}"


def test_runs_get_the_slots_of_a_trial_and_save_nothing() -> None:
    master = FakeMaster({**MEASURED, "seconds_per_batch": 0.5}, MEASURED, MEASURED)
    first, smallest, _ = estimated(master, config(resources={"slots_per_trial": 2}))
    assert (first.trial, first.way, first.slots, first.is_gpu) == ("first", "slot", 2, True)
    assert (first.parameter_bytes, first.optimizer_bytes, first.peak_bytes) == (4, 8, 120)
    assert (first.slot_bytes, first.seconds_per_batch) == (1000, 0.5)
    assert smallest.hparams == {"opt.lr": 0.001, "width": 16}
    request = master.requests[0]
    assert (request.template, request.is_quiet, request.parent_id) == (None, True, None)
    assert request.is_temporary
    assert request.config["name"] == "nets: estimate"
    assert request.config["resources"]["slots_per_trial"] == 2
    assert request.config["checkpoint_policy"] == "none"
    assert master.rehearsals == ["seconds="] * 3


def test_a_pool_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="resource_pool: got 'night', expected one of default"):
        estimated(FakeMaster(), config(resources={"resource_pool": "night"}))


def test_without_free_slots_a_rank_is_computed_with_its_share_of_the_batch() -> None:
    master = FakeMaster(MEASURED, num_free=1, memory_bytes=80 * GB)
    one = {"hyperparameters": {"global_batch_size": 9}, "resources": {"slots_per_trial": 2}}
    [first] = estimated(master, config(**one))
    assert master.rehearsals == ["memory=1"]
    request = master.requests[0].config
    assert request["resources"]["slots_per_trial"] == 0
    assert request["hyperparameters"] == {"global_batch_size": 5}
    assert (first.way, first.slot_bytes, first.seconds_per_batch) == ("meta", 80 * GB, None)
    assert first.peak_bytes == 124, "with the buckets of DDP"


def test_slots_that_are_taken_meanwhile_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimating, "_QUEUED_S", -1.0)
    master = FakeMaster("waits", MEASURED)
    [first] = estimated(master, config(hyperparameters={"global_batch_size": 9}))
    assert (master.killed, first.way) == ([1], "meta")


def test_a_first_trial_that_fails_ends_the_estimate_and_a_later_one_is_named() -> None:
    failed = RankFailed("trial 3: ValueError: boom")
    with pytest.raises(RankFailed, match="estimate: the first trial fails: ValueError: boom"):
        estimated(FakeMaster(failed), config())
    first, _, largest = estimated(FakeMaster(MEASURED, MEASURED, failed), config())
    assert (first.problem, largest.problem) == ("", "ValueError: boom")
    assert largest.peak_bytes is None
    with pytest.raises(Conflict, match="the run of the first trial was killed"):
        estimated(FakeMaster(State.CANCELED), config())


def test_a_trial_that_ends_itself_is_named() -> None:
    first, _, largest = estimated(FakeMaster(MEASURED, MEASURED, {}), config())
    assert (first.problem, largest.peak_bytes) == ("", None)
    assert "ended itself before enough batches were measured" in largest.problem
    with pytest.raises(RankFailed, match="the first trial fails: it ended itself"):
        estimated(FakeMaster({}), config())


def test_a_batch_that_does_not_fit_is_computed_without_values() -> None:
    master = FakeMaster(RankFailed("out of memory"), MEASURED)
    master.no_memory = True
    [first] = estimated(master, config(hyperparameters={"global_batch_size": 9}))
    assert (first.way, first.problem, first.peak_bytes) == ("meta", "ValueError: boom", 120)
    master = FakeMaster(RankFailed("out of memory"), RankFailed("NotImplementedError"))
    master.no_memory = True
    [first] = estimated(master, config(hyperparameters={"global_batch_size": 9}))
    assert (first.way, first.problem, first.peak_bytes) == ("slot", "ValueError: boom", None)


def of_rank(**changes: Any) -> TrialEstimate:
    fields = {
        "trial": "first", "hparams": {}, "way": "meta", "slots": 2, "is_gpu": True,
        "parameter_bytes": 10, "gradient_bytes": 10, "optimizer_bytes": 20,
        "activation_bytes": 50, "peak_bytes": 85, "slot_bytes": 100,
    }  # fmt: skip
    return TrialEstimate.model_validate(fields | changes)


def test_fsdp_divides_what_stands_and_ddp_keeps_gradients() -> None:
    assert on_ranks(of_rank(slots=1), is_sharded=True) == of_rank(slots=1)
    assert on_ranks(of_rank(), is_sharded=False).peak_bytes == 95
    found = on_ranks(of_rank(), is_sharded=True)
    assert (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes) == (5, 5, 10)
    assert found.peak_bytes == 70


def test_refused_is_only_what_is_larger_than_every_gpu_for_every_trial() -> None:
    sharded = config(optimizations={"sharding": "fsdp"})
    large = of_rank(slot_bytes=29)
    problem = too_large([large, of_rank(slot_bytes=28)], config())
    assert said([problem] if problem else []) == [
        "resources.slots_per_trial: parameters and optimizer states of a rank take 30 B, and the "
        "largest GPU of the pool has 29 B; make the model smaller, or set optimizations.sharding: "
        "fsdp with more slots"
    ]
    assert "fsdp" not in str(too_large([large], sharded))
    for fits in (of_rank(slot_bytes=30), of_rank(slot_bytes=None), of_rank(optimizer_bytes=None)):
        assert too_large([large, fits], config()) is None
    assert too_large([of_rank(slot_bytes=9, is_gpu=False)], config()) is None
    huge = {**MEASURED, "parameter_bytes": 90.0 * GB}
    with pytest.raises(ConfigError, match="take 90 GB, and the largest GPU of the pool has 80 GB"):
        estimated(FakeMaster(*[huge] * 3, num_free=0, memory_bytes=80 * GB), config())
