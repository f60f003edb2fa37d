"""What is in the offline runs of W&B, read with W&B's own reader."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import AllocationState, FeedItem, State
from det_jupyter.contract.trial.context_dir.context_plan import plan_context
from det_jupyter.trackers.service import Unreachable
from tests.integration.trackers.recorded import Killed, Recorded, losses
from tests.unit.view.view_samples import CREATED_AT, allocation, trial

pytestmark = [
    pytest.mark.skipif(find_spec("wandb") is None, reason="no wandb"),
    pytest.mark.filterwarnings("default"),  # W&B's own
]


def send(folder: Path, source: Recorded) -> None:
    """Run a process from the stored position on, until there is nothing more or it is killed."""
    from det_jupyter.trackers.wandb_sender import WandbSender

    sender = WandbSender(folder=folder, project="p", entity=None, source=source)
    try:
        sender.send(source.open_work)
    except Killed:
        send(folder, source)


def records_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of a kind in the only run of trial 1."""
    (run,) = folder.glob("offline-run-*-k-1")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(run)]
    lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    records = [json.loads(line) for line in lines if line.startswith("{")]
    return [each[kind] for each in records if each["type"] == kind]


def steps_of(folder: Path) -> list[int]:
    return [each["item"]["_step"] for each in records_of(folder, "history")]


@pytest.fixture(autouse=True, scope="module")
def _service() -> Any:
    """End W&B's own process after the tests."""
    yield
    import wandb

    wandb.teardown()


def test_a_trial_is_a_run_with_its_metrics_parameters_code_and_end(tmp_path: Path) -> None:
    source = Recorded(losses(1, range(1, 4)))
    source.trial = trial(state=State.ERROR, allocation=None)
    send(tmp_path, source)
    (run,) = records_of(tmp_path, "run")
    assert (run["project"], run["display_name"], run["run_group"]) == (
        "p",
        "digits 1",
        "experiment 7",
    )
    config = run["config"]["update"]
    assert (config["lr"], config["global_batch_size"]) == (0.05, 64)
    rows = [each["item"] for each in records_of(tmp_path, "history")]
    assert [(row["_step"], row["_timestamp"], row["training/loss"]) for row in rows] == [
        (1, 1, 1.0), (2, 2, 0.5), (3, 3, 1 / 3),
    ]  # fmt: skip
    assert rows[0]["training/top 5%"] == "NaN"
    assert [row["_runtime"] for row in rows] == [step - CREATED_AT for step in (1, 2, 3)]
    (end,) = records_of(tmp_path, "exit")
    assert end["exit_code"] == 1
    (run_folder,) = tmp_path.glob("offline-run-*")
    assert (run_folder / "files" / "code" / "Cell_In_5_").read_text() == "print()\n"
    summary = [each["update"] for each in records_of(tmp_path, "summary")]
    assert any(each.get("det_jupyter/state") == "ERROR" for each in summary)
    assert any(each.get("training/loss") == 1 / 3 for each in summary)


def test_a_folder_in_a_context_does_not_block_the_next_submission(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    source = Recorded(losses(1, range(1, 4)))
    source.trial = trial(state=State.COMPLETED, allocation=None)
    send(tmp_path / "wandb", source)
    plan = plan_context(tmp_path)
    assert plan.problems == []
    assert not [each for each in plan.entries.values() if each.kind == "link"]


def test_a_run_stays_whole_and_single_when_the_process_is_killed(tmp_path: Path) -> None:
    source = Recorded(losses(1, range(1, 8)))
    source.kills = {7}
    leftover = tmp_path / ".writing-k-1" / "wandb"
    leftover.mkdir(parents=True)
    (leftover / "offline-run-half").mkdir()
    send(tmp_path, source)
    assert (source.kills, source.seq) == (set(), 7)
    assert steps_of(tmp_path) == list(range(1, 8))
    source.items = losses(1, range(1, 5)) + losses(8, range(5, 11))  # restarted after step 4
    send(tmp_path, source)
    assert steps_of(tmp_path) == list(range(1, 11))
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_trial_that_trains_is_written_at_times_and_at_its_end(tmp_path: Path) -> None:
    from det_jupyter.trackers.wandb_sender import WandbSender

    source = Recorded(losses(1, range(1, 4)))
    sender = WandbSender(folder=tmp_path, project="p", entity=None, source=source)
    sender.send(source.open_work)
    assert source.seq == 3
    source.items += losses(4, range(4, 6))
    sender.send(source.open_work)
    assert source.seq == 3
    source.trial = trial(state=State.COMPLETED, ended_at=CREATED_AT + 9, allocation=None)
    source.items.append(
        FeedItem(seq=6, at=1.0, kind="trial", experiment_id=7, trial_id=1, data={"id": 1})
    )
    sender.send(source.open_work)
    assert source.seq == 6
    assert source.asked == [0, 3, 5]  # what waits is read once
    assert steps_of(tmp_path) == [1, 2, 3, 4, 5]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    source = Recorded(losses(1, range(1, 2)))
    source.trial = trial(allocation=allocation(AllocationState.RUNNING))
    with pytest.raises(Unreachable, match="file cannot be written: Not a directory"):
        send(tmp_path / "file", source)


def test_labels_that_change_after_the_end_are_written(tmp_path: Path) -> None:
    source = Recorded(losses(1, range(1, 3)))
    source.trial = trial(state=State.COMPLETED, allocation=None)
    send(tmp_path, source)
    source.labels = ["late"]
    source.items.append(FeedItem(seq=3, at=1.0, kind="config", experiment_id=7, data={}))
    send(tmp_path, source)
    (run,) = records_of(tmp_path, "run")
    assert run["tags"] == ["late"]


def test_the_key_of_the_user_is_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "QzSecretzQ" * 4)
    send(tmp_path, Recorded(losses(1, range(1, 4))))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".wandb" for path in files)
    assert not [path for path in files if b"QzSecretzQ" in path.read_bytes()]
