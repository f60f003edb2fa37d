"""A gang of two real ranks that hangs is named, and goes on; see tests/benchmarks/hang_doctor."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host.rundir import run_dir
from det_jupyter.contract.messages import ExperimentQuery, HangReport, Reason
from det_jupyter.contract.run.evidence_page import EvidencePage
from det_jupyter.errors import WaitTimeout
from tests.e2e.test_scripts import start
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, small_config, submit, wait_for_steps

pytestmark = pytest.mark.e2e

TRAINING = "        time.sleep(self.pause_s)\n"
# Opening a FIFO blocks until another process opens it too.
STALLING = """\
        if batch_idx == 7 and self.context.distributed.rank == 1:
            open({fifo!r})
"""
STEPS = 12
SCRIPT = """
import sys
import torch
from torch import distributed as dist
from det_jupyter import core

with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
    rank = context.distributed.rank
    if "all_reduce" in sys.argv:
        dist.init_process_group("gloo")
    for step in range(1, 13):
        if rank == 1 and step == 7:
            open(sys.argv[1])
        if "all_reduce" in sys.argv:
            dist.all_reduce(torch.ones(4))
        else:
            context.distributed.allgather(step)
        if rank == 0:
            context.train.report_training_metrics(step, {"loss": 1 / step})
"""


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """Return a FIFO, which a rank opens."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def stalling(fifo: Path) -> str:
    """Return the trial whose rank 1 waits for the FIFO in batch 7."""
    return TRIAL_SOURCE.replace(TRAINING, STALLING.format(fifo=str(fifo)))


def found(experiment: Experiment) -> HangReport | None:
    trials = experiment.view.trials
    return trials[0].hang if trials else None


def reason_that_names_both(experiment: Experiment) -> Reason:
    """Return why the trial hangs once rank 0 is said to wait for rank 1.

    On a busy computer the first look may find less.
    """

    def named() -> Reason | None:
        hang = found(experiment)
        kinds = [] if hang is None else [(rank.rank, rank.kind) for rank in hang.ranks]
        if kinds != [(0, "waits"), (1, "still")]:
            return None
        reason = experiment.why()
        return reason if reason.cause == "hangs" else None

    return wait_until(named, "both ranks are named")


def let_go_on(experiment: Experiment, fifo: Path) -> None:
    """Open the FIFO, see that the hang is taken back, and wait for the end."""
    fifo.open("w").close()
    wait_until(lambda: found(experiment) is None, "it hangs no longer")
    assert experiment.wait() == "COMPLETED"


def test_a_rank_that_stands_still_is_named_until_it_goes_on(
    client: Client, fifo: Path, tmp_path: Path
) -> None:
    length = {"name": "single", "metric": "error", "max_length": {"batches": STEPS}}
    config = small_config(
        searcher=length, min_validation_period={"batches": STEPS}, hang={"after_s": 4}
    )
    experiment = submit(client, config, stalling(fifo))
    reason = reason_that_names_both(experiment)
    assert reason.sentence.startswith("rank 1 has been in ")
    assert "; rank 0 waits for it in all_reduce, batch 7" in reason.sentence
    assert "in train_batch" in experiment.trial.hang_report(tmp_path / "hang.md")
    with pytest.raises(WaitTimeout, match=r"hangs: trial \d+: rank 1 has been in "):
        experiment.wait(4)

    def alarms() -> list[str]:
        rows = client.find(ExperimentQuery()).rows
        return [row.alarm_kind for row in rows if row.id == experiment.id]

    wait_until(lambda: alarms() == ["hangs"], "the list says it")
    let_go_on(experiment, fifo)


@pytest.mark.parametrize("collective", ["all_reduce", "allgather"])
def test_a_worker_of_a_launcher_that_stands_still_is_named(
    client: Client, fifo: Path, tmp_path: Path, collective: str
) -> None:
    launcher = "python3 -m det_jupyter.launch.torch_distributed"
    experiment = start(
        client,
        tmp_path,
        f"{launcher} train.py {fifo} {collective}",
        {"train.py": SCRIPT},
        slots=2,
        hang={"after_s": 4},
    )
    reason = reason_that_names_both(experiment)
    assert reason.sentence.startswith("rank 1 has been in `open` (train.py, line 13)")
    assert f"; rank 0 waits for it in {collective}" in reason.sentence
    let_go_on(experiment, fifo)


ALONE = """
import sys
from det_jupyter import core

with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 1.0})
    open(sys.argv[1])
"""


def test_a_script_without_a_launcher_is_watched(
    client: Client, fifo: Path, tmp_path: Path
) -> None:
    """A process that holds up no other is said to hang after a minute only."""
    experiment = start(client, tmp_path, f"python3 train.py {fifo}", {"train.py": ALONE})
    wait_for_steps(experiment, 1)
    run = experiment.view.trials[0].allocation
    assert run is not None
    folder = run_dir(Path(client.session.info.data_dir), run.id)
    with closing(EvidencePage(folder.evidence)) as page:
        assert page.get(0, "pid") == run.ranks[0].pid
    fifo.open("w").close()
    assert experiment.wait() == "COMPLETED"
