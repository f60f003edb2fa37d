"""Estimates what an experiment's trials need before it is submitted: memory, and time per batch.

    slot    a few batches on as many slots as a trial has, if they are free
    meta    otherwise: without slots, one rank, on tensors that have no values

Each is an experiment of one trial that only measures (derived.py, pytorch/training/rehearsal.py)
and is deleted. Of a search three samples are measured: the first trial's, and those with all
ranges at their lower and at their upper ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import reduce
from math import ceil, inf
from operator import getitem
from typing import Any, Literal

from det_jupyter.client.client import Client
from det_jupyter.client.diagnosing.derived import (
    ProgressLine,
    TemporaryExperiment,
    check_class,
    derive_rehearsal,
    remove,
)
from det_jupyter.config import ExperimentConfig
from det_jupyter.config.pools import DEFAULT_POOL
from det_jupyter.contract.messages import CreateExperiment, State, TrialEstimate
from det_jupyter.contract.schema.hyperparameters import extreme_hparams, is_range, leaves
from det_jupyter.contract.values.text import size
from det_jupyter.errors import ConfigError, Conflict, Problem, RankFailed
from det_jupyter.view import ViewState

VERB = "estimate"
_GROUP = "rehearsal"  # group of the metrics that a run reports
_SECONDS = 0.5  # duration of the measurement of speed
_QUEUED_S = 10.0  # how long a run waits for slots that were free
_ENDED_EARLY = "it ended itself before enough batches were measured (set_stop_requested)"
_ONLY_CLASSES = "the batches of other loops cannot be counted from outside"

Which = Literal["first", "smallest", "largest"]


class _Waits(Exception):
    """A run does not get the slots that were free."""


def estimate(
    client: Client,
    request: CreateExperiment,
    config: ExperimentConfig,
    handle_of: Callable[[int], TemporaryExperiment],
) -> list[TrialEstimate]:
    """Return estimates of the first trial and, if there are ranges, of the extremes.

    Args:
        request: The request that would submit the experiment.
        config: Its configuration, with defaults.
        handle_of: Returns a handle whose `wait` prints nothing and raises KeyboardInterrupt.

    Raises:
        ConfigError: The entrypoint is no class, or it is certain that no trial fits into a slot.
        RankFailed: The first trial fails.
    """
    check_class(request, VERB, _ONLY_CLASSES)
    runs = _Runs(client, request, config, handle_of)
    samples = sampled(config)
    try:
        found = [runs.measure(which, hparams) for which, hparams in samples.items()]
    finally:
        runs.line.close()
    if problem := too_large(found, config):
        raise ConfigError([problem])
    return found


def sampled(config: ExperimentConfig) -> dict[Which, dict[str, Any]]:
    """Return the hyperparameters to measure; equal ones only once."""
    space, seed = config.hyperparameters, config.reproducibility.experiment_seed
    [first] = config.searcher.sample(space, seed, 1)
    found: dict[Which, dict[str, Any]] = {"first": first}
    ends: dict[Which, bool] = {"smallest": False, "largest": True}
    for which, is_largest in ends.items():
        hparams = extreme_hparams(space, is_largest=is_largest)
        if hparams not in found.values():
            found[which] = hparams
    return found


class _Runs:
    """The runs of one estimate, one after the other."""

    def __init__(
        self,
        client: Client,
        request: CreateExperiment,
        config: ExperimentConfig,
        handle_of: Callable[[int], TemporaryExperiment],
    ) -> None:
        self._client = client
        self._request = request.model_copy(
            update={"config": config.to_document(), "template": None}
        )
        self._config = config
        self._handle_of = handle_of
        self._slots = config.resources.least_slots
        self._lacked_memory = False  # the last run that failed
        name = config.resources.resource_pool or DEFAULT_POOL
        pools = {pool.name: pool for pool in client.pools()}
        if name not in pools:
            problem = f"got {name!r}, expected one of {', '.join(pools)}"
            raise ConfigError([Problem("resources.resource_pool", problem)])
        self._pool = pools[name]
        slots = [slot.slot for agent in self._pool.agents for slot in agent.slots]
        self._gpus = [slot for slot in slots if slot.kind == "cuda"] if self._slots else []
        self.line = ProgressLine()

    def measure(self, which: Which, hparams: dict[str, Any]) -> TrialEstimate:
        """Estimate one sample; `problem` is set if that fails, unless it is the first trial."""
        problem = ""
        if self._has_slots():
            try:
                return self._estimate(which, hparams, "slot")
            except _Waits:
                pass
            except RankFailed as error:
                if which == "first" and not self._lacked_memory:
                    error.args = (f"{VERB}: the first trial fails: {error.reason}",)
                    raise
                problem = error.reason
                if not self._lacked_memory:
                    return self._failed(which, hparams, "slot", problem)
        try:
            found = self._estimate(which, hparams, "meta")
        except (RankFailed, Conflict, ConfigError) as error:
            if problem:
                return self._failed(which, hparams, "slot", problem)
            reason = error.reason if isinstance(error, RankFailed) else str(error)
            return self._failed(which, hparams, "meta", reason)
        return found.model_copy(update={"problem": problem})

    def _has_slots(self) -> bool:
        pool = self._pool
        return not self._slots or (pool.num_free >= self._slots and not pool.num_waiting)

    def _failed(
        self, which: Which, hparams: dict[str, Any], way: Literal["slot", "meta"], problem: str
    ) -> TrialEstimate:
        drawn = [path for path, spec in leaves(self._config.hyperparameters) if is_range(spec)]
        return TrialEstimate(
            trial=which,
            hparams={".".join(path): reduce(getitem, path, hparams) for path in drawn},
            way=way,
            slots=self._slots,
            is_gpu=bool(self._gpus),
            problem=problem,
        )

    def _estimate(
        self, which: Which, hparams: dict[str, Any], way: Literal["slot", "meta"]
    ) -> TrialEstimate:
        measured = self._run(which, hparams, way)
        fields = TrialEstimate.model_fields
        known = {name: value for name, value in measured.items() if name in fields}
        bytes_ = {name: int(known[name]) for name in known if name.endswith("_bytes")}
        found = self._failed(which, hparams, way, "").model_copy(update=known | bytes_)
        if way == "slot":
            return found
        largest = max((slot.memory_bytes for slot in self._gpus), default=0)
        found = found.model_copy(update={"slot_bytes": largest or found.slot_bytes})
        return on_ranks(found, is_sharded=self._config.optimizations.sharding is not None)

    def _run(
        self, which: Which, hparams: dict[str, Any], way: Literal["slot", "meta"]
    ) -> dict[str, float]:
        """Run the rehearsal, and return what it has reported."""
        experiment = self._handle_of(self._client.create(self._derived(hparams, way)).id)
        self._lacked_memory = False
        began = time.monotonic()

        def show(state: ViewState) -> None:
            is_queued = any(trial["status"] == "queued" for trial in state["trials"])
            if is_queued and way == "slot" and time.monotonic() - began > _QUEUED_S:
                raise _Waits
            self.line.show(f"{VERB}: {which} trial {'waits' if is_queued else 'runs'}")

        is_over = False
        try:
            state = experiment.wait(on_tick=show)
            is_over = True
            curves = {c.name: c for c in self._client.curves(experiment.id) if c.group == _GROUP}
            if state is State.CANCELED:
                raise Conflict(f"{VERB}: the run of the {which} trial was killed")
            if not curves:
                raise RankFailed(_ENDED_EARLY)
            return {name: curve.values[-1] or 0.0 for name, curve in curves.items()}
        except RankFailed as error:
            is_over = True
            for failure in (trial.failure for trial in experiment.view.trials):
                if failure is not None:  # its text is without the number of the run
                    self._lacked_memory = failure.no_memory
                    error.reason = failure.error
            raise
        finally:
            if not is_over:
                experiment.kill()
            remove(self._client, [experiment], VERB)

    def _derived(self, hparams: dict[str, Any], way: Literal["slot", "meta"]) -> CreateExperiment:
        config = self._config
        window = config.optimizations.aggregation_frequency
        if way == "slot":
            words = f"seconds={_SECONDS:g} warmup={2 * window} every={window} memory=1"
            return derive_rehearsal(self._request, VERB, words, hparams=hparams)
        batch_size = hparams.get("global_batch_size")
        if isinstance(batch_size, int) and self._slots:
            hparams = hparams | {"global_batch_size": max(1, ceil(batch_size / self._slots))}
        return derive_rehearsal(
            self._request,
            VERB,
            "memory=1 fake=1",
            hparams=hparams,
            resources={"slots_per_trial": 0},
        )


def on_ranks(found: TrialEstimate, *, is_sharded: bool) -> TrialEstimate:
    """Return the estimate for a rank of several, from that for one rank with its share of a batch.

    FSDP divides what stands between batches. DDP's buckets hold gradients all the time; one rank
    frees them before it has all activations.
    """
    if found.slots < 2 or found.peak_bytes is None:
        return found
    parts = (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes)
    whole = [part or 0 for part in parts]
    if not is_sharded:
        return found.model_copy(update={"peak_bytes": found.peak_bytes + whole[1]})
    shares = [ceil(part / found.slots) for part in whole]
    standing = whole[0] + whole[2] - shares[0] - shares[2]
    return found.model_copy(
        update={
            "parameter_bytes": shares[0],
            "gradient_bytes": shares[1],
            "optimizer_bytes": shares[2],
            "peak_bytes": max(sum(shares), found.peak_bytes - standing),
        }
    )


def too_large(found: Sequence[TrialEstimate], config: ExperimentConfig) -> Problem | None:
    """Return a problem if parameters and optimizer alone exceed a GPU in each of the estimates."""
    needs = [(each.parameter_bytes or 0) + (each.optimizer_bytes or 0) for each in found]
    rooms = [each.slot_bytes or inf if each.is_gpu else inf for each in found]
    if any(need <= room for need, room in zip(needs, rooms, strict=True)):
        return None
    remedy = "" if config.optimizations.sharding else ", or set optimizations.sharding: fsdp"
    return Problem(
        "resources.slots_per_trial",
        f"parameters and optimizer states of a rank take {size(min(needs))}, and the largest GPU "
        f"of the pool has {size(max(rooms))}; make the model smaller{remedy} with more slots",
    )
