"""A disk that is full while experiments train: nothing is lost, and all goes on by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.client import Experiment
from det_jupyter.contract.messages import AllocationState
from det_jupyter.contract.values.reader import SHELL
from tests.e2e.test_scripts import start
from tests.processes import DetHome, det_home, wait_until
from tests.trials import LONG, TRIAL_SOURCE, slow, small_config, submit, wait_for_steps

pytestmark = pytest.mark.e2e

# The chief fills the disk itself, so that it is full at a known batch.
FILLING = TRIAL_SOURCE.replace(
    "        time.sleep(self.pause_s)\n",
    "        time.sleep(self.pause_s)\n        print('batch', batch_idx)\n"
    "        if batch_idx == 15 and self.context.distributed.rank == 0:\n"
    "            fill(self.context.get_hparam('disk'))\n",
).replace(
    "class SmallTrial",
    """
def fill(disk):
    import os
    if not os.path.exists(f"{disk}/trigger"):
        return
    # Never more than there is now: the master needs the room of its reserve, which it gives back.
    room = os.statvfs(disk)
    size = room.f_frsize * room.f_bavail - (1 << 18)
    with open(f"{disk}/much", "wb") as file:
        while True:
            try:
                return os.posix_fallocate(file.fileno(), 0, size)
            except OSError:  # something was written in between
                size -= 1 << 14


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
    assert found.steps == list(range(1, 31))
    return found.values


def printed(experiment: Experiment) -> list[str]:
    return [line.text for line in experiment.trial.logs(rank=0) if "batch" in line.text]


def waits(experiment: Experiment) -> bool:
    (trial,) = experiment.view.trials
    return "waits for room on " in (trial.waiting_for or "")


def test_training_waits_for_room_and_requests_are_carried_out(home: DetHome, disk: Path) -> None:
    client = home.client()
    hparams = {"global_batch_size": 16, "pause_s": 0.01, "disk": str(disk)}
    length = {"name": "single", "metric": "error", "max_length": {"batches": 30}}
    config = small_config(
        hyperparameters=hparams, searcher=length, min_checkpoint_period={"batches": 10}
    )
    whole = submit(client, config, FILLING)
    assert whole.wait() == "COMPLETED"
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
    assert doomed.wait() == "CANCELED"
    doomed.delete()
    wait_until(lambda: doomed.id not in [e.id for e in client.experiments()], "it is deleted")
    assert waits(first)

    (disk / "trigger").unlink()
    (disk / "much").unlink()
    assert first.wait() == "COMPLETED"
    second.activate()
    assert second.wait() == "COMPLETED"
    for one in (first, second):
        assert losses(one) == losses(whole)
        assert one.view.trials[0].restarts == 0
    assert printed(first) == printed(whole)
    assert [t.allocation.run for t in first.view.trials if t.allocation is not None] in ([], [1])
    wait_until(reserve.exists, "the reserve is made again")
    client.session.close()


SCRIPT = """
import os, pathlib
from det_jupyter import core
disk = pathlib.Path(core.get_cluster_info().hparams["disk"])

def fill(leave_bytes):
    room = os.statvfs(disk)
    with open(disk / "much", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, room.f_frsize * room.f_bavail - leave_bytes)

distributed = core.DistributedContext.from_torch_distributed()
with core.init(distributed=distributed) as context:
    rank = distributed.rank
    for step in range(1, 5):
        with context.checkpoint.store_path({"steps_completed": step}, shard=True) as (path, _):
            (path / f"weights-{rank}").write_bytes(bytes([step]) * 2_000_000)
        if rank == 0:
            context.train.report_training_metrics(step, {"loss": 1 / step})
            if step == 2:
                fill(7 << 20)  # more than the floor, which is 4 MiB, but not for a checkpoint
"""


def test_checkpoints_that_code_of_the_core_api_writes_wait_for_room(
    home: DetHome, disk: Path, tmp_path: Path
) -> None:
    client = home.client()
    experiment = start(
        client,
        tmp_path,
        "python3 -m det_jupyter.launch.torch_distributed train.py",
        {"train.py": SCRIPT},
        slots=2,
        hyperparameters={"disk": str(disk)},
        checkpoint_storage={
            "save_trial_latest": 1,
            "save_trial_best": 0,
            "save_experiment_best": 0,
        },
    )
    wait_until(lambda: waits(experiment), "the ranks wait for room")
    assert "(needs about 4" in (experiment.view.trials[0].waiting_for or "")
    assert experiment.view.trials[0].steps_completed == 2
    (disk / "much").unlink()
    assert experiment.wait() == "COMPLETED"
    (trial,) = experiment.view.trials
    assert (trial.restarts, trial.steps_completed) == (0, 4)
    assert [each.steps_completed for each in experiment.checkpoints()] == [1, 2, 3, 4]
    client.session.close()


def test_everything_ends_though_nothing_can_be_stored(home: DetHome, disk: Path) -> None:
    client = home.client()
    experiment = submit(client, slow(0.2, searcher=LONG))
    wait_for_steps(experiment, 1)
    client.session.close()
    reserve = home.path / "data" / "reserve"
    with open(disk / "much", "wb", buffering=0) as file:  # also takes the reserve
        while reserve.exists() or os.statvfs(disk).f_bavail:
            with suppress(OSError):
                file.write(bytes(os.statvfs(disk).f_frsize))
    home.stop()
    home.assert_nothing_left()
