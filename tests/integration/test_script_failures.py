"""What a script under torchrun tells of a failure, and what its keyboard does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter import core
from det_jupyter.core import RecordList
from det_jupyter.core.lost import PeerLost
from det_jupyter.pytorch.training.init import naming_lost_peers
from det_jupyter.pytorch.training.keyboard import leaving_on_interrupt

SCRIPT = """
import sys, torch
from torch import nn
from det_jupyter import pytorch
from tests.integration.test_trainer import HPARAMS, Tiny

class Trial(Tiny):
{trial}

with pytorch.init(hparams=HPARAMS, seed=1, checkpoint_storage=sys.argv[1]) as context:
    pytorch.Trainer(Trial(context), context).fit(max_length=pytorch.Batch(20))
"""


def torchrun(tmp_path: Path, trial: str) -> str:
    """Return what two ranks of the script print, which have to fail."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(trial=trial))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--standalone", str(script), str(tmp_path / "checkpoints")]
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def test_parameters_without_gradients_are_named_with_the_remedy(tmp_path: Path) -> None:
    told = torchrun(
        tmp_path,
        "    def __init__(self, context):\n"
        "        super().__init__(context)\n"
        "        model = nn.ModuleDict({'used': nn.Linear(4, 1), 'spare': nn.Linear(4, 1)})\n"
        "        model.forward = lambda x: model['used'](x)\n"
        "        self.model = context.wrap_model(model)\n"
        "        context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))\n"
        "    def train_batch(self, batch, epoch_idx, batch_idx):\n"
        "        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])\n"
        "        self.context.backward(loss)\n"
        "        return {'loss': loss}\n",
    )
    assert (
        "train_batch: parameters of ModuleDict got no gradient in a batch: spare.weight, "
        "spare.bias. If they are not used in every backward pass, say so: "
        "context.wrap_model(model, find_unused_parameters=True)"
    ) in told
    assert "DistributedDataParallel" not in told


def test_each_rank_tells_its_own_part_and_shows_no_frames_of_ours(tmp_path: Path) -> None:
    told = torchrun(
        tmp_path,
        "    def train_batch(self, batch, epoch_idx, batch_idx):\n"
        "        if batch_idx == 3 and self.context.distributed.rank == 1:\n"
        "            raise ValueError('mine')\n"
        "        return super().train_batch(batch, epoch_idx, batch_idx)\n",
    )
    mine = [line for line in told.splitlines() if "[rank1]" in line]
    assert any("ValueError: mine" in line for line in mine)
    files = [line for line in mine if "File " in line]
    assert [line.rpartition(" in ")[2] for line in files] == ["<module>", "train_batch"]
    # torchrun may end the other one before it says anything
    assert "Connection closed by peer" not in told.partition("another rank has ended")[0]


def context_of(folder: Path) -> core.Context:
    return core.init(sink=RecordList(), checkpoint_storage=folder)


def test_the_echo_of_another_ranks_end_is_told_as_what_it_is(tmp_path: Path) -> None:
    file = f"{Path(torch.__file__).parent}/distributed/distributed_c10d.py"
    said = "[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1. Check it."
    raises: dict[str, Any] = {"error": RuntimeError(said)}
    exec(compile("def all_reduce(): raise error", file, "exec"), raises)
    with pytest.raises(PeerLost) as caught, naming_lost_peers(context_of(tmp_path)):
        raises["all_reduce"]()
    assert str(caught.value) == (
        "another rank has ended, and its own error has the cause (here it shows as: "
        "Connection closed by peer [127.0.0.1]:1)"
    )
    with pytest.raises(ZeroDivisionError), naming_lost_peers(context_of(tmp_path)):
        1 / 0  # noqa: B018  # it is the error that matters


def interrupt_with_a_worker(context: core.Context, capfd: pytest.CaptureFixture[str]) -> None:
    with leaving_on_interrupt(context) as wants_to_leave:
        worker = os.fork()
        if worker == 0:  # as a loader worker is: it ends when it is told to
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(7)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert capfd.readouterr().err == ""
        assert not wants_to_leave()
        os.kill(os.getpid(), signal.SIGINT)
        assert wants_to_leave()


def interrupt_after_a_checkpoint(context: core.Context) -> None:
    with leaving_on_interrupt(context, is_kept=False):
        with context.checkpoint.store_path({"steps_completed": 3}) as (path, _):
            (path / "weights").write_text("whole")
        os.kill(os.getpid(), signal.SIGINT)


def test_only_the_process_that_trains_tells_of_an_interrupt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt, match="the training was interrupted"):
        interrupt_with_a_worker(context_of(tmp_path), capfd)
    assert capfd.readouterr().err == (
        "interrupted: finishing the batch and saving; again to stop at once\n"
    )


def test_where_nothing_is_kept_an_interrupt_names_no_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt, match=r"^the training was interrupted$"):
        interrupt_after_a_checkpoint(context_of(tmp_path))
    assert capfd.readouterr().err == "interrupted: finishing the batch; again to stop at once\n"
