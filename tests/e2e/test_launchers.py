"""Launchers that run as real commands in experiments: their ranks are the trial's ranks."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from det_jupyter.client import Client, Experiment
from det_jupyter.errors import RankFailed
from tests.processes import DetHome, processes_of, wait_until
from tests.scripts import create
from tests.trials import TRIAL_SOURCE, Gate, slow, small_config

pytestmark = pytest.mark.e2e

TORCH = "python3 -m det_jupyter.launch.torch_distributed"
WORK = """
import sys
from det_jupyter import core

distributed = core.DistributedContext.{place}
with core.init(distributed=distributed) as context:
    rank = context.distributed.rank
    print("work of rank", rank)
    if "fail" in sys.argv and rank == 1:
        raise ValueError("shapes differ")
    context.distributed.barrier()
    if rank == 0:
        context.train.report_validation_metrics(1, {{"error": 0.5}})
"""
HANGS = """
import subprocess, time
child = subprocess.Popen(["sleep", "100"])
print("hangs", flush=True)
time.sleep(100)
"""


# As Determined's examples: no line of it makes a process group.
INFERENCE = """
import torch.distributed as dist
from det_jupyter import core
from det_jupyter.pytorch.experimental import TorchBatchProcessor, torch_batch_process

class Counting(TorchBatchProcessor):
    def __init__(self, context):
        self.count = context.wrap_reducer(sum, "count")
        assert dist.get_world_size() == 2
        self.rank = dist.get_rank()

    def process_batch(self, batch, batch_idx):
        assert batch_idx % 2 == self.rank
        self.count.update(len(batch))

outcome = torch_batch_process(Counting, list(range(7)), batch_size=2)
ranks = [None, None]
dist.all_gather_object(ranks, core.get_cluster_info().trial.trial_id and dist.get_rank())
print(outcome.metrics, ranks)
"""
TRAINING = """
import torch.distributed as dist
from det_jupyter import pytorch
from model_def import SmallTrial

with pytorch.init() as context:
    assert (context.distributed.get_size(), dist.get_world_size()) == (2, 2)
    trainer = pytorch.Trainer(SmallTrial(context), context)
    trainer.fit(max_length=pytorch.Batch(4), checkpoint_policy="none")
