"""Searches over real trials: who trains how far, what survives, and what it is bit for bit."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State, TrialView
from det_jupyter.errors import ConfigError
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE, Gate, small_config, submit

pytestmark = pytest.mark.e2e

SOURCE = TRIAL_SOURCE.replace("lr=0.01", 'lr=context.get_hparam("lr")')
HPARAMS = {
    "global_batch_size": 16,
    "pause_s": 0.0,
    "lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1.5},
}
ASHA = {
    "name": "async_halving",
    "metric": "error",
    "max_length": {"batches": 27},
    "num_rungs": 3,
    "divisor": 3,
    "max_trials": 9,
    "max_concurrent_trials": 4,
}
# A search that is as large as it has to be for one trial to rest and to go on.
HALVING = ASHA | {"num_rungs": 2, "max_trials": 4}
RANDOM = {"name": "random", "metric": "error", "max_length": {"batches": 27}, "max_trials": 9}
SHORT = {"max_length": {"batches": 6}, "max_trials": 5}


def search(searcher: dict[str, Any]) -> dict[str, Any]:
    return small_config(
        name=searcher["name"],
        hyperparameters=HPARAMS,
        searcher=searcher,
        min_validation_period={"batches": 3},
        checkpoint_policy="none",  # only those with which trials rest, leave and end
        resources={"slots_per_trial": 1},
    )


def run(client: Client, config: dict[str, Any]) -> Experiment:
    experiment = submit(client, config, SOURCE)
    assert experiment.wait() is State.COMPLETED, experiment.view.message
    return experiment


def validations(experiment: Experiment) -> dict[int, dict[int, float | None]]:
    """Return the searcher's metric by trial index and step."""
    index = {trial.id: trial.index for trial in experiment.view.trials}
    return {
        index[curve.trial_id]: dict(zip(curve.steps, curve.values, strict=True))
        for curve in experiment.curves()
        if (curve.group, curve.name) == ("validation", "error")
    }


@pytest.fixture(scope="module")
def straight(home: DetHome) -> Iterator[Experiment]:
    """Return nine trials that were trained to their end, each on one slot."""
    client = home.client()
    yield run(client, search(RANDOM))
    client.session.close()


def assert_went_on(halved: Experiment, straight: Experiment) -> None:
    """The same hyperparameters and seeds: a trial that went over rungs is the one that did not."""
    trials = halved.view.trials
    by_index = {trial.index: trial for trial in straight.view.trials}
    lrs = [trial.hparams["lr"] for trial in trials]
    assert lrs == [by_index[trial.index].hparams["lr"] for trial in trials]
    assert_same_metrics(halved, straight)
    assert [trial.was_stopped for trial in trials] == [t.steps_completed < 27 for t in trials]
    assert not any(trial.restarts for trial in trials)


def assert_same_metrics(experiment: Experiment, straight: Experiment) -> None:
    everything = validations(straight)
    for index, metrics in validations(experiment).items():
        assert metrics == {step: everything[index][step] for step in metrics}


def test_asha_trains_the_best_on_as_if_they_had_never_stopped_though_its_master_is_killed(
    home: DetHome, client: Client, straight: Experiment, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path, batch) for batch in (6, 18)]  # of trials that have passed rungs
    halved = submit(client, search(ASHA), gates[1].source(gates[0].source(SOURCE)))
    for gate in gates:
        gate.wait(halved)
        home.master().send_signal(signal.SIGKILL)
        gate.open()
    assert halved.wait() is State.COMPLETED
    assert_went_on(halved, straight)
    trials = halved.view.trials
    assert {trial.steps_completed for trial in trials} == {3, 9, 27}
    assert sum(trial.steps_completed == 3 for trial in trials) >= 4
    assert all(len(t.rung_metrics) == {3: 1, 9: 2, 27: 3}[t.steps_completed] for t in trials)


def resting(experiment: Experiment) -> list[TrialView]:
    return [trial for trial in experiment.view.trials if trial.is_resting and not trial.allocation]


