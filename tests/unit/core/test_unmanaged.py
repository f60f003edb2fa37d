"""Runs that are started by hand, written offline: the files that `det e sync` takes in."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.client.imports import unmanaged as imports
from det_jupyter.client.imports.unmanaged import take_in
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import StartUnmanaged
from det_jupyter.contract.run.journal import (
    CheckpointSaved,
    MetricsReported,
    RankFailure,
    RankStarted,
    Record,
    RunEnded,
    StepTimes,
)
from det_jupyter.contract.run.unmanaged import (
    Announcement,
    offline_runs,
    request_file,
    whole_records,
)
from det_jupyter.core import profiler
from det_jupyter.core.journal import Journal
from det_jupyter.core.printed import PrintedCopy
from det_jupyter.core.unmanaged import OFFLINE_VARIABLE
from det_jupyter.errors import ConfigError, Conflict

# Several runs, and trainings between them, in one process and in its forks.
SEVERAL_RUNS = """
import os, sys, tempfile
import torch
from torch.utils.tensorboard import SummaryWriter
from det_jupyter import core
from det_jupyter.core import event_reading

event_reading._HELD_S = 0
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter(tempfile.mkdtemp())

def train():
    for _ in range(4):
        model(torch.ones(2)).sum().backward()
        optimizer.step()

def in_fork(function):
    if (pid := os.fork()) == 0:
        try:
            function()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0

def child():
    with core.init(name="child"):
        train()
        SummaryWriter(tempfile.mkdtemp()).add_scalar("loss", 0.25, 1)

core.init(name="left")
train()
with core.init(name="first") as context:
    train()
    writer.add_scalar("loss", 0.5, 1)
writer.add_scalar("loss", 2.5, 2)
with context.profiler.driven():  # a trainer that was given this context
    pass
train()
with core.init(name="parent"):
    train()
    in_fork(train)
in_fork(child)
writer.add_scalar("loss", 4.5, 3)
train()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DET_JUPYTER_HOME", str(tmp_path))
    monkeypatch.setenv(OFFLINE_VARIABLE, "1")
    return tmp_path / "data"


def folders(home: Path) -> list[Path]:
    """Return the folders of the runs, oldest first."""
    return sorted(offline_runs(home).iterdir(), key=lambda each: each.stat().st_ctime)


def records(folder: Path) -> list[Record]:
    return whole_records(RunDir(folder).journal(0))


def test_a_run_whose_block_was_never_entered_is_over_when_its_name_is_used_again(
    home: Path,
) -> None:
    write = sys.stdout.write
    core.init(name="a")
    with core.init(name="a") as context:
        context.train.report_training_metrics(1, {"loss": 0.5})
    assert sys.stdout.write == write
    ends = [records(folder)[-1] for folder in folders(home)]
    assert [one.steps_completed for one in ends if isinstance(one, RunEnded)] == [0, 1]


def test_a_run_that_begins_ends_one_whose_block_was_never_entered(home: Path) -> None:
    write = sys.stdout.write
    core.init(name="left")
    with core.init(name="other"):
        assert isinstance(records(folders(home)[0])[-1], RunEnded)
    assert sys.stdout.write == write


def test_after_a_run_its_profiler_records_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler, "PERIOD_NS", 0)
    with core.init(name="a") as context:
        context.profiler.count("tokens")
    (counted, ended) = records(*folders(home))[-2:]
    assert isinstance(counted, StepTimes)
    assert isinstance(ended, RunEnded)
    with context.profiler.section("augment"):
        context.profiler.count("tokens")
    context.profiler.on()
    context.profiler.step()
    context.profiler.off()
    assert records(*folders(home))[-1] == ended