print("trained")
"""


class Folder:
    """A context directory, from which experiments on two slots are created."""

    def __init__(self, path: Path, client: Client) -> None:
        self.path = path
        self.client = client

    def add(self, name: str, source: str) -> None:
        """Write a file."""
        (self.path / name).write_text(source)

    def create(self, command: str, **changes: Any) -> Experiment:
        """Submit an experiment."""
        single = {"name": "single", "metric": "error", "max_length": {"batches": 1}}
        plain = {"name": "launched", "searcher": single, "max_restarts": 0}
        two = {"resources": {"slots_per_trial": 2}}
        config = plain | two | changes | {"entrypoint": command}
        return create(self.client, yaml.safe_dump(config), context=self.path)


@pytest.fixture
def folder(tmp_path: Path, client: Client) -> Folder:
    return Folder(tmp_path, client)


def lines(experiment: Experiment, rank: int) -> list[str]:
    return [line.text for line in experiment.trials[0].logs(rank=rank)]


@pytest.mark.parametrize("launcher", ["torch_distributed", "deepspeed"])
def test_what_needs_a_process_group_makes_it_under_a_launcher(
    folder: Folder, launcher: str
) -> None:
    folder.add("infer.py", INFERENCE)
    folder.add("model_def.py", TRIAL_SOURCE)
    folder.add("train.py", TRAINING)
    command = f"python3 -m det_jupyter.launch.{launcher}"
    hparams = {"hyperparameters": slow(0.0)["hyperparameters"]}
    experiments = [
        folder.create(f"{command} {name}", **hparams) for name in ("infer.py", "train.py")
    ]
    for experiment, printed in zip(experiments, ["{'count': 7} [0, 1]", "trained"], strict=True):
        assert experiment.wait() == "COMPLETED", experiment.view.message
        assert lines(experiment, 1)[-1:] == [printed]


def test_a_class_on_several_slots_needs_a_launcher(folder: Folder) -> None:
    folder.add("model_def.py", TRIAL_SOURCE)
    folder.add("train.py", TRAINING)
    with pytest.raises(
        RankFailed, match=r"pytorch\.init: this trial has 2 slots, but no launcher"
    ):
        folder.create("python3 train.py").wait()


def test_a_failure_that_a_launcher_hides_is_the_trials_failure(folder: Folder) -> None:
    folder.add("work.py", WORK.format(place="from_torch_distributed()"))
    experiment = folder.create(f"{TORCH} work.py fail; exit 0")
    with pytest.raises(RankFailed, match="ValueError: shapes differ"):
        experiment.wait()
    assert lines(experiment, 1)[-1].endswith("ValueError: shapes differ")


def test_a_worker_that_says_nothing_is_named_with_what_it_printed(folder: Folder) -> None:
    folder.add("dies.py", "import os\nprint('here')\nos._exit(3 * int(os.environ['RANK']))\n")
    experiment = folder.create(f"true && {TORCH} dies.py")
    with pytest.raises(RankFailed, match=r"rank 1 failed with exit code 3(.|\n)*\nhere"):
        experiment.wait()


@pytest.mark.parametrize("pauses", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_class_trains_in_the_ranks_of_a_launcher_in_a_shell_script_as_in_ours(
    folder: Folder, tmp_path_factory: pytest.TempPathFactory, pauses: bool
) -> None:
    gate = Gate(tmp_path_factory.mktemp("gate"), 5)
    made = "self.context = context\n"
    saying = f'{made}        print("work of rank", context.distributed.rank)\n'
    source = TRIAL_SOURCE.replace(made, saying)
    folder.add("model_def.py", source)
    length = {"name": "single", "metric": "error", "max_length": {"batches": 20}}
    config = small_config(searcher=length)
    ours = folder.create("model_def:SmallTrial", **config)
    command = f"echo begin && {TORCH} --standalone --trial model_def:SmallTrial"
    if pauses:
        folder.add("model_def.py", gate.source(source))
    theirs = folder.create(command, **config)
    if pauses:
        gate.wait(theirs)
        theirs.pause()
        wait_until(
            lambda: theirs.state == "PAUSED" and not folder.client.cluster(limit=0).holding,
            "it has left",
        )
        gate.open()
        theirs.activate()
    assert ours.wait() == theirs.wait() == "COMPLETED", theirs.view.message
    assert theirs.best_trial().view.best_metric == ours.best_trial().view.best_metric
    of_ranks = [
        [line for line in lines(theirs, rank) if line == "begin" or line.startswith("work")]
        for rank in (0, 1)
    ]
    runs = 1 + pauses
    assert of_ranks == [["begin", "work of rank 0"] * runs, ["work of rank 1"] * runs]


def test_an_experiment_that_is_killed_leaves_nothing_of_its_workers(
    folder: Folder, home: DetHome
) -> None:
    folder.add("hangs.py", HANGS)
    experiment = folder.create(f"true && {TORCH} hangs.py")
    wait_until(lambda: experiment.trials and lines(experiment, 1), "rank 1 hangs")

    def names() -> list[str]:
        found = []
        for process in processes_of(home.path):
            try:
                found.append(" ".join(process.cmdline()))
            except psutil.NoSuchProcess:
                continue
        return found

    def num_left() -> int:
        return sum("hangs.py" in name or name == "sleep 100" for name in names())

    assert num_left() >= 4
    experiment.kill()
    wait_until(lambda: not num_left(), "they are gone")


@pytest.mark.skipif(
    shutil.which("mpirun") is None or find_spec("mpi4py") is None, reason="needs mpirun, mpi4py"
)
def test_ranks_of_mpirun_are_the_trials_ranks(folder: Folder) -> None:
    folder.add("work.py", WORK.format(place="from_mpi()"))
    experiment = folder.create("python3 -m det_jupyter.launch.mpi work.py")
    assert experiment.wait() == "COMPLETED", experiment.view.message
    assert lines(experiment, 0) == ["work of rank 0"]
    assert lines(experiment, 1) == ["work of rank 1"]