def test_a_resting_trial_says_what_it_waits_for_and_its_search_goes_on_after_a_pause(
    client: Client, tmp_path: Path
) -> None:
    searcher, gate = HALVING | {"max_concurrent_trials": 2}, Gate(tmp_path, 12)
    experiment = submit(client, search(searcher), gate.source(SOURCE))
    trial = wait_until(lambda: resting(experiment), "a trial rests, and holds no slot")[0]
    assert trial.waiting_for == (
        "rests at 9 batches and holds no slots; goes on if it is among the best 1 of 3 there"
    )
    assert trial.state is State.ACTIVE
    experiment.pause()
    wait_until(lambda: not any(t.allocation for t in experiment.view.trials), "slots are free")
    gate.open()
    experiment.activate()
    assert experiment.wait() is State.COMPLETED
    assert max(t.steps_completed for t in experiment.view.trials) == 27


UNRELIABLE = SOURCE.replace(
    "    def build_training_data_loader(self):",
    """        if context.get_hparam("lr") > 1e-2:
            raise ValueError("too fast")
        if context.get_hparam("lr") < 1e-4:
            raise det_jupyter.InvalidHP("too slow")

    def build_training_data_loader(self):""",
    1,
).replace("import time\n", "import time\nimport det_jupyter\n", 1)


def test_failing_and_invalid_trials_do_not_stop_a_search(client: Client) -> None:
    experiment = submit(client, search(RANDOM | SHORT) | {"max_restarts": 1}, UNRELIABLE)
    assert experiment.wait() is State.COMPLETED
    trials = experiment.view.trials
    lrs = {state: [t.hparams["lr"] for t in trials if t.state is state] for state in State}
    assert min(lrs[State.ERROR]) > 1e-2
    invalid = [t for t in trials if t.hparams["lr"] < 1e-4]
    assert invalid, "the seed draws some that are too slow"
    assert len(trials) == 5 + len(invalid)  # each of these was replaced


def test_nan_counts_as_the_worst_and_stops_nothing(client: Client) -> None:
    source = SOURCE.replace(
        'return {"error": nn.functional.mse_loss(self.model(x), y)}',
        'bad = self.context.get_hparam("lr") > 1e-3\n'
        '        return {"error": float("nan") if bad else nn.functional.mse_loss('
        "self.model(x), y)}",
    )
    experiment = submit(client, search(ASHA | {"num_rungs": 2, "max_trials": 6}), source)
    assert experiment.wait() is State.COMPLETED
    trials = experiment.view.trials
    farthest = [t for t in trials if t.steps_completed == 27]
    assert farthest
    assert all(t.hparams["lr"] <= 1e-3 for t in farthest)


def test_the_winner_is_trained_on_as_if_it_had_not_stopped(
    client: Client, straight: Experiment
) -> None:
    short = run(client, search(RANDOM | {"max_length": {"batches": 12}, "max_trials": 1}))
    continued = short.trials[0].train_to({"batches": 27})
    assert continued.wait() is State.COMPLETED
    assert_same_metrics(continued, straight)
    later = validations(continued)[0]
    assert max(later) == 27
    assert min(later) >= 12


def test_a_running_search_is_given_more_trials_and_one_is_killed(
    client: Client, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 5)
    experiment = submit(client, search(RANDOM | {"max_trials": 3}), gate.source(SOURCE))
    gate.wait(experiment)
    experiment.change_search(max_trials=5)
    experiment.trials[0].kill()
    gate.open()
    assert experiment.wait() is State.COMPLETED
    trials = experiment.view.trials
    assert len(trials) == 5
    assert trials[0].state is State.CANCELED
    assert experiment.config["searcher"]["max_trials"] == 5
    with pytest.raises(ConfigError, match="max_trials"):
        submit(client, search(RANDOM | {"max_trials": 0}), SOURCE)


def test_optuna_chooses_hyperparameters(client: Client, tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    searcher = RANDOM | SHORT | {"name": "optuna", "max_concurrent_trials": 2}
    experiment = run(client, search(searcher | {"pruner": "none"}))
    lrs = [trial.hparams["lr"] for trial in experiment.view.trials]
    assert len(set(lrs)) == 5
    assert all(1e-5 <= lr <= 10**-1.5 for lr in lrs)
    with pytest.raises(ConfigError, match=r"searcher\.sampler: got 'TPESampleer'.*TPESampler"):
        submit(client, search(searcher | {"sampler": "TPESampleer"}), SOURCE)
