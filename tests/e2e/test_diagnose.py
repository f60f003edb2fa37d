"""experiment.diagnose(): the recipes run by themselves, and say what limits a trial."""

from __future__ import annotations

import _thread
import threading
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.client.diagnosing.diagnosis_result import Diagnosis
from det_jupyter.contract.messages import ExperimentQuery, ExperimentView, State
from det_jupyter.errors import ConfigError, NotFound, RankFailed, WaitTimeout
from tests.problems import said
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, Gate, capture_trial, create, slow, small_config, submit

pytestmark = pytest.mark.e2e

# Each record takes a while to load, far longer than its training, even on a busy computer; loader
# workers do so beside it, and beside each other.
SLOW_DATA = TRIAL_SOURCE.replace(
    "dataset = torch.utils.data.TensorDataset(inputs, targets)",
    """
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        time.sleep(0.05)
        return inputs[index], targets[index]


dataset = Slow()
""",
)

# To exchange gradients takes a while, far longer than to compute them.
SLOW_EXCHANGE = TRIAL_SOURCE.replace(
    "        self.optimizer =",
    """        next(self.model.parameters()).register_hook(self.exchange_slowly)
        self.optimizer =""",
).replace(
    "    def build_training",
    """    def exchange_slowly(self, gradient):
        if getattr(self.model, "require_backward_grad_sync", False):
            time.sleep(0.05)

    def build_training""",
)


def ended(client: Client, source: str = TRIAL_SOURCE, *, slots: int, batch: int = 8) -> Experiment:
    """Return an experiment that was killed as soon as it was there: only its code is needed."""
    hparams = {"global_batch_size": batch, "pause_s": 0.0}
    resources = {"slots_per_trial": slots}
    config = small_config(hyperparameters=hparams, resources=resources)
    experiment = submit(client, config, source)
    experiment.kill()
    wait_until(lambda: experiment.state.is_terminal, "it has ended")
    return experiment


def diagnosed(experiment: Experiment, recipes: list[str], **options: Any) -> Diagnosis:
    """Diagnose with two rounds, again if a busy computer makes the first recipe unclear."""
    for _ in range(4):
        found = experiment.diagnose(recipes=recipes, rounds=2, **options)
        if any(row["recipe"] == recipes[0] and row["sign"] != "unclear" for row in found.table()):
            break
    return found


def runs_of(experiment: Experiment, client: Client) -> list[ExperimentView]:
    """Return what a diagnosis has submitted."""
    rows = client.experiments()
    return [client.experiment(row.id) for row in rows if row.parent_id == experiment.id]


