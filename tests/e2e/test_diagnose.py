"""experiment.diagnose(): the recipes run by themselves, and say what limits a trial."""

from __future__ import annotations

import pytest

from det_jupyter.client import Client
from det_jupyter.errors import ConfigError, Conflict, NotFound, RankFailed
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, small_config, submit

pytestmark = pytest.mark.e2e

# Each record takes a while to load; a loader worker does so beside the training.
SLOW_DATA = TRIAL_SOURCE.replace(
    "dataset = torch.utils.data.TensorDataset(inputs, targets)",
    """
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        time.sleep(0.002)
        return inputs[index], targets[index]


dataset = Slow()
""",
).replace("class SmallTrial", "class SlowData")

# 32 MB of gradients for a batch of 4 records.
LARGE = (
    TRIAL_SOURCE.replace("class SmallTrial", "class Large")
    .replace("nn.Linear(8, 16)", "nn.Linear(8, 2000), nn.ReLU(), nn.Linear(2000, 4000)")
    .replace("nn.Linear(16, 1)", "nn.Linear(4000, 1)")
)


def test_slow_data_are_found_by_recorded_batches_and_workers_help(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    hparams = {"global_batch_size": 8, "pause_s": 0.003}
    config = small_config(
        entrypoint="SlowData", hyperparameters=hparams, resources={"slots_per_trial": 1}
    )
    experiment = submit(client, config, SLOW_DATA)
    experiment.kill()
    before = {view.id for view in client.experiments()}
    found = experiment.diagnose(seconds=1, rounds=2, timeout=200)
    print(found, found._repr_html_())
    by_name = {row["recipe"]: row for row in found.table()}
    assert by_name["replay"]["sign"] == "gain", found
    assert by_name["workers"]["sign"] == "gain", found
    assert found.verdict.kind == "input"
    assert {view.id for view in client.experiments()} == before


def test_a_large_model_of_two_ranks_is_found_by_exchanging_less(client: Client) -> None:
    config = small_config(entrypoint="Large", hyperparameters={"global_batch_size": 4})
    config["hyperparameters"]["pause_s"] = 0.0
    experiment = submit(client, config, LARGE)
    experiment.kill()
    found = experiment.diagnose(seconds=1, rounds=2, timeout=300)
    print(found)
    by_name = {row["recipe"]: row for row in found.table()}
    assert by_name["aggregation_1000"]["sign"] == "gain", found
    assert 0 < by_name["as_it_is"]["efficiency"] < 1
    assert found.verdict.kind == "communication", found
    assert "workers" not in by_name


def test_what_cannot_be_diagnosed_is_refused(client: Client) -> None:
    experiment = submit(client, small_config())
    experiment.wait(60)
    with pytest.raises(ConfigError) as refused:
        experiment.diagnose(recipes=["replai"], seconds=0, rounds=1)
    assert [problem.split(", expected")[0] for problem in refused.value.problems] == [
        "diagnose: seconds: got 0",
        "diagnose: rounds: got 1",
        "diagnose: recipes: got 'replai'",
    ]
    experiment.delete()
    wait_until(lambda: experiment.id not in {v.id for v in client.experiments()}, "it is gone")
    with pytest.raises(NotFound):
        experiment.diagnose()
    wide = submit(client, small_config(resources={"slots_per_trial": 2}))
    wide.kill()
