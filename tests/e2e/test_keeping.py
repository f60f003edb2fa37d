"""Life after the end, with real ranks: continued, thinned out, and deleted without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.client import Client, Comparison, Experiment
from det_jupyter.client.handles.compare import fetch_experiments
from det_jupyter.errors import DetError, NotFound, RankFailed
from tests.ignored_keys import IGNORED, with_keys
from tests.processes import DetHome, wait_until
from tests.trials import TRIAL_SOURCE, Gate, slow, small_config, submit

pytestmark = pytest.mark.e2e

SHORT = {"name": "single", "metric": "error", "max_length": {"batches": 12}}
KEEP_ALL = {"checkpoint_storage": {"save_trial_latest": 9}}
PRINTING = TRIAL_SOURCE.replace(
    "        time.sleep(self.pause_s)\n",
    '        print("RuntimeError: CUDA out of memory (not really)")\n'
    '        raise RuntimeError("this batch failed")\n',
)


def weights(experiment: Experiment, steps: int) -> dict[str, torch.Tensor]:
    last = max(experiment.checkpoints(), key=lambda c: c.steps_completed)
    assert last.steps_completed == steps
    found: dict[str, torch.Tensor] = last.load().model.state_dict()
    return found


def folders(path: Path) -> list[str]:
    """Return what is in a folder, but for the outputs of batch inference (`.outputs-...`)."""
    names = (entry.name for entry in path.iterdir()) if path.is_dir() else ()
    return sorted(name for name in names if not name.startswith(".outputs-"))


def checkpoints_of_all(client: Client, storage: Path) -> list[str]:
    """Return the folders of checkpoints, once nothing is being removed any more."""

    def kept() -> list[str]:
        views = [view for one in client.experiments() for view in client.checkpoints(one.id)]
        here = [view for view in views if Path(view.path).parent == storage]
        return sorted(view.uuid for view in here if view.state == "COMPLETED")

    wait_until(lambda: folders(storage) == kept(), "earlier experiments have been cleaned up")
    return kept()


def losses(experiment: Experiment) -> list[Any]:
    (found,) = [c for c in experiment.curves() if (c.group, c.name) == ("batches", "loss")]
    assert found.steps == list(range(1, len(found.steps) + 1))
    return found.values


def test_training_that_was_continued_ends_as_if_it_had_never_stopped(client: Client) -> None:
    config = small_config(searcher=SHORT, min_validation_period={"batches": 4})
    whole = submit(client, config)
    assert whole.wait() == "COMPLETED"
    short = submit(client, config | {"searcher": SHORT | {"max_length": {"batches": 6}}})
    assert short.wait() == "COMPLETED"
    short.continue_({"searcher": {"max_length": {"batches": 12}}})
    assert short.wait() == "COMPLETED"
    assert losses(short) == losses(whole)
    expected, found = weights(whole, 12), weights(short, 12)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


CONFIGURED = TRIAL_SOURCE.replace("lr=0.01", 'lr=context.get_hparam("lr")').replace(
    '        return {"loss": loss}\n',
    '        return {"loss": loss, "lr": self.optimizer.param_groups[0]["lr"]}\n',
)


def test_a_training_that_is_continued_with_another_rate_trains_at_it(client: Client) -> None:
    hparams = small_config()["hyperparameters"] | {"lr": 0.01}
    searcher = SHORT | {"max_length": {"batches": 6}}
    first = submit(client, small_config(hyperparameters=hparams, searcher=searcher), CONFIGURED)
    assert first.wait() == "COMPLETED"
    changes = {"hyperparameters.lr": 0.002, "searcher.max_length.batches": 8}
    first.continue_(changes)
    assert first.wait() == "COMPLETED"
    (rates,) = [c for c in first.curves() if (c.group, c.name) == ("batches", "lr")]
    assert rates.values == [0.01] * 6 + [0.002] * 2
    lines = [line.text.strip() for line in first.best_trial().logs()]
    assert (
        "training goes on at batch 6 with other hyperparameters: lr 0.01 → 0.002. "
        "SGD: lr 0.01 → 0.002"
    ) in lines
    assert repr(first.best_trial().changes()) == "[lr 0.01 → 0.002, from batch 6]"
    first.continue_({"searcher.max_length.batches": 10})  # nothing is said or changed
    assert first.wait() == "COMPLETED"
    (rates,) = [c for c in first.curves() if (c.group, c.name) == ("batches", "lr")]
    assert rates.values == [0.01] * 6 + [0.002] * 4
    assert len(first.best_trial().changes()) == 1
    other = submit(client, small_config(hyperparameters=hparams, searcher=searcher), CONFIGURED)
    assert other.wait() == "COMPLETED"
    said = "was changed: lr 0.01 → 0.002 after batch 6."
    assert said in repr(Comparison(fetch_experiments(client, [first.id, other.id])))


def test_a_canceled_experiment_goes_on_under_its_number(client: Client, tmp_path: Path) -> None:
    gate = Gate(tmp_path, 2)
    experiment = submit(client, small_config(searcher=SHORT), gate.source())
    gate.wait(experiment)
    experiment.cancel()
    assert experiment.wait() == "CANCELED"
    (trial,) = experiment.view.trials
    gate.open()
    experiment.continue_()
    assert experiment.wait() == "COMPLETED"
    assert [t.id for t in experiment.view.trials] == [trial.id]
    assert len(losses(experiment)) == 12


def test_what_the_policy_does_not_keep_is_removed_from_the_disk(
    home: DetHome, client: Client
) -> None:
    storage = home.path / "data" / "checkpoints"
    before = checkpoints_of_all(client, storage)
    experiment = submit(
        client, small_config(searcher=SHORT, min_checkpoint_period={"batches": 2}, **KEEP_ALL)
    )
    assert experiment.wait() == "COMPLETED"
    own = sorted(set(folders(storage)) - set(before))
    assert len(own) == 6
    (latest,) = [c.uuid for c in experiment.checkpoints() if c.steps_completed == 12]
    would_go = experiment.set_retention(
        save_experiment_best=0, save_trial_best=0, save_trial_latest=1, dry_run=True
    )
    assert sorted(checkpoint.uuid for checkpoint in would_go) == sorted(set(own) - {latest})
    assert folders(storage) == sorted([*before, *own])
    experiment.set_retention(save_experiment_best=0, save_trial_best=0, save_trial_latest=1)
    wait_until(lambda: folders(storage) == sorted([*before, latest]), "the others are removed")


def test_a_deleted_experiment_leaves_nothing_on_the_disk(home: DetHome, client: Client) -> None:
    data = home.path / "data"
    before = checkpoints_of_all(client, data / "checkpoints"), folders(data / "runs")
    # With all that is accepted and ignored: it must be thinned out and deleted all the same.
    config = small_config(searcher=SHORT, min_checkpoint_period={"batches": 2})
    experiment = submit(client, with_keys(config, IGNORED))
    assert experiment.wait() == "COMPLETED"
    assert len(experiment.checkpoints()) == 6
    kept = checkpoints_of_all(client, data / "checkpoints")  # once it has been thinned out
    assert len(kept) - len(before[0]) < 6
    assert (folders(data / "checkpoints"), folders(data / "runs")) != before
    experiment.delete()
    wait_until(lambda: _is_gone(client, experiment.id), "the experiment is deleted")
    assert (folders(data / "checkpoints"), folders(data / "runs")) == before


def _is_gone(client: Client, experiment_id: int) -> bool:
    try:
        client.experiment(experiment_id)
    except NotFound:
        return True
    return False


def test_a_rank_that_prints_what_a_policy_looks_for_is_not_tried_again(client: Client) -> None:
    policy = {"name": "oom", "pattern": "CUDA out of memory", "action": "cancel_retries"}
    experiment = submit(client, small_config(log_policies=[policy], max_restarts=5), PRINTING)
    with pytest.raises(RankFailed, match="this batch failed"):
        experiment.wait()
    view = client.experiment(experiment.id)
    assert view.trials[0].restarts == 0
    assert "log policy 'oom' (cancel_retries) fits what rank" in view.message
    assert "RuntimeError: this batch failed" in view.message


def test_a_running_experiment_is_neither_archived_nor_deleted(client: Client) -> None:
    experiment = submit(client, slow(100))
    for verb in (experiment.archive, experiment.delete, experiment.continue_):
        with pytest.raises(DetError):
            verb()
    experiment.kill()
    assert experiment.wait() == "CANCELED"
