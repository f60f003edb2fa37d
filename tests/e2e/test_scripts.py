"""Scripts, modules and commands as trials: how they run, fail, leave and end."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import AllocationState, Capsule, CreateExperiment, State
from det_jupyter.contract.trial.context_dir import pack_context, plan_context
from det_jupyter.errors import RankFailed
from tests.processes import wait_until
from tests.trials import Gate, wait_for_steps

pytestmark = pytest.mark.e2e

PER_SLOT = "python3 -m det_jupyter.launch.torch_distributed "
RESUMABLE = """
import os, pathlib, subprocess, sys
import det_jupyter as det
from det_jupyter import core

# As a launcher's workers: in a session of its own, and by its name to be found by the test.
subprocess.Popen([sys.argv[1], "1000"], start_new_session=True, stdout=subprocess.DEVNULL)
latest, step = det.get_cluster_info().latest_checkpoint, 0
with core.init() as context:
    if latest is not None:
        assert os.environ["DET_LATEST_CHECKPOINT"] == latest
        with context.checkpoint.restore_path(latest) as path:
            step = int((pathlib.Path(path) / "step").read_text())
        assert os.environ["DET_STEPS_COMPLETED"] == str(step)
    print("from", step)
    while step < 60:
        step += 1
        context.train.report_training_metrics(step, {"loss": 1 / step})
        if context.preempt.should_preempt():
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (pathlib.Path(path) / "step").write_text(str(step))
            print("left at", step)
            sys.exit()
    context.train.report_validation_metrics(step, {"loss": 0.1})
"""


def resumable(gate: Gate) -> dict[str, str]:
    """Return the file of a script that waits at the gate."""
    before = "        if context.preempt.should_preempt():"
    return {"train.py": gate.source(RESUMABLE, before=before, step="step")}


def start(
    client: Client,
    folder: Path,
    entrypoint: str | list[str],
    files: dict[str, str],
    *,
    slots: int = 1,
    **config: Any,
) -> Experiment:
    """Submit files with an entrypoint, unchecked: what a client would refuse reaches the ranks."""
    work = folder / "context"
    for name, text in files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text)
    blobs = BlobStore(Path(client.session.info.data_dir) / "blobs")
    text = entrypoint if isinstance(entrypoint, str) else " ".join(entrypoint)
    context = pack_context(plan_context(work), blobs)
    capsule = Capsule(entrypoint=text, sources=blobs.put(b"{}"), context=context)
    document = {
        "name": "script",
        "entrypoint": entrypoint,
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 60}},
        "resources": {"slots_per_trial": slots},
        "max_restarts": 0,
    }
    request = CreateExperiment(
        config=document | config, capsule=capsule, python=sys.executable, cwd=str(work)
    )
    return Experiment(client, client.create(request).id)


def printed(experiment: Experiment, rank: int = 0) -> list[str]:
    return [line.text for line in experiment.trial.logs(rank=rank)]


def fail(*args: Any, **options: Any) -> RankFailed:
    """Run what fails, and return how it is told."""
    with pytest.raises(RankFailed) as caught:
        start(*args, **options).wait()
    return caught.value


def test_a_script_runs_as_by_python_in_a_copy_of_its_folder(
    client: Client, tmp_path: Path
) -> None:
    script = """
import atexit, os, pickle, sys
from torch.utils.data import DataLoader
import beside

class Thing:
    pass

if __name__ == "__main__":
    atexit.register(print, "at exit")
    assert type(pickle.loads(pickle.dumps(Thing()))) is Thing
    print(sys.argv, open("data.txt").read(), beside.VALUE, os.path.basename(__file__))
    print(os.getcwd() == os.environ["DET_WORKDIR"] == sys.path[0], os.environ["DET_SLOT_IDS"])
    if os.fork() == 0:  # without a warning: a loader's thread may outlive it for a moment
        sys.exit(5)  # not this process
    print(os.wait()[1] >> 8)
    print([int(batch[0]) for batch in DataLoader([1, 2], num_workers=1)])
    print("RANK" in os.environ, os.environ["DET_TRIAL_SEED"])
    sys.exit(0)
"""
    files = {"train.py": script, "data.txt": "some data", "beside.py": "VALUE = 3"}
    experiment = start(client, tmp_path, "python3 train.py --epochs 3", files)
    assert experiment.wait() is State.COMPLETED
    assert printed(experiment) == [
        "['train.py', '--epochs', '3'] some data 3 train.py",
        "True [0]",
        "at exit",
        "5",
        "[1, 2]",
        f"False {experiment.view.trials[0].seed}",
        "at exit",
    ]


def test_a_process_for_each_slot_joins_its_group_when_the_script_asks(
    client: Client, tmp_path: Path
) -> None:
    script = """
