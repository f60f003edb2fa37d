"""A trial whose checkpoints go to a bucket, from its submission to its deletion."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State
from det_jupyter.errors import ConfigError
from det_jupyter.storage.buckets.process import transfers
from det_jupyter.storage.buckets.storage import copies_dir
from det_jupyter.storage.directory import remove_tree
from tests.broken_network import broken_network
from tests.bucket_keys import SECRETS
from tests.bucket_server import BUCKET, BucketServer, error, serving
from tests.homes import processes_of
from tests.processes import DetHome
from tests.trials import Gate, small_config, submit
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

STEPS = 32


@pytest.fixture
def bucket() -> Iterator[BucketServer]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with serving() as server:
        yield server
    transfers.close()


def config(server: BucketServer, **storage: Any) -> dict[str, Any]:
    of_bucket = {"type": "s3", "bucket": BUCKET, "prefix": "team", "endpoint_url": server.url}
    return small_config(
        searcher={"name": "single", "metric": "error", "max_length": {"batches": STEPS}},
        resources={"slots_per_trial": 1},
        checkpoint_storage=of_bucket | storage,
        checkpoint_policy="none",
        min_checkpoint_period={"batches": 4},
    )


def num_stored(experiment: Experiment) -> int:
    return sum(each.view.state == "COMPLETED" for each in experiment.checkpoints())


def test_nothing_is_lost_while_a_bucket_is_away_and_its_agent_is_killed(
    client: Client, home: DetHome, bucket: BucketServer, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 8)
    experiment = submit(client, config(bucket), gate.source())
    wait_until(lambda: num_stored(experiment) > 0, "a checkpoint is in the bucket")
    cited = {"AWSAccessKeyId": SECRETS[0], "SignatureProvided": " ".join(SECRETS)}
    bucket.fail = lambda method, path: error("InternalError", "500 Sorry", **cited)
    gate.open()

    def waits() -> bool:
        waiting = experiment.view.trials[0].waiting_for or ""
        return waiting.startswith("waits, as s3+http") and "answers InternalError" in waiting

    wait_until(waits, "training waits for the bucket")
    trained = experiment.view.trials[0].steps_completed
    assert trained < STEPS
    home.agent().send_signal(signal.SIGKILL)
    bucket.heal()
    assert experiment.wait() == State.COMPLETED
    (trial,) = experiment.view.trials
    assert (trial.steps_completed, trial.restarts) == (STEPS, 0)
    saved = [each.steps_completed for each in experiment.checkpoints()]
    assert saved == list(range(4, STEPS + 1, 4))  # none is missing, and none is there twice
    wait_until(lambda: steps_in(bucket) == [STEPS], "the others are deleted by the policy")

    remove_tree(copies_dir(home.path / "data"))  # as on another computer
    best = experiment.best_checkpoint()
    assert best.view.path.startswith(f"s3+{bucket.url}/{BUCKET}/team/")
    assert type(best.load()).__name__ == "SmallTrial"
    assert_hidden(home, client, experiment, bucket)
    experiment.delete()
    wait_until(lambda: not bucket.objects(), "the checkpoints are deleted")


def steps_in(bucket: BucketServer) -> list[int]:
    objects = bucket.objects().items()
    found = [content for name, content in objects if name.endswith("/metadata.json")]
    return [json.loads(content)["steps_completed"] for content in found]


def assert_hidden(
    home: DetHome, client: Client, experiment: Experiment, bucket: BucketServer
) -> None:
    """Fail if keys or signatures are in files of ours, arguments, answers, pages or the bucket."""
    number = experiment.id
    document = client.document("experiment", experiment_id=number)
    answers = (
        "/experiments",
        "/cluster",
        f"/experiments/{number}",
        f"/experiments/{number}/config",
    )
    texts = {
        **{str(path): path.read_bytes() for path in home.path.rglob("*") if path.is_file()},
        **{str(p.pid): " ".join(p.cmdline()).encode() for p in processes_of(home.path)},
        **{path: json.dumps(client.session.get(path)).encode() for path in answers},
        **bucket.objects(),
        "page": json.dumps(document.fetch()).encode(),
    }
    document.close()
    hidden = [*SECRETS, "X-Amz-Signature", "AWS4-HMAC-SHA256"]
    assert [(name, h) for name, text in texts.items() for h in hidden if h.encode() in text] == []


def test_pause_is_continued_on_a_computer_without_a_copy_by_a_network_that_breaks(
    client: Client, home: DetHome, bucket: BucketServer, tmp_path: Path
) -> None:
    gate = Gate(tmp_path, 8)
    with broken_network(bucket.url, seed=5) as network:
        network.breaks = False
        experiment = submit(client, config(bucket, endpoint_url=network.url), gate.source())
        network.breaks, network.most_bytes = True, [120_000]
        gate.wait(experiment)
        experiment.pause()
        wait_until(lambda: experiment.state is State.PAUSED, "it is paused")
        remove_tree(copies_dir(home.path / "data"))
        gate.open()
        experiment.activate()
        assert experiment.wait() == State.COMPLETED
        (trial,) = experiment.view.trials
        assert (trial.steps_completed, trial.restarts) == (STEPS, 0)
        saved = [each.steps_completed for each in experiment.checkpoints()]
        assert saved == sorted(set(saved))
        assert set(saved) >= set(range(4, STEPS + 1, 4))
        assert network.num_broken > 0


def test_bucket_that_is_not_there_is_refused_at_once(client: Client, bucket: BucketServer) -> None:
    with pytest.raises(ConfigError, match=r"s3\+http.*/modles/team: there is no such bucket"):
        submit(client, config(bucket, bucket="modles"))
