"""A rank on a GPU is killed (docs/recovery.md).

Its trial begins again at the last checkpoint, since a rank of NCCL does not notice that another
one has ended; with `recover_on_gpus` at the last step. With one device two ranks share it: NCCL
allows that to ranks that believe to be on different computers. Skipped where there is no device.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import ControlPage, create_page
from tests.processes import det_home
from tests.trials import Gate, small_config, submit

ROOT = Path(__file__).parents[2]
NUM_DEVICES = torch.cuda.device_count()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUM_DEVICES == 0, reason="there is no CUDA device"),
]

GROUP = """
import os
import sys
from pathlib import Path
import torch
import torch.distributed as dist

folder, rank, devices = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
device = torch.device("cuda", rank % devices)
torch.cuda.set_device(device)
dist.init_process_group("nccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
"""

SUMS = """
numbers = torch.ones(8, device="cuda")
while True:
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    print(rank, flush=True)
"""

STEPS = """
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.pytorch.training.exchange_watch import ExchangeWatch

watch = ExchangeWatch(RunDir(Path(folder)), device)
weight, steps = torch.zeros(1 << 22, device=device), 0
try:
    while True:
        gradient = torch.ones_like(weight)
        dist.all_reduce(gradient)
        watch.await_exchange()
        weight += gradient
        steps += 1
        print(steps, flush=True)
except Exception:  # a PeerLost, or what torch raises for a group that is gone
    assert watch.is_aborted
    print("left", (weight == 2 * steps).all().item(), flush=True)
    os._exit(0)
"""


@contextmanager
def two_ranks(source: str, folder: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Start two ranks of NCCL; in the block each of them has printed a line."""
    shares = NUM_DEVICES < 2
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", GROUP + source, str(folder), str(rank), str(NUM_DEVICES)],
            env=environment | ({"NCCL_HOSTID": f"rank-{rank}"} if shares else {}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline()
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_a_rank_of_nccl_does_not_notice_that_another_one_was_killed(tmp_path: Path) -> None:
    with two_ranks(SUMS, tmp_path) as ranks:
        ranks[1].kill()
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].communicate(timeout=4)


def test_a_rank_leaves_an_exchange_that_is_aborted_with_the_weights_of_its_last_step(
    tmp_path: Path,
) -> None:
    create_page(RunDir(tmp_path).control)
    with two_ranks(STEPS, tmp_path) as ranks, closing(ControlPage(RunDir(tmp_path).control)) as it:
        ranks[1].kill()
        it.note_killed()
        printed, _ = ranks[0].communicate()
    assert printed.splitlines()[-1] == "left True"


@pytest.mark.skipif(NUM_DEVICES < 2, reason="there are not two CUDA devices")
@pytest.mark.parametrize("recovers", [False, True])
def test_a_trial_on_gpus_begins_again_at_its_last_checkpoint_or_at_its_last_step(
    tmp_path: Path, *, recovers: bool
) -> None:
    changes: dict[str, Any] = {"optimizations": {"recover_on_gpus": recovers}}
    with det_home(tmp_path / "home", {}) as home:
        client = home.client()
        gate = Gate(tmp_path, 25)  # there is a checkpoint of batch 20
        calm = submit(client, small_config())
        killed = submit(client, small_config(**changes), gate.source())
        gate.wait(killed)
        pids = [rank.view.pid for rank in killed.trial.ranks]
        os.kill(pids[1], signal.SIGKILL)
        gate.open()
        assert [calm.wait(), killed.wait()] == ["COMPLETED", "COMPLETED"]
        trial = killed.view.trials[0]
        assert (trial.restarts, trial.num_recoveries) == ((0, 1) if recovers else (1, 0))
        steps = [one.steps_completed for one in killed.checkpoints()]
        assert steps != [20, 40, 60] if recovers else steps == [20, 40, 60]
        weights = [
            max(each.checkpoints(), key=lambda one: one.steps_completed).load().model.state_dict()
            for each in (calm, killed)
        ]
        client.session.close()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
