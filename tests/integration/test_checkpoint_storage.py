"""Checkpoints on a real disk: complete or not there, whatever kills their writer."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch import load_trial_from_checkpoint_path
from det_jupyter.storage.directory import DirectoryStorage
from tests.integration.rank_support import Gang, Lab, Zygote, opened_lab
from tests.integration.stored import stored
from tests.integration.test_training_resume import RESTLESS, assert_same_weights, config

WRITER = """
import sys, time
from pathlib import Path
from det_jupyter.storage.directory import DirectoryStorage
draft = DirectoryStorage(Path(sys.argv[1])).begin("second")
(draft.path / "weights").write_bytes(b"half")
print("writing", flush=True)
time.sleep(60)
"""


def store(storage: DirectoryStorage, uuid: str, content: str) -> None:
    with stored(storage, uuid) as path:
        (path / "weights").write_text(content)


def weights_of(storage: DirectoryStorage, uuid: str) -> str:
    with storage.reading(uuid) as path:
        return (path / "weights").read_text()


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def test_a_writer_that_is_killed_leaves_the_older_checkpoint_and_no_half_one(
    tmp_path: Path,
) -> None:
    storage = DirectoryStorage(tmp_path)
    store(storage, "first", "whole")
    argv = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        # Another writer must not take work in progress for a leftover.
        store(storage, "third", "whole")
        assert names(tmp_path) == [".part-second", "first", "third"]
        writer.kill()
    assert weights_of(storage, "first") == "whole"
    with pytest.raises(CheckpointError, match="second"):
        weights_of(storage, "second")
    store(storage, "fourth", "whole")
    assert names(tmp_path) == ["first", "fourth", "third"]


FORKING_WRITER = """
import os, sys, time
from pathlib import Path
from det_jupyter.storage.directory import DirectoryStorage
draft = DirectoryStorage(Path(sys.argv[1])).begin("second")
if os.fork() == 0:
    print(os.getpid(), flush=True)  # by then it has closed what it must not keep
