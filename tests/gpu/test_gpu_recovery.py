"""A rank on a GPU is killed: its trial begins again at the last checkpoint (docs/recovery.md).

Not before: a rank of NCCL does not notice that another one has ended. With one device two ranks
share it: NCCL allows that to ranks that believe to be on different computers. Skipped where there
is no device.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.processes import det_home, wait_until
from tests.trials import slow, small_config, submit, wait_for_steps

NUM_DEVICES = torch.cuda.device_count()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(NUM_DEVICES == 0, reason="there is no CUDA device"),
]

SUMS = """
import sys
import torch
import torch.distributed as dist

store, rank, devices = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.cuda.set_device(rank % devices)
dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
numbers = torch.ones(8, device="cuda")
while True:
    dist.all_reduce(numbers)
    torch.cuda.synchronize()
    print(rank, flush=True)
"""


def test_a_rank_of_nccl_does_not_notice_that_another_one_was_killed(tmp_path: Path) -> None:
    shares = NUM_DEVICES < 2
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", SUMS, str(tmp_path / "store"), str(rank), str(NUM_DEVICES)],
            env=os.environ | ({"NCCL_HOSTID": f"rank-{rank}"} if shares else {}),
            stdout=subprocess.PIPE,
        )
        for rank in (0, 1)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            assert rank.stdout.readline()
        ranks[1].kill()
        with pytest.raises(subprocess.TimeoutExpired):
            ranks[0].communicate(timeout=4)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.skipif(NUM_DEVICES < 2, reason="there are not two CUDA devices")
def test_a_trial_on_gpus_begins_again_at_its_last_checkpoint(tmp_path: Path) -> None:
    with det_home(tmp_path / "home", {}) as home:
        client = home.client()
        calm, killed = submit(client, small_config()), submit(client, slow(0.05))
        wait_for_steps(killed, 25)  # there is a checkpoint of batch 20
        pids = [rank.view.pid for rank in killed.trial.ranks]
        os.kill(pids[1], signal.SIGKILL)
        wait_until(lambda: killed.view.trials[0].restarts == 1, "it begins again")
        assert [calm.wait(), killed.wait()] == ["COMPLETED", "COMPLETED"]
        assert killed.view.trials[0].num_recoveries == 0
        assert [one.steps_completed for one in killed.checkpoints()] == [20, 40, 60]
        weights = [
            max(each.checkpoints(), key=lambda one: one.steps_completed).load().model.state_dict()
            for each in (calm, killed)
        ]
        client.session.close()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
