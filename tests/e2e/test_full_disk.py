"""A disk that is full while experiments train: nothing is lost, and all goes on by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import AllocationState
from det_jupyter.contract.values.reader import SHELL
from tests.processes import DetHome, det_home, wait_until
from tests.trials import TRIAL_SOURCE, small_config, submit

pytestmark = pytest.mark.e2e

# The chief fills the disk itself, so that it is full at a known batch.
FILLING = TRIAL_SOURCE.replace(
    "        time.sleep(self.pause_s)\n",
    "        time.sleep(self.pause_s)\n        print('batch', batch_idx)\n"
    "        if batch_idx == 25 and self.context.distributed.rank == 0:\n"
    "            fill(self.context.get_hparam('disk'))\n",
).replace(
    "class SmallTrial",
    """
def fill(disk):
    import os
    if not os.path.exists(f"{disk}/trigger"):
        return
    with open(f"{disk}/much", "ab") as file:
        size = 1 << 24
        while size >= 1 << 12:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, size)
            except OSError:
                size //= 2


class SmallTrial""",
)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a disk of 64 MiB."""
    folder = tmp_path_factory.mktemp("disk")
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def home(disk: Path) -> Iterator[DetHome]:
    """Return a private det_jupyter on the small disk."""
    with det_home(disk / "home", {"DET_JUPYTER_CPU_SLOTS": "4"}) as running:
        yield running


def losses(experiment: Experiment) -> list[Any]:
    (found,) = [c for c in experiment.curves() if (c.group, c.name) == ("batches", "loss")]
    assert found.steps == list(range(1, 61))
    return found.values


def printed(experiment: Experiment) -> list[str]:
    return [line.text for line in experiment.trial.logs(rank=0) if "batch" in line.text]


def waits(experiment: Experiment) -> bool:
    (trial,) = experiment.view.trials
    return "waits for room on " in (trial.waiting_for or "")


def test_training_waits_for_room_and_requests_are_carried_out(home: DetHome, disk: Path) -> None:
    client = home.client()
    hparams = {"global_batch_size": 16, "pause_s": 0.01, "disk": str(disk)}
    config = small_config(hyperparameters=hparams, min_checkpoint_period={"batches": 10})
    whole = submit(client, config, FILLING)
    assert whole.wait(60) == "COMPLETED"
    reserve = Path(client.session.info.data_dir) / "reserve"
    wait_until(reserve.exists, "there is a reserve")

    (disk / "trigger").touch()
    first = submit(client, config, FILLING)
    wait_until(lambda: waits(first), "the ranks wait for room")
    wait_until(lambda: not reserve.exists(), "the reserve is given back")
    second = submit(client, config, FILLING)
    wait_until(lambda: waits(second), "the second waits, too")
    reason = first.trial.why()
    assert reason.cause == "room"
    assert str(disk) in reason.sentence
    (status,) = wait_until(lambda: client.cluster().disks, "the disk is watched")
    assert status.state == "full"
    assert "; what trains here waits for room" in status.sentence(SHELL)
    assert {"checkpoints", "database", "runs"} <= {use.kind for use in client.disk_usage().uses}

    second.pause()
    wait_until(
        lambda: (
            second.view.trials[0].allocation is None
            or second.view.trials[0].allocation.state is AllocationState.ENDED
        ),
        "the second has given its slots back",
    )
    doomed = submit(client, config, FILLING)
    doomed.kill()
    assert doomed.wait(60) == "CANCELED"
    doomed.delete()
    wait_until(lambda: doomed.id not in [e.id for e in client.experiments()], "it is deleted")
    assert waits(first)

    (disk / "trigger").unlink()
    (disk / "much").unlink()
    assert first.wait(60) == "COMPLETED"
    second.activate()
    assert second.wait(60) == "COMPLETED"
    for one in (first, second):
        assert losses(one) == losses(whole)
        assert one.view.trials[0].restarts == 0
    assert printed(first) == printed(whole)
    assert [t.allocation.run for t in first.view.trials if t.allocation is not None] in ([], [1])
    wait_until(reserve.exists, "the reserve is made again")
    client.session.close()
