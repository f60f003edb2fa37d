"""Trials that are made to be limited by something, and what the master says of them.

The machine may be loaded by others: then an input-bound trial computes longer, and ranks wait for
each other more. So only what a trial was made to be is asserted, and what it cannot be.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import Verdict
from tests.bottlenecks import SOURCE, config
from tests.processes import DetHome, wait_until
from tests.trials import capture_trial, create, wait_for_steps

pytestmark = pytest.mark.e2e


@contextmanager
def training(client: Client, *configs: dict[str, Any]) -> Iterator[list[Experiment]]:
    capsule = capture_trial(client, "MadeTrial", SOURCE)
    experiments = [create(client, each, capsule) for each in configs]
    try:
        yield experiments
    finally:
        for experiment in experiments:
            experiment.kill()
        for experiment in experiments:
            experiment.wait()


def settled(experiment: Experiment, fits: Callable[[Verdict], bool]) -> Verdict:
    """Return the trial's verdict once it fits."""
    seen: list[str] = []

    def find() -> Verdict | None:
        trials = experiment.view.trials
        verdict = trials[0].verdict if trials else None
        if verdict is None:
            return None
        seen[:] = [verdict.sentence, str(dict(verdict.shares))]
        return verdict if fits(verdict) else None

    with suppress(AssertionError):
        return wait_until(find, "the verdict fits")
    raise AssertionError(f"the last verdict was {seen}")


def is_kind(kind: str) -> Callable[[Verdict], bool]:
    return lambda verdict: verdict.kind == kind


def test_sleeping_trials_are_bound_by_what_sleeps(client: Client) -> None:
    validating = config(validation_s=0.3) | {"min_validation_period": {"batches": 30}}
    slow_data = config(2, slow_rank=1, slow_data_s=0.04)
    with training(client, config(data_s=0.04), validating, slow_data) as made:
        data, validation, straggler = made
        found = settled(data, is_kind("input"))
        assert "num_workers" in str(found.causes[0].advice) or "full" in found.sentence
        found = settled(validation, is_kind("validation"))
        assert "raise min_validation_period (now 30 batches)" in found.sentence
        found = settled(straggler, is_kind("straggler"))
        assert (found.causes[0].rank, found.causes[0].because) == (1, "data")
        assert straggler.verdict.sentence in repr(straggler.verdict)
    assert data.trial.verdict.kind == "input"  # it has ended, and keeps its verdict


@pytest.fixture(scope="module")
def found(home: DetHome) -> Iterator[dict[str, Verdict]]:
    """Return the verdicts on three trials that train at the same time."""
    client = home.client()
    mixed = config(data_s=0.03, validation_s=0.4) | {"min_validation_period": {"batches": 20}}
    # They sleep: what computes longer because the CPU is full is no straggler.
    late = config(2, slow_rank=1, slow_sleep_s=0.08)
    with training(client, config(device_s=0.04), mixed, late) as (transfer, both, straggler):
        found = {
            "transfer": settled(transfer, is_kind("transfer")),
            "both": settled(both, lambda v: {c.kind for c in v.causes} >= {"input", "validation"}),
            "straggler": settled(straggler, is_kind("straggler")),
        }
    yield found
    client.session.close()


def test_causes_mix_and_transfers_count(found: dict[str, Verdict]) -> None:
    assert "to_device" in found["transfer"].sentence
    assert "waiting for data" in found["both"].sentence
    assert "goes to validation" in found["both"].sentence


def test_a_rank_whose_batches_take_longer_is_named(found: dict[str, Verdict]) -> None:
    cause = found["straggler"].causes[0]
    assert (cause.rank, cause.because) == (1, "compute")


def test_checkpoints_of_a_large_state_are_seen(client: Client) -> None:
    saving = config(ballast=20_000_000) | {"min_checkpoint_period": {"batches": 20}}
    with training(client, saving) as [experiment]:
        found = settled(experiment, lambda v: "checkpoint" in {c.kind for c in v.causes})
        assert "min_checkpoint_period (now 20 batches)" in str(found.causes)


def test_a_large_model_with_a_tiny_batch_communicates(client: Client) -> None:
    large = config(2, width=1000, depth=2, global_batch_size=2)
    with training(client, large) as [experiment]:
        found = settled(experiment, lambda v: "communication" in {c.kind for c in v.causes})
        assert "optimizations.aggregation_frequency: 4" in str(found.causes)
        assert "straggler" not in {cause.kind for cause in found.causes}


def test_a_healthy_trial_is_healthy(client: Client) -> None:
    with training(client, config(compute_s=0.05)) as [experiment]:
        found = settled(experiment, lambda v: v.kind != "unknown")
        # While others use its core, there is something to gain: that they do not.
        assert found.kind == "healthy" or "The CPU is full" in found.sentence, found


@pytest.mark.long
def test_a_loaded_machine_neither_makes_nor_hides_a_straggler(client: Client) -> None:
    spin = "import time\nend = time.time() + 120\nwhile time.time() < end: pass"
    with training(client, config(2, width=512, depth=3)) as [experiment]:
        settled(experiment, lambda v: v.kind != "unknown")
        load = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(2)]
        try:
            # What is shown stays while it holds, so its time says nothing.
            wait_for_steps(experiment, experiment.view.trials[0].steps_completed + 200)
            found = settled(experiment, lambda v: v.kind != "unknown")
            assert "straggler" not in {cause.kind for cause in found.causes}, found
            experiment.kill()
            # It computes more than the others, so it waits for a core more, too.
            more = config(2, slow_rank=1, slow_compute_s=0.03, width=256, depth=2)
            with training(client, more) as [straggler]:
                found = settled(straggler, is_kind("straggler"))
                assert (found.causes[0].rank, found.causes[0].because) == (1, "compute")
        finally:
            for process in load:
                process.kill()
                process.wait()
