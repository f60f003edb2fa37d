"""A script under torchrun: what it trains, what it tells of a failure, what its keyboard does."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter import core
from det_jupyter.core import RecordList
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.pytorch.training.init import naming_lost_peers
from det_jupyter.pytorch.training.trainer import leaving_on_interrupt
from tests.forks import torch_source
from tests.integration.test_trainer import Certain, fit, weights

# Each rank loads torch ([m] 3 s of CPU). So the ranks train three times: twice in copies of
# themselves, which meet at a port of their own, because torchrun's serves one group.
SCRIPT = """
import gc, socket, sys, time
import torch._dynamo  # once, and not in each copy
from tests.forks import torch_source
from tests.integration.test_trainer import *

gc.freeze()  # a copy need not visit all of it when it ends
FOLDER, RANK = Path(sys.argv[1]), os.environ["RANK"]


def is_copy(attempt):
    port, said = FOLDER / f"{attempt}.port", FOLDER / f"{attempt}-{RANK}.said"
    if RANK == "0":
        with socket.create_server(("127.0.0.1", 0)) as free:
            port.with_suffix(".part").write_text(str(free.getsockname()[1]))
        port.with_suffix(".part").rename(port)
    while not port.exists():
        time.sleep(0.01)
    if copy := os.fork():
        _, status = os.waitpid(copy, 0)
        code = os.waitstatus_to_exitcode(status)
        (FOLDER / f"{attempt}-{RANK}.code").write_text(str(code))
        return False
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="False", MASTER_PORT=port.read_text())
    for stream in (1, 2):
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    return True


class WithSpare(Tiny):
    def __init__(self, context):
        super().__init__(context)
        model = nn.ModuleDict({'used': nn.Linear(4, 1), 'spare': nn.Linear(4, 1)})
        model.forward = lambda x: model['used'](x)
        self.model = context.wrap_model(model)
        context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        return {'loss': loss}


class FailsOnOne(Tiny):
    def train_batch(self, batch, epoch_idx, batch_idx):
        if batch_idx == 3 and self.context.distributed.rank == 1:
            raise ValueError('mine')
        return super().train_batch(batch, epoch_idx, batch_idx)


if is_copy(1):
    trial, _ = fit(FOLDER / "good", Certain)
    distributed = trial.context.distributed
    threads = [task.read_text() for task in Path('/proc/self/task').glob('*/comm')]
    # A thread of a group that releases a tensor while Python ends aborts the process. Those
    # of the gradients' group remain: the wrapped model refers to it.
    assert sum('gloo_runloop' in name for name in threads) <= 2, threads
    with pytest.raises(RuntimeError, match='connections are closed'):
        distributed.barrier()
    if distributed.rank == 0:
        torch.save(weights(trial), FOLDER / "weights.pt")
    sys.exit()
trial_class = WithSpare if (is_second := is_copy(2)) else FailsOnOne
storage = FOLDER / ("second" if is_second else "third")
with pytorch.init(hparams=HPARAMS, seed=1, checkpoint_storage=storage) as context:
    pytorch.Trainer(trial_class(context), context).fit(max_length=pytorch.Batch(20))
"""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What became of the script's three trainings."""

    folder: Path
    code: int
    told: str

    def copies(self, attempt: int) -> tuple[list[str], str]:
        """Return with which codes the ranks' copies have ended, and what they have told."""
        codes, told = (
            [(self.folder / f"{attempt}-{rank}.{kind}").read_text() for rank in (0, 1)]
            for kind in ("code", "said")
        )
        return codes, "".join(told)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Run the script on two ranks of torchrun."""
    folder = tmp_path_factory.mktemp("torchrun")
    script, told = folder / "train.py", folder / "told"
    script.write_text(f"import sys; sys.path.insert(0, {os.getcwd()!r})\n{SCRIPT}")
    words = ["torchrun", "--nproc-per-node=2", "--standalone", str(script), str(folder)]
    torchrun = torch_source().start(
        "runpy:run_module",
        *("torch.distributed.run", None, "__main__"),
        argv=words,
        outputs=[told, told],
    )
    code = torchrun.wait()
    return Launched(folder=folder, code=code, told=told.read_text())


def test_a_script_trains_under_torchrun_as_alone(launched: Launched, tmp_path: Path) -> None:
    codes, told = launched.copies(1)
    assert codes == ["0", "0"], told
    alone, _ = fit(tmp_path / "alone", Certain)
    two = torch.load(launched.folder / "weights.pt", weights_only=True)
    assert all(
        torch.allclose(a, b, rtol=1e-5, atol=1e-6)
        for a, b in zip(weights(alone), two, strict=True)
    )


def test_parameters_without_gradients_are_named_with_the_remedy(launched: Launched) -> None:
    codes, told = launched.copies(2)
    assert codes == ["1", "1"]
    assert (
        "train_batch: parameters of ModuleDict got no gradient in a batch: spare.weight "
        "and spare.bias. If they are not used in every backward pass, say so: "
        "context.wrap_model(model, find_unused_parameters=True)"
    ) in told
    assert "DistributedDataParallel" not in told


def test_each_rank_tells_its_own_part_and_shows_no_frames_of_ours(launched: Launched) -> None:
    assert launched.code != 0
    mine = [line for line in launched.told.splitlines() if "[rank1]" in line]
    assert any("ValueError: mine" in line for line in mine)
    files = [line for line in mine if "File " in line]
    assert [line.rpartition(" in ")[2] for line in files] == ["<module>", "train_batch"]
    # torchrun may end the other one before it says anything
    assert "Connection closed by peer" not in launched.told.partition("another rank has ended")[0]


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
    with leaving_on_interrupt(context) as is_leave_requested:
        worker = os.fork()
        if worker == 0:  # as a loader worker is: it ends when it is told to
            for _ in range(3):
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(7)
        _, status = os.waitpid(worker, 0)
        assert os.waitstatus_to_exitcode(status) == 7
        assert capfd.readouterr().err == ""
        assert not is_leave_requested()
        os.kill(os.getpid(), signal.SIGINT)
        assert is_leave_requested()


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