time.sleep(60)
"""


def test_a_worker_forked_while_a_checkpoint_is_written_does_not_keep_its_lock(
    tmp_path: Path,
) -> None:
    storage = DirectoryStorage(tmp_path)
    argv = [sys.executable, "-c", FORKING_WRITER, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        worker = int(writer.stdout.readline())
        try:
            store(storage, "first", "whole")
            assert names(tmp_path) == [".part-second", "first"]  # the writer lives
            writer.kill()
            writer.wait()
            store(storage, "third", "whole")
            assert names(tmp_path) == ["first", "third"]
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_draft_is_the_writers_not_a_forked_processs(tmp_path: Path) -> None:
    draft = DirectoryStorage(tmp_path).begin("first")
    (draft.path / "weights").write_text("whole")
    if (worker := os.fork()) == 0:
        draft.discard()
        os._exit(0)
    assert os.waitpid(worker, 0) == (worker, 0)
    draft.commit()
    assert names(tmp_path) == ["first"]


def test_a_block_that_raises_leaves_nothing(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)

    def fill() -> None:
        with stored(storage, "first") as path:
            (path / "weights").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fill()
    assert names(tmp_path) == []


def test_a_file_system_without_locks_holds_checkpoints_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / ".part-another").mkdir()
    storage = DirectoryStorage(tmp_path)
    store(storage, "first", "whole")
    assert names(tmp_path) == [".part-another", "first"]  # that may be someone's work
    assert weights_of(storage, "first") == "whole"


def test_a_scratch_folder_that_stays_locked_is_told(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    with stored(storage, "first"), pytest.raises(CheckpointError, match="holds its lock"):
        store(storage, "first", "whole")


def test_a_draft_that_is_committed_stays_and_one_that_is_discarded_goes(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    kept, dropped = storage.begin("kept"), storage.begin("dropped")
    for draft in (kept, dropped):
        (draft.path / "weights").write_text("whole")
        draft.sync()
    kept.commit()
    kept.discard()  # too late: it is a checkpoint
    dropped.discard()
    dropped.discard()
    assert names(tmp_path) == ["kept"]
    assert weights_of(storage, "kept") == "whole"


def test_a_checkpoint_is_begun_in_one_place_and_committed_in_another(tmp_path: Path) -> None:
    context = core.init(checkpoint_storage=tmp_path / "checkpoints")
    draft = context.checkpoint.begin({"steps_completed": 5})
    assert not (tmp_path / "checkpoints").exists()
    draft.discard()  # nothing is there yet
    with pytest.raises(RuntimeError, match="has no folder yet"):
        draft.commit()
    (draft.open() / "weights").write_text("12345")
    draft.sync()
    assert context.sink.records == []  # type: ignore[attr-defined]  # a RecordList off the cluster
    draft.commit()
    (record,) = context.sink.records  # type: ignore[attr-defined]
    assert (record.uuid, record.steps_completed) == (draft.uuid, 5)
    assert names(tmp_path / "checkpoints") == [draft.uuid]


def test_a_checkpoint_that_cannot_be_recorded_is_removed_again(tmp_path: Path) -> None:
    class Full(core.RecordList):
        def write(self, record: object) -> None:
            raise OSError(28, "No space left on device")

    storage, alone = DirectoryStorage(tmp_path / "checkpoints"), core.DistributedContext()
    checkpoint = core.CheckpointContext(storage, Full(), alone, {})
    with (
        pytest.raises(OSError, match="No space left"),
        checkpoint.store_path({"steps_completed": 5}) as (path, _),
    ):
        (path / "weights").write_text("12345")
    assert names(tmp_path / "checkpoints") == []


def test_core_checkpoints_carry_their_metadata(tmp_path: Path) -> None:
    context = core.init(checkpoint_storage=tmp_path / "checkpoints")
    with context.checkpoint.store_path({"steps_completed": 5, "note": "hello"}) as (path, uuid):
        (path / "weights").write_text("12345")
    (record,) = context.sink.records  # type: ignore[attr-defined]  # a RecordList off the cluster
    assert isinstance(record, CheckpointSaved)
    assert (record.uuid, record.steps_completed) == (uuid, 5)
    assert context.checkpoint.get_metadata(uuid)["note"] == "hello"
    with context.checkpoint.restore_path(uuid) as path:
        assert (path / "weights").read_text() == "12345"
        assert record.size_bytes == sum(file.stat().st_size for file in path.iterdir())
    other = context.checkpoint.upload(record.path, {"steps_completed": 6})
    assert context.checkpoint.get_metadata(other)["steps_completed"] == 6
    context.checkpoint.delete(uuid)
    with pytest.raises(CheckpointError):
        context.checkpoint.get_metadata(uuid)


def test_only_a_checkpoint_that_was_there_is_reported_as_deleted(tmp_path: Path) -> None:
    context = core.init(checkpoint_storage=tmp_path / "own")
    other = core.init(checkpoint_storage=tmp_path / "other")
    with other.checkpoint.store_path({"steps_completed": 5}) as (path, uuid):
        (path / "weights").touch()
    for each in (context, other, other):
        each.checkpoint.delete(uuid)
    assert context.sink.records == []  # type: ignore[attr-defined]  # a RecordList off the cluster
    records = other.sink.records  # type: ignore[attr-defined]
    assert [record.kind for record in records] == ["checkpoint", "checkpoint_deleted"]


@pytest.mark.parametrize("call", ["restore_path", "download", "get_metadata", "delete"])
def test_what_is_no_uuid_is_refused_with_what_to_do(tmp_path: Path, call: str) -> None:
    context = core.init(checkpoint_storage=tmp_path / "checkpoints")
    arguments = [tmp_path / "copy"] if call == "download" else []

    def use(uuid: Any) -> None:
        outcome = getattr(context.checkpoint, call)(uuid, *arguments)
        with outcome:  # of restore_path, which looks when it is entered
            raise AssertionError("it was taken")

    def try_with(uuid: Any) -> str:
        with pytest.raises(CheckpointError) as caught:
            use(uuid)
        return str(caught.value)

    assert try_with(None) == (
        f"checkpoint.{call}: got None, expected the uuid of a checkpoint; info.latest_checkpoint "
        "is None where training begins: `if uuid is not None: ...`"
    )
    assert try_with(7) == (
        f"checkpoint.{call}: got 7, expected the uuid of a checkpoint, a string"
    )


def test_metadata_without_a_step_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    context = core.init(checkpoint_storage=tmp_path / "checkpoints")
    with (
        pytest.raises(ValueError, match="steps_completed"),
        context.checkpoint.store_path({"steps": 5}),
    ):
        raise AssertionError("the block must not run")
    assert not (tmp_path / "checkpoints").exists()


def test_a_trial_killed_while_it_saves_goes_on_from_the_checkpoint_before(lab: Lab) -> None:
    # The write of the second checkpoint never ends.
    source = (
        RESTLESS
        + """
    def build_callbacks(self):
        from det_jupyter.pytorch import PyTorchCallback

        class Stuck(PyTorchCallback):
            def on_checkpoint_write_end(self, checkpoint_dir):
                self.saved = getattr(self, "saved", 0) + 1
                if self.saved == 2:
                    (checkpoint_dir.parents[1] / "stuck").touch()
                    time.sleep(60)

        return {"stuck": Stuck()}