import torch, torch.distributed as dist
from det_jupyter import core

for _ in range(2):  # a group may end, and another begin
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    dist.destroy_process_group()
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
    ranks = context.distributed.allgather(context.distributed.rank)
    if context.distributed.rank == 0:
        context.train.report_validation_metrics(1, {"loss": total.item(), "ranks": ranks})
    else:
        print(context.distributed.local_rank, "of", context.distributed.size)
"""
    experiment = start(client, tmp_path, PER_SLOT + "train.py", {"train.py": script}, slots=2)
    assert experiment.wait() is State.COMPLETED
    trial = experiment.view.trials[0]
    assert (trial.latest_metric, trial.steps_completed) == (2.0, 1)
    assert printed(experiment, rank=1) == ["1 of 2"]


def test_commands_are_for_the_shell_or_lists_and_python_is_the_experiments(
    client: Client, tmp_path: Path
) -> None:
    files = {"show.py": "import sys; print(sys.prefix, *sys.argv[1:])"}
    piped = "echo a b | tr a-z A-Z && python3 show.py done"
    shell = start(client, tmp_path, piped, files)
    listed = start(client, tmp_path, ["nice", "python3", "show.py", "a b", "*"], files)
    assert [shell.wait(), listed.wait()] == [State.COMPLETED, State.COMPLETED]
    assert printed(shell) == ["A B", f"{sys.prefix} done"]
    assert printed(listed) == [f"{sys.prefix} a b *"]


@pytest.mark.parametrize(
    ("entrypoint", "says", "where"),
    [
        ("python3 raises.py", "ValueError: no", "raises.py, line 2, in train"),
        ("python3 -m package.inner", "ValueError: no", "raises.py, line 2, in train"),
        (
            "python3 leaves.py",
            "leaves.py ended with exit code 1 (sys.exit): bad data",
            "leaves.py",
        ),
        ("python3 wrong.py", "entrypoint: wrong.py, line 2: ", ""),
        ("python3 absent.py", "there is no absent.py in the folder that ranks work in", ""),
        ("python3 -m absent", "No module named absent", ""),
        (["absent", "-x"], "the command 'absent' is not there", ""),
        (["./data"], "./data may not be executed; `chmod +x ./data` allows it", ""),
        ("kill -9 $$", "was killed by SIGKILL", ""),
        (PER_SLOT + "shadow.py", "torch.py would take the place of the installed torch", ""),
    ],
)
def test_what_fails_says_where(
    client: Client, tmp_path: Path, entrypoint: str | list[str], says: str, where: str
) -> None:
    files = {
        "raises.py": "def train():\n    raise ValueError('no')\nif __name__ != 'b':\n    train()",
        "package/__init__.py": "",
        "package/inner.py": "import raises",
        "leaves.py": "import sys\nsys.exit('bad data')",
        "wrong.py": "x = 1\ndef train(:\n    pass",
        "data": "1",
    }
    if "shadow" in entrypoint:
        files |= {"torch.py": "", "shadow.py": ""}
    experiment = start(client, tmp_path, entrypoint, files)
    with pytest.raises(RankFailed, match=re.escape(says)) as caught:
        experiment.wait()
    failure = experiment.view.trials[0].failure
    assert failure is not None
    assert failure.where.startswith(where)
    assert "det_jupyter/rank" not in caught.value.remote_traceback
    assert ("Traceback" in failure.traceback) == ('File "raises.py", line 2' in failure.traceback)


def test_the_workers_failure_is_told_though_its_launcher_hides_it(
    client: Client, tmp_path: Path
) -> None:
    worker = """
import sys
from det_jupyter import core

place = {"local_rank": 0, "local_size": 1, "cross_rank": 0, "cross_size": 1}
with core.init(distributed=core.DistributedContext(rank=0, size=1, **place)):
    raise KeyError("first")
"""
    failure = fail(client, tmp_path, "python3 worker.py || true", {"worker.py": worker})
    assert "KeyError: 'first'" in str(failure)
    assert 'File "worker.py", line 7' in failure.remote_traceback


def test_a_rank_that_ends_early_is_no_failure_and_one_that_fails_ends_all(
    client: Client, tmp_path: Path
) -> None:
    script = """
import os, sys, time
if os.environ["RANK"] == "1":
    os._exit(int(sys.argv[1]))