def test_runs_one_after_the_other_have_their_own_timings_and_events(
    home: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    script = tmp_path / "train.py"
    script.write_text(SEVERAL_RUNS)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = {}
    for folder in folders(home):
        of_run = records(folder)
        batches = sum(each.batches for each in of_run if isinstance(each, StepTimes))
        losses = [each.metrics["loss"] for each in of_run if isinstance(each, MetricsReported)]
        found[folder.name.partition("-")[0]] = (batches, losses)
    # The first step of each only begins the timing.
    assert found == {
        "left": (3, []), "first": (3, [0.5]), "parent": (3, []), "child": (3, [0.25]),
    }  # fmt: skip


def test_a_run_writes_what_it_reports_and_prints(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write = sys.stdout.write
    with core.init(name="base line/1", hparams={"lr": 0.1}, labels=["a"]) as context:
        assert core.get_cluster_info() is context.info
        assert context.info is not None
        assert (context.info.hparams, context.info.latest_checkpoint) == ({"lr": 0.1}, None)
        context.train.report_training_metrics(5, {"loss": 0.5})
        print("in the block")
    print("after it")
    assert core.get_cluster_info() is None
    assert sys.stdout.write == write
    (folder,) = folders(home)
    assert folder.name.startswith("base-line-1-")
    started, *between, ended = records(folder)
    assert isinstance(started, RankStarted)
    assert [each.metrics for each in between if isinstance(each, MetricsReported)] == [
        {"loss": 0.5}
    ]
    assert isinstance(ended, RunEnded)
    assert (ended.reason, ended.steps_completed) == ("stopped", 5)
    assert RunDir(folder).output(0).read_text() == "in the block\n"
    request = StartUnmanaged.model_validate_json(request_file(folder).read_bytes())
    assert (request.config["name"], request.config["labels"]) == (
        "base line/1", ["unmanaged", "a"],
    )  # fmt: skip
    printed = capsys.readouterr()
    assert printed.out == "in the block\nafter it\n"
    assert f"sync {folder}` takes it in" in printed.err


def test_what_others_have_put_before_a_stream_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream:
        def write(self, text: str) -> object:
            raise AssertionError

        def flush(self) -> None: ...

    seen: list[str] = []
    stream = Stream()
    monkeypatch.setattr(sys, "stdout", stream)
    ours = seen.append  # as IPython's tee does
    monkeypatch.setattr(stream, "write", ours)
    copy = PrintedCopy(tmp_path / "output")
    print("both")
    copy.close()
    print("one")
    assert stream.write == ours
    assert "".join(seen) == "both\none\n"
    assert (tmp_path / "output").read_text() == "both\n"


def test_an_error_is_kept_and_goes_on_to_the_caller(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), core.init(name="bad"):
        1 / 0  # noqa: B018 - raises
    failure = records(*folders(home))[-1]
    assert isinstance(failure, RankFailure)
    assert failure.error == "ZeroDivisionError: division by zero"
    assert "in test_an_error_is_kept" in failure.where


@pytest.mark.parametrize(("code", "kind"), [(0, RunEnded), (None, RunEnded), (3, RankFailure)])
def test_an_exit_with_status_0_is_no_failure(home: Path, code: Any, kind: type) -> None:
    with pytest.raises(SystemExit), core.init(name="exits"):
        sys.exit(code)
    assert isinstance(records(*folders(home))[-1], kind)


def test_a_name_goes_on_from_the_latest_checkpoint(home: Path) -> None:
    with core.init(name="long") as context:
        for step in (10, 20):
            with context.checkpoint.store_path({"steps_completed": step}) as (folder, _):
                (folder / "state").write_text(str(step))
    saved = [each for each in records(*folders(home)) if isinstance(each, CheckpointSaved)]
    with core.init(name="long") as context:
        info = context.info
        assert info is not None
        assert (info.latest_checkpoint, info.plan.steps_completed) == (saved[-1].uuid, 20)
        with context.checkpoint.restore_path(saved[-1].uuid) as folder:
            assert (folder / "state").read_text() == "20"
    for other in ({"name": "other"}, {"name": "long", "resume": False}):
        with core.init(**other) as context:
            assert context.info is not None
            assert context.info.latest_checkpoint is None


def test_a_checkpoint_that_was_deleted_since_is_passed_over(home: Path, tmp_path: Path) -> None:
    storage = os.path.relpath(tmp_path / "kept")  # as everywhere, a path may be relative
    for step in (10, 20):
        with core.init(name="long", checkpoint_storage=storage) as context:
            with context.checkpoint.store_path({"steps_completed": step}) as (folder, uuid):
                (folder / "state").write_text(str(step))
            if step == 10:
                first = uuid
    shutil.rmtree(tmp_path / "kept" / uuid)
    with core.init(name="long", checkpoint_storage=storage) as context:
        assert context.info is not None
        assert context.info.latest_checkpoint == first


def test_a_run_leaves_no_file_open_and_is_not_entered_again(home: Path) -> None:
    for number in range(2):
        with core.init(name="loop") as context:
            pass
        if number == 0:
            num_open = len(os.listdir("/dev/fd"))
    assert len(os.listdir("/dev/fd")) == num_open
    with pytest.raises(RuntimeError, match=r"run of this context is over.*call `core\.init`"):
        context.__enter__()


def test_a_full_disk_at_the_end_is_an_error_after_which_nothing_is_held(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(journal: Journal, record: Record) -> None:
        raise OSError(errno.ENOSPC, "no room")

    before = sys.stdout.write
    context = core.init(name="full")
    context.profiler.count("tokens")
    with pytest.raises(OSError, match="no room"), context:
        monkeypatch.setattr(Journal, "write", write)
    assert sys.stdout.write == before
    assert context.is_over()
    assert core.get_cluster_info() is None


def test_the_last_line_of_a_killed_process_is_left_out(home: Path) -> None:
    with core.init(name="cut") as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    journal = RunDir(*folders(home)).journal(0)
    journal.write_bytes(journal.read_bytes() + b'{"kind":"metr')
    assert isinstance(whole_records(journal)[-1], RunEnded)


def test_all_wrong_arguments_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        core.init(name="", hparams={"a": object()}, metric="")
    assert [problem.path for problem in caught.value.problems] == [
        "core.init: hparams.a", "core.init: name", "core.init: metric",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"hparams": {"a": 1}}, "name: it is missing; hparams, labels and offline need one"),
        ({"name": "a", "labels": "b"}, "labels: got 'b', expected a list of texts"),
        ({"name": "a", "labels": 3}, "labels: got 3, expected a list of texts"),
        ({"name": "a", "labels": [["b"]]}, "labels[1]: got ['b'], expected text"),
        ({"name": "a", "resume": "no"}, "resume: got 'no', expected True or False"),
        ({"name": "a", "checkpoint_storage": 3}, "checkpoint_storage: got 3, expected a folder"),
        ({"name": "a", "hparams": 3}, "hparams: got 3, expected a dict"),
        ({"name": "a", "sink": core.RecordList()}, "got name and sink"),
        ({"name": "a", "checkpoint_storage": "s3://a/b"}, "'s3://a/b', expected a folder"),
    ],
)
def test_a_wrong_argument_says_what_is_expected(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        core.init(**given)
    assert text in str(caught.value)


def test_only_folders_of_runs_that_are_over_are_taken_in(home: Path, tmp_path: Path) -> None:
    with core.init(name="mine"):
        pass
    with pytest.raises(Conflict, match=f"process {os.getpid()} still writes there"):
        take_in(str(offline_runs(home)))
    with pytest.raises(ConfigError, match=r"there is no request\.json"):
        take_in(str(tmp_path))
    request_file(*folders(home)).write_text("{}")
    with pytest.raises(ConfigError, match=r"request\.json: damaged, or of another version"):
        take_in(str(*folders(home)))


def test_a_folder_that_is_refused_keeps_no_other_from_being_taken_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "cut", "good"):
        with core.init(name=name):
            pass
    monkeypatch.setattr(imports, "_process", lambda request: ProcessIdentity(1, "", "elsewhere"))
    given = {
        "bad": Announcement(result="refused", text="another metric"),
        "cut": Announcement(result="stored", experiment_id=7, text="it was silent"),
        "good": Announcement(result="stored", experiment_id=8),
    }

    def run(command: list[str], *, cwd: Path, **options: Any) -> Any:
        assert cwd == home  # in the user's folder, a queue.py would be imported
        name = Path(command[-1]).name.partition("-")[0]
        return SimpleNamespace(stdout=given[name].model_dump_json())

    monkeypatch.setattr(subprocess, "run", run)
    taken = {each.folder.name[:3]: each[1:] for each in take_in(str(offline_runs(home)))}
    assert taken == {"bad": (None, "another metric"), "cut": (7, "it was silent"), "goo": (8, "")}