"""
    )
    periodic = config(min_checkpoint_period={"batches": 10}, checkpoint_policy="none")
    undisturbed = lab.start(RESTLESS, periodic)
    undisturbed.ended()
    gang = lab.start(source, periodic)
    gang.wait_until((lab.data_dir / "stuck").exists, "the second checkpoint is being written")
    os.kill(gang.pids[0], signal.SIGKILL)
    gang.wait()
    assert [c.steps_completed for c in gang.of(CheckpointSaved)] == [10]
    resumed = lab.start(RESTLESS, periodic, checkpoint=gang.last_checkpoint())
    resumed.ended()
    assert_same_weights(undisturbed, resumed)
    assert not list((lab.data_dir / "checkpoints").glob(".part-*"))


@pytest.fixture(scope="module")
def trained(
    zygote: Zygote, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lab, Gang]]:
    """Return a gang that has trained to its end."""
    with opened_lab(tmp_path_factory.mktemp("trained"), zygote) as lab:
        gang = lab.start(RESTLESS, config())
        gang.ended()
        yield lab, gang


def test_a_checkpoint_holds_what_it_takes_and_nothing_else(trained: tuple[Lab, Gang]) -> None:
    lab, gang = trained
    saved = gang.of(CheckpointSaved)[-1]
    path = Path(saved.path)
    assert names(path) == ["code", "load_data.json", "metadata.json", "state_dict.pt"]
    carried = [file.name for file in (path / "code").rglob("*") if file.is_file()]
    assert set(carried) == {gang.plan.capsule.payload, gang.plan.capsule.sources}
    assert path.parent == lab.data_dir / "checkpoints"
    metadata = json.loads((path / "metadata.json").read_text())
    assert metadata["steps_completed"] == 50
    assert (metadata["experiment_id"], metadata["trial_id"]) == (1, 1)
    state = torch.load(path / "state_dict.pt", weights_only=True)
    assert not any(name.startswith("module.") for name in state["models"][0])
    assert len(state["rng_states"]) == 2
    assert not torch.equal(state["rng_states"][0]["torch"], state["rng_states"][1]["torch"])


def test_checkpoints_go_where_the_configuration_says(lab: Lab, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    short = {"name": "single", "metric": "error", "max_length": {"batches": 2}}
    gang = lab.start(
        RESTLESS, config(searcher=short, checkpoint_storage={"host_path": str(elsewhere)})
    )
    gang.ended()
    assert Path(gang.last_checkpoint().path).parent == elsewhere


def test_a_checkpoint_gives_back_the_trained_trial(trained: tuple[Lab, Gang]) -> None:
    lab, gang = trained
    trial = load_trial_from_checkpoint_path(gang.last_checkpoint().path, data_dir=lab.data_dir)
    assert type(trial).__name__ == "RestlessTrial"
    for name, tensor in gang.weights().items():
        assert torch.equal(trial.model.state_dict()[name], tensor)  # type: ignore[attr-defined]
    assert not trial.model.training  # type: ignore[attr-defined]
    batch = next(iter(trial.build_validation_data_loader()))
    with torch.no_grad():
        assert set(trial.evaluate_batch(batch, 0)) == {"error"}


def test_a_checkpoint_of_another_model_is_refused_with_the_reason(
    trained: tuple[Lab, Gang],
) -> None:
    lab, first = trained
    wider = RESTLESS.replace("32, 400", "32, 64").replace("1d(400", "1d(64")
    wider = wider.replace("400, 1)", "64, 1)")
    second = lab.start(
        wider,
        config(searcher={"name": "single", "metric": "error", "max_length": {"batches": 60}}),
        checkpoint=first.last_checkpoint(),
    )
    second.wait()
    failure = second.failures()[0]
    assert "model 0 is not the one that was saved" in failure.error


def test_a_damaged_checkpoint_is_named(trained: tuple[Lab, Gang], tmp_path: Path) -> None:
    lab, gang = trained
    path = shutil.copytree(gang.last_checkpoint().path, tmp_path / "damaged")
    (path / "state_dict.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(CheckpointError, match=r"state_dict\.pt cannot be read"):
        load_trial_from_checkpoint_path(path, data_dir=lab.data_dir)
    (path / "load_data.json").unlink()
    with pytest.raises(CheckpointError, match="is not a checkpoint of a trial"):
        load_trial_from_checkpoint_path(path, data_dir=lab.data_dir)
