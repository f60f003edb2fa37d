"""The Core API in scripts of an experiment: operations of a search, workers started by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import State
from det_jupyter.errors import RankFailed
from tests.e2e.test_scripts import printed, start

pytestmark = pytest.mark.e2e

SEARCH = """
import json
from det_jupyter import core
info = core.get_cluster_info()
with core.init(length=9) as context:
    step = saved = 0
    if info.latest_checkpoint:
        with context.checkpoint.restore_path(info.latest_checkpoint) as path:
            step = saved = json.loads((path / "step.json").read_text())
    for op in context.searcher.operations():
        print("from", step, "to", op.length)
        while step < op.length:
            step += 1
            op.report_progress(step)
        op.report_completed(info.hparams["x"] + 1 / step)
    if saved != step:
        with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
            (path / "step.json").write_text(json.dumps(step))
"""

WORKERS = """
import os, pathlib, subprocess, sys
from det_jupyter import core
info = core.get_cluster_info()
num = len(info.slot_ids)
if len(sys.argv) == 1:
    command = [sys.executable, __file__]
    workers = [subprocess.Popen([*command, str(rank)]) for rank in range(num)]
    sys.exit(max(worker.wait() for worker in workers))
rank = int(sys.argv[1])
distributed = core.DistributedContext(
    rank=rank, size=num, local_rank=rank, local_size=num, cross_rank=0, cross_size=1
)
with core.init(distributed=distributed) as context:
    folder = pathlib.Path(f"of-{rank}")
    folder.mkdir()
    (folder / f"part-{rank}").write_text("x")
    uuid = context.checkpoint.upload(folder, {"steps_completed": 4, f"by-{rank}": 1}, shard=True)
    context.checkpoint.download(uuid, "back")
    print(f"{rank} {sorted(os.listdir('back'))}\\n", end="")  # one write
    assert "torch" not in sys.modules, "it takes seconds to load"
    if rank == 1:
        raise ValueError("rank 1 is broken")
    context.preempt.should_preempt()
"""


def test_a_search_promotes_scripts_by_their_operations(client: Client, tmp_path: Path) -> None:
    experiment = start(
        client,
        tmp_path,
        "python3 search.py",
        {"search.py": SEARCH},
        searcher={
            "name": "async_halving",
            "metric": "loss",
            "max_length": {"batches": 9},
            "max_trials": 4,
            "num_rungs": 2,
            "divisor": 3,
        },
        hyperparameters={"x": {"type": "double", "minval": 0, "maxval": 1}},
    )
    assert experiment.wait() is State.COMPLETED
    trials = experiment.view.trials
    assert [trial.state for trial in trials] == [State.COMPLETED] * 4
    full = [trial for trial in trials if trial.steps_completed == 9]
    assert {trial.steps_completed for trial in trials} == {3, 9}
    assert min(trials, key=lambda trial: trial.hparams["x"]) in full
    lines = [line.text for trial in experiment.trials for line in trial.logs()]
    assert lines.count("from 0 to 3") == 4
    assert lines.count("from 3 to 9") == len(full)


def test_workers_of_a_script_store_one_checkpoint_and_the_first_that_fails_is_told(
    client: Client, tmp_path: Path
) -> None:
    experiment = start(client, tmp_path, "python3 workers.py", {"workers.py": WORKERS}, slots=2)
    with pytest.raises(RankFailed) as caught:
        experiment.wait()
    assert "ValueError: rank 1 is broken" in str(caught.value)
    assert 'File "workers.py", line 23' in str(caught.value)
    parts = "['metadata.json', 'part-0', 'part-1']"
    found = [line for line in printed(experiment) if parts in line]
    assert sorted(found) == [f"0 {parts}", f"1 {parts}"]
    (checkpoint,) = experiment.checkpoints()
    assert checkpoint.steps_completed == 4


TWICE = """
import pathlib, sys, time
from det_jupyter import core
with core.init() as context:
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
    for step, values in ((4, [0.5]), (8, [0.25, 0.75]), (4, [0.125])):
        for value in values:
            context.train.report_validation_metrics(step, {"loss": value})
            context.train.report_training_metrics(step, {"gain": -value})
            time.sleep(0.01)
        if step == 8:
            with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                (path / "step").touch()
            context.train.report_validation_metrics(step, {"loss": 1.0})
"""


def test_of_two_values_of_a_step_the_last_is_in_the_curve_and_both_are_in_the_data(
    client: Client, tmp_path: Path
) -> None:
    is_open = tmp_path / "is open"
    entrypoint = ["python3", "train.py", str(is_open)]
    experiment = start(client, tmp_path, entrypoint, {"train.py": TWICE})
    document = client.document("experiment", experiment_id=experiment.id)
    document.fetch()  # its curves grow from now on
    is_open.touch()
    assert experiment.wait() == State.COMPLETED
    shown = {
        chart["title"]: (series["steps"], series["values"])
        for chart in document.fetch()["charts"]
        for series in chart["series"]
    }
    returned = {each.name: (each.steps, each.values) for each in experiment.curves()}
    for curves in (shown, returned):
        assert curves == {"loss": ([4, 8], [0.125, 1.0]), "gain": ([4, 8], [-0.125, -0.75])}
    table = experiment.metrics()
    losses = table[table.metric == "loss"]
    assert list(losses.steps) == [4, 4, 8, 8, 8]
    assert list(losses.value) == [0.5, 0.125, 0.25, 0.75, 1.0]
    (checkpoint,) = experiment.checkpoints()
    assert checkpoint.searcher_metric == 0.75  # what it was when that was saved