time.sleep(float(sys.argv[2]))
"""
    files = {"train.py": script}
    early = start(client, tmp_path, PER_SLOT + "train.py 0 0.2", files, slots=2)
    assert early.wait() is State.COMPLETED
    failure = fail(client, tmp_path, PER_SLOT + "train.py 3 1000", files, slots=2)
    assert "rank 1 ended with exit status 3" in str(failure)


@pytest.fixture
def leftover(tmp_path: Path) -> Path:
    """Return a program to start in the background; no process of it is left after the test."""
    program = tmp_path / "a-launchers-worker"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    return program


def lives(program: Path) -> bool:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return any(line[:1] == [str(program)] for line in lines)  # a zombie has none


def test_a_script_that_is_paused_goes_on_from_its_checkpoint(
    client: Client, tmp_path: Path, leftover: Path
) -> None:
    entrypoint, gate = f"python3 train.py {leftover}", Gate(tmp_path, 5)
    experiment = start(client, tmp_path, entrypoint, resumable(gate))
    left_at = pause(experiment, leftover)
    gate.open()
    experiment.activate()
    assert experiment.wait() is State.COMPLETED
    assert printed(experiment) == ["from 0", f"left at {left_at}", f"from {left_at}"]
    trial = experiment.view.trials[0]
    assert (trial.steps_completed, trial.restarts) == (60, 0)


def pause(experiment: Experiment, leftover: Path) -> int:
    """Pause a script while it trains; return the step at which it left, with what it started."""
    wait_for_steps(experiment, 3)
    assert lives(leftover)
    experiment.pause()
    wait_until(lambda: is_idle(experiment), "it has left")
    assert not lives(leftover)
    left_at = experiment.view.trials[0].steps_completed
    assert 3 <= left_at < 60
    return left_at


def is_idle(experiment: Experiment) -> bool:
    allocation = experiment.view.trials[0].allocation
    return allocation is None or allocation.state is AllocationState.ENDED


def test_all_that_a_command_has_started_ends_when_it_is_paused_or_killed(
    client: Client, tmp_path: Path, leftover: Path
) -> None:
    entrypoint = f"exec nice python3 train.py {leftover}"
    experiment = start(client, tmp_path, entrypoint, resumable(Gate(tmp_path, 5)))
    left_at = pause(experiment, leftover)
    experiment.activate()
    wait_for_steps(experiment, left_at + 1)
    assert lives(leftover)
    experiment.kill()
    wait_until(lambda: not lives(leftover), "the process is gone")
    assert experiment.wait() is State.CANCELED
    assert printed(experiment) == ["from 0", f"left at {left_at}", f"from {left_at}"]


def test_variables_that_no_program_could_be_started_with_are_left_out(
    client: Client, tmp_path: Path
) -> None:
    script = "import os, subprocess\nprint('DET_HPARAMS' in os.environ)\nsubprocess.run(['true'])"
    experiment = start(
        client, tmp_path, "python3 t.py", {"t.py": script}, hyperparameters={"x": "a" * 140_000}
    )
    assert experiment.wait() is State.COMPLETED
    assert printed(experiment) == ["False"]
    notices = experiment.view.trials[0].notices
    assert any("DET_HPARAMS is left out" in notice for notice in notices)


WRITES = """
import os, pathlib, sys, time
from torch.utils.tensorboard import SummaryWriter

rank, began = os.environ["RANK"], pathlib.Path(sys.argv[1])
writer = SummaryWriter(f"runs/{rank}")
for step in range(1, 7):
    writer.add_scalar("Loss/train", 1 / step, step)
    time.sleep(0.2)
    if step == 5 and rank == "0" and not began.exists():
        began.touch()
        os._exit(3)
writer.add_scalar("Loss/val", 0.25, 6)
"""


def test_a_script_that_writes_for_tensorboard_has_each_value_once_after_a_restart(
    client: Client, tmp_path: Path
) -> None:
    pytest.importorskip("tensorboard")
    experiment = start(
        client,
        tmp_path,
        f"{PER_SLOT} train.py {tmp_path / 'began'}",
        {"train.py": WRITES},
        slots=2,
        max_restarts=1,
        searcher={"name": "single", "metric": "Loss", "max_length": {"batches": 6}},
    )
    assert experiment.wait() is State.COMPLETED
    trial = experiment.view.trials[0]
    assert (trial.restarts, trial.best_metric, trial.steps_completed) == (1, 0.25, 6)
    assert [notice for notice in trial.notices if "TensorBoard" in notice]
    curves = {curve.group: curve for curve in experiment.curves()}
    assert curves["training"].steps == [1, 2, 3, 4, 5, 6]
    assert curves["validation"].values == [0.25]