def test_slow_data_are_found_by_recorded_batches_and_workers_help(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = ended(client, SLOW_DATA, slots=1, batch=1)
    before = {view.id for view in client.experiments()}
    names = ["replay", "workers", "aggregation_1000"]
    found = diagnosed(experiment, names, seconds=0.4)
    by_name = {row["recipe"]: row for row in found.table()}
    assert by_name["replay"]["sign"] == "gain", found
    assert 1.3 < by_name["workers"]["ratio"] < by_name["replay"]["ratio"], found
    assert found.verdict.kind == "input"
    [_, by_timings] = found.verdict.causes[0].evidence
    assert by_timings.startswith("by its own timings, rank 0 waits for that ")
    assert int(by_timings.split()[-5]) > 50, by_timings
    gained = by_name["workers"]["sign"] == "gain"  # or a busy CPU makes it unclear
    assert ("# in build_training_data_loader: " in found.yaml) is gained, found
    assert "Left out, as the trial has 1 slot" in repr(found)
    assert {view.id for view in client.experiments()} == before
    assert "diagnose: run 1 of 6, as it is: " in capsys.readouterr().out


def test_a_slow_exchange_is_found_by_exchanging_less(client: Client) -> None:
    experiment = ended(client, SLOW_EXCHANGE, slots=2, batch=4)
    names = ["aggregation_1000", "one_slot"]
    found = diagnosed(experiment, names, seconds=0.3, keep=True)
    by_name = {row["recipe"]: row for row in found.table()}
    assert list(by_name) == ["as_it_is", "aggregation_1000", "one_slot"]
    assert by_name["aggregation_1000"]["sign"] == "gain", found
    assert by_name["aggregation_1000"]["ratio"] > 2, found
    assert 0 < by_name["as_it_is"]["efficiency"] < 1, found
    assert found.verdict.kind == "communication", found
    runs = sorted(runs_of(experiment, client), key=lambda view: view.id)[-6:]
    num_slots = [view.config["resources"]["slots_per_trial"] for view in runs]
    assert num_slots == [2, 2, 1, 1, 2, 2]
    assert {tuple(view.config["labels"]) for view in runs} == {("diagnose",)}
    assert {view.state for view in runs} <= {State.COMPLETED, State.ERROR}, "its loss may diverge"
    assert not any(trial.failure for view in runs for trial in view.trials)
    rows = {row.id: row for row in client.find(ExperimentQuery()).rows}
    assert all(rows[view.id].is_quiet for view in runs), "JupyterLab does not notify of their ends"
    assert not rows[experiment.id].is_quiet
    assert not client.checkpoints(runs[0].id)
    assert runs[2].trials[0].hparams["global_batch_size"] == 2


def test_what_cannot_be_diagnosed_is_refused(client: Client) -> None:
    experiment = ended(client, slots=1)
    with pytest.raises(ConfigError) as refused:
        experiment.diagnose(recipes=["replai"], seconds=0, rounds=1)
    assert [problem.split(", expected")[0] for problem in said(refused.value.problems)] == [
        "diagnose: seconds: got 0",
        "diagnose: rounds: got 1",
        "diagnose: recipes: got 'replai'",
    ]
    with pytest.raises(
        ConfigError, match=f"trial: got 1, expected .* of experiment {experiment.id}"
    ):
        experiment.diagnose(1)  # type: ignore[arg-type]
    experiment.delete()
    wait_until(lambda: experiment.id not in {v.id for v in client.experiments()}, "it is gone")
    with pytest.raises(NotFound, match=f"experiment {experiment.id}"):
        experiment.diagnose()


def test_a_trial_that_fails_as_it_is_and_a_wait_without_end_leave_nothing(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = ended(client, TRIAL_SOURCE.replace("x, y = batch\n", "x, y, z = batch\n"), slots=1)
    before = {view.id for view in client.experiments()}
    with pytest.raises(RankFailed, match=r"fails as it is: .*ValueError"):
        failing.diagnose(seconds=0.5)
    assert {view.id for view in client.experiments()} == before
    long = {"name": "single", "metric": "error", "max_length": {"batches": 3000}}
    busy = submit(client, slow(0.5, searcher=long, resources={"slots_per_trial": 4}))
    with pytest.raises(WaitTimeout, match="as it is was not over in time"):
        failing.diagnose(timeout=2)
    printed = capsys.readouterr().out
    assert f"experiment {busy.id}" in printed.partition(" waits: ")[2], printed
    threading.Timer(1.5, _thread.interrupt_main).start()  # as Ctrl-C does
    with pytest.raises(KeyboardInterrupt):
        failing.diagnose()
    busy.kill()
    assert {view.id for view in client.experiments()} == before | {busy.id}


@pytest.mark.usefixtures("preempting")
def test_more_urgent_work_goes_first_and_the_run_is_repeated(
    client: Client, tmp_path: Path
) -> None:
    """A run leaves at once, without saving, and starts anew."""
    gate = Gate(tmp_path, 2)
    source = gate.source().replace("self.pause_s)", "0.01)")
    experiment = ended(client, source, slots=2, batch=16)
    capsule = capture_trial(client, "SmallTrial", TRIAL_SOURCE)
    urgent: list[Experiment] = []

    def runs() -> list[ExperimentView]:
        return runs_of(experiment, client)

    def disturb() -> None:
        wait_until(lambda: any(t.steps_completed for run in runs() for t in run.trials), "it runs")
        short = {"name": "single", "metric": "error", "max_length": {"batches": 4}}
        config = small_config(searcher=short, resources={"slots_per_trial": 4, "priority": 1})
        urgent.append(create(client, config, capsule))
        wait_until(lambda: runs()[0].state.is_terminal, "it has left")
        gate.open()

    thread = threading.Thread(target=disturb)
    thread.start()
    found = experiment.diagnose(recipes=["replay"], seconds=0.3, rounds=2, keep=True)
    thread.join()
    assert urgent[0].wait() is State.COMPLETED
    first, *repeated = runs()
    assert first.id < urgent[0].id < repeated[0].id
    assert not client.checkpoints(first.id)
    sent_away, *measured = [
        {curve.name: curve.values[-1] or 0.0 for curve in client.curves(run.id)} for run in runs()
    ]
    assert "seconds" not in sent_away
    assert [each["seconds"] >= 0.3 for each in measured] == [True] * 4, "of full runs only"
    # Not the verdict: on a busy computer runs may differ too much for one.
    rates = [each["records_per_s"] for each in measured]
    assert [(row["recipe"], row["records_per_s"]) for row in found.table()] == [
        ("as_it_is", pytest.approx(median([rates[0], rates[3]]))),
        ("replay", pytest.approx(median(rates[1:3]))),
    ]
