"""Checkpoints that are found by patterns, copied, moved, adopted, and cleared up."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, MoveCheckpoints
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.errors import BucketProblem, Conflict, DetError, NotFound
from det_jupyter.master.background import deleting, garbage
from det_jupyter.master.background.deleting import (
    Removed,
    _carry_out,
    delete,
    remove_files,
)
from det_jupyter.master.machine.model.commands import DeleteCheckpoints, Deletion
from det_jupyter.master.machine.rules.retention import pending_deletions
from det_jupyter.storage import open_storage
from det_jupyter.storage.buckets.storage import BucketStorage
from det_jupyter.storage.contract import CheckpointFiles
from det_jupyter.storage.directory import DirectoryStorage, remove_tree
from tests.bucket_server import BucketServer
from tests.integration.bucket_support import bucket, server
from tests.integration.in_process import Det, client, det, routes
from tests.integration.routes_support import Routes

__all__ = ["bucket", "client", "det", "routes", "server"]  # fixtures


def carry_out(routes: Routes) -> None:
    """Carry out the deletions that are due."""

    async def run() -> None:
        service = routes.service
        task = asyncio.create_task(delete(service))
        while pending_deletions(service.machine.state):
            await asyncio.sleep(0.01)
        task.cancel()

    routes.run(run())


def own_folder() -> Path:
    return paths.data_dir() / "checkpoints"


def test_patterns_name_checkpoints_of_all_experiments(det: Det, tmp_path: Path) -> None:
    assert det("c", "list", "1", "-q").split() == ["good", "bad"]
    assert det("c", "list", "g*", "-q") == "good"
    assert det("c", "list", "1/*/?ad", "--csv").splitlines()[1].startswith("1,1,100,COMPLETED")
    assert det("c", "list", "2/*") == "No checkpoint matches 2/*."
    assert det("c", "describe", "1/*").count("Checkpoint ID") == 2
    assert [each["uuid"] for each in json.loads(det("c", "describe", "*", "--json"))] == [
        "good", "bad",
    ]  # fmt: skip
    det("c", "download", "1/1/*", "-o", str(tmp_path / "copies"))
    assert (tmp_path / "copies" / "bad" / "state_dict.pt").read_bytes() == b"weights"
    with pytest.raises(NotFound, match=r"no checkpoint matches x\*; there is no checkpoint nono"):
        det("c", "rm", "x*", "nono", "--yes")


def test_patterns_of_deletions_leave_out_what_is_deleted(det: Det, routes: Routes) -> None:
    assert det("c", "rm", "b*", "--yes") == "Deleting 1 checkpoint (1 B)."
    carry_out(routes)
    assert det("c", "rm", "*", "--yes") == "Deleting 1 checkpoint (1 B)."
    carry_out(routes)
    with pytest.raises(NotFound, match=r"no checkpoint matches \*; 2 checkpoints of it deleted"):
        det("c", "rm", "*", "--yes")


def test_a_copy_is_made_once_and_is_that_of_a_whole_checkpoint(det: Det, tmp_path: Path) -> None:
    target = tmp_path / "there"
    said = det("c", "copy", "good", "--to", str(target))
    assert said == f"Copied checkpoint good (1 B) to {target}/good"
    assert det("c", "cp", "good", "--to", str(target)) == (
        f"There already: checkpoint good {target}/good"
    )
    (target / "good" / "state_dict.pt").write_bytes(b"cut")
    with pytest.raises(DetError, match=r"Copied .* bad(.|\n)*has other files of this name"):
        det("c", "copy", "*", "--to", str(target))


def test_a_moved_checkpoint_is_read_where_it_is_now_also_after_a_restart(
    det: Det, client: Client, routes: Routes, tmp_path: Path
) -> None:
    target = tmp_path / "there"
    said = det("c", "move", "good", "--to", str(target))
    assert said == f"Moved checkpoint good (1 B) to {target}/good"
    carry_out(routes)
    assert [path.name for path in own_folder().iterdir()] == ["bad"]
    best = Experiment(client, 1).best_checkpoint()
    assert (best.path, best.view.state) == (target / "good", "COMPLETED")
    assert best.files.keys() == {"metadata.json", "state_dict.pt"}
    det("c", "mv", "good", "--to", str(own_folder()))
    carry_out(routes)
    assert list(target.iterdir()) == []
    det("c", "rm", "good", "--yes")
    carry_out(routes)
    assert [path.name for path in own_folder().iterdir()] == ["bad"]


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_a_move_has_left_on_a_drive_is_listed_and_deleted_or_forgotten(
    det: Det, routes: Routes, tmp_path: Path, *, is_gone: bool
) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    det("c", "move", "good", "--to", str(first))
    carry_out(routes)
    det("c", "move", "good", "--to", str(second))
    if is_gone:
        first.rename(tmp_path / "unmounted")
    assert f"Still At           {first}/good" in det("c", "describe", "good").splitlines()
    with pytest.raises(DetError, match=r"still to be deleted at .*first/good; wait until"):
        det("c", "move", "good", "--to", str(third))
    dry = json.loads(det("c", "gc", "--dry-run", "--json"))
    assert [(each["Why"], each["Path"]) for each in dry] == [("moved", f"{first}/good")]
    done = det("c", "gc", "--yes").splitlines()
    assert done[0] == f"Deleted {'0 items (0' if is_gone else '1 item (1'} B)."
    if is_gone:
        assert done[1].startswith("Not cleared: cannot find the storage folder")
        assert done[1].endswith(f"{first}/good is forgotten: delete it by hand if it is there")
    assert (first / "good").exists() is False
    det("c", "move", "good", "--to", str(third))
    carry_out(routes)
    assert det("c", "gc") == "There is nothing to delete."
    assert str(first) not in det("c", "describe", "good")


def test_what_a_move_has_left_is_kept_in_mind_while_it_may_be_the_only_whole_copy(
    det: Det, routes: Routes, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    det("c", "move", "good", "--to", str(first))
    carry_out(routes)
    det("c", "move", "good", "--to", str(second))
    (second / "good" / "state_dict.pt").write_bytes(b"cut")
    done = det("c", "gc", "--yes").splitlines()
    assert done[0] == "Deleted 0 items (0 B)."
    assert f"Not cleared: left {first}/good alone: checkpoint good: " in done[1]
    assert "forgotten" not in done[1]
    assert (first / "good" / "state_dict.pt").read_bytes() == b"weights"
    assert routes.service.machine.state.checkpoints["good"].former == f"{first}/good"


@pytest.mark.parametrize("is_copied", [True, False])
def test_what_a_move_has_left_in_a_bucket_that_is_away_is_forgotten_if_its_copy_is_there(
    det: Det, routes: Routes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_copied: bool
) -> None:
    def find_copy_problem(path: str, copy: str) -> str:
        raise BucketProblem("no answer", "away")

    det("c", "move", "good", "--to", str(tmp_path / "first"))
    if not is_copied:
        remove_tree(tmp_path / "first" / "good")
    monkeypatch.setattr(deleting, "find_copy_problem", find_copy_problem)
    said = "is forgotten: delete it by hand" if is_copied else "is kept until its copy is whole"
    assert said in det("c", "gc", "--yes")
    assert (routes.service.machine.state.checkpoints["good"].former == "") is is_copied
    assert (own_folder() / "good").is_dir()


def test_what_a_move_has_left_is_forgotten_if_files_of_its_copy_were_deleted(
    det: Det, routes: Routes, tmp_path: Path
) -> None:
    (own_folder() / "good" / "optimizer.pt").touch()
    deletions = routes.service.deletions
    det("c", "move", "good", "--to", str(tmp_path / "first"))
    former = deletions.get_nowait()  # its drive is away
    assert isinstance(former, DeleteCheckpoints)
    assert former.is_former
    det("c", "rm", "good", "--glob", "optimizer.pt", "--yes")
    routes.run(_carry_out(routes.service, deletions.get_nowait()))
    assert "is forgotten: delete it by hand" in det("c", "gc", "--yes")


def test_what_was_left_by_a_move_and_is_gone_meanwhile_is_not_cleared_twice(
    det: Det, routes: Routes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    for uuid in ("good", "bad"):
        det("c", "move", uuid, "--to", str(first))
    carry_out(routes)
    for uuid in ("good", "bad"):
        det("c", "move", uuid, "--to", str(tmp_path / "second"))
    checkpoints = routes.service.machine.state.checkpoints

    def remove(command: Deletion, folder: Path) -> Removed:
        for each in checkpoints.values():  # the background task was faster
            each.former = ""
        return remove_files(command, folder)

    monkeypatch.setattr(garbage, "remove_files", remove)
    assert len(det("c", "gc", "--yes").splitlines()) == 1


def test_what_a_move_has_left_is_not_deleted_once_it_is_forgotten(
    det: Det, routes: Routes, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    det("c", "move", "good", "--to", str(first))
    carry_out(routes)
    det("c", "move", "good", "--to", str(second))
    (command,) = pending_deletions(routes.service.machine.state)
    first.rename(tmp_path / "unmounted")
    det("c", "gc", "--yes")
    (tmp_path / "unmounted").rename(first)
    routes.run(_carry_out(routes.service, command))  # as when a bucket is asked again
    assert (first / "good").is_dir()


def test_an_experiment_that_an_earlier_version_has_stored_does_not_hinder_clearing_up(
    det: Det, routes: Routes
) -> None:
    experiment = routes.service.machine.state.experiment(1)
    experiment.reconfigure({**experiment.config, "entrypoint": "DigitsTrial()"})
    (own_folder() / ".part-left").mkdir()
    done = det("c", "gc", "--yes").splitlines()
    assert done[0] == "Deleted 1 item (0 B)."
    assert done[1].startswith("Not cleared: experiment 1: entrypoint: got 'DigitsTrial()'")
    assert not (own_folder() / ".part-left").exists()


def test_a_checkpoint_is_not_moved_to_where_its_copy_is_not_whole(
    client: Client, tmp_path: Path
) -> None:
    request = MoveCheckpoints(uuids=["good"], location=str(tmp_path / "nothing"))
    with pytest.raises(Conflict, match="nothing has other files of it than"):
        client.change(request)


def test_no_other_name_of_its_own_folder_is_another_storage(
    det: Det, client: Client, routes: Routes, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(own_folder())
    for same in (f"{tmp_path}/link", f"{own_folder()}/../checkpoints"):
        with pytest.raises(DetError, match=r"checkpoint good: .* are the same"):
            det("c", "move", "good", "--to", same)
    carry_out(routes)
    assert sorted(path.name for path in own_folder().iterdir()) == ["bad", "good"]
    with pytest.raises(Conflict, match="got 'link', expected a bucket or an absolute folder"):
        client.change(MoveCheckpoints(uuids=["good"], location="link"))


def test_nothing_is_stored_in_a_checkpoint(det: Det, client: Client, tmp_path: Path) -> None:
    for inner in (own_folder() / "bad", own_folder() / "good" / "a" / "b"):
        with pytest.raises(DetError, match=r"is in the checkpoint .*; choose another folder"):
            det("c", "copy", "good", "--to", str(inner))
        with pytest.raises(Conflict, match=r"is in the checkpoint .*; choose another folder"):
            client.change(MoveCheckpoints(uuids=["good"], location=str(inner)))
    assert not (own_folder() / "good" / "a").exists()


def test_links_are_not_copied(det: Det, tmp_path: Path) -> None:
    (own_folder() / "good" / "data").symlink_to(tmp_path)
    with pytest.raises(DetError, match="checkpoint good: data is a link"):
        det("c", "move", "good", "--to", str(tmp_path / "there"))
    assert not (tmp_path / "there" / "good").exists()


def test_the_old_files_stay_if_the_copy_is_not_whole_when_they_are_to_be_deleted(
    det: Det, routes: Routes, tmp_path: Path
) -> None:
    det("c", "move", "good", "--to", str(tmp_path / "there"))
    (tmp_path / "there" / "good" / "state_dict.pt").write_bytes(b"cut")
    (command,) = pending_deletions(routes.service.machine.state)
    removed = remove_files(command, paths.data_dir())
    assert "good alone: checkpoint good: " in removed.problems[0]
    assert "has other files of it" in removed.problems[0]
    assert (own_folder() / "good" / "state_dict.pt").exists()


def write_checkpoint(client: Client, folder: Path, uuid: str, steps: int) -> None:
    """Write a checkpoint of experiment 7 of another master."""
    blobs = BlobStore(folder.parent / "blobs")
    capsule = Capsule(entrypoint="T", sources=blobs.put(b"{}"), payload=blobs.put(b"code"))
    config = client.effective_config(1).config | {"name": "far away"}
    origin = Origin(
        trial_class="T", hparams={"lr": 0.5}, config=config, seed=3, experiment_id=7, trial_id=9,
        capsule=capsule, blobs=blobs,
    )  # fmt: skip
    (folder / uuid).mkdir(parents=True)
    origin.write(folder / uuid)
    metadata = {"uuid": uuid, "experiment_id": 7, "trial_id": 9, "steps_completed": steps}
    (folder / uuid / "metadata.json").write_text(json.dumps(metadata))


def test_checkpoints_are_adopted_without_the_database_that_knew_them(
    det: Det, client: Client, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    write_checkpoint(client, there, "first", 10)
    write_checkpoint(client, there, "second", 20)
    (there / "cut").mkdir()
    (there / "cut" / "metadata.json").write_text("{")
    said = det("c", "adopt", str(there)).splitlines()
    assert said[0].startswith(f"Experiment 2 has 2 checkpoints of {there}; `det exp")
    assert said[1].startswith(f"Left out: {there}/cut: {there}/cut/metadata.json is damaged")
    experiment = Experiment(client, 2)
    assert experiment.view.name == "far away"
    assert experiment.view.labels == ["adopted"]
    (trial,) = experiment.trials
    assert (trial.hparams, trial.view.steps_completed) == ({"lr": 0.5}, 20)
    assert experiment.view.capsule.has_code
    assert [each.path for each in experiment.checkpoints()] == [there / "first", there / "second"]
    assert json.loads(det("m", "create", "m") and det("c", "describe", "2/*", "--json"))
    det("m", "register-version", "m", "second")
    for _ in range(2):  # nothing is there twice
        again = det("c", "adopt", str(there)).splitlines()
        assert again[0] == "2 checkpoints of it are listed here already."
    write_checkpoint(client, there, "third", 30)
    assert det("c", "adopt", str(there)).startswith("Experiment 2 has 1 checkpoint of")
    assert [each.uuid for each in experiment.checkpoints()] == ["first", "second", "third"]
    assert len(experiment.trials) == 1
    with pytest.raises(NotFound, match=f"there is no folder {there}/nothing on this computer"):
        det("c", "adopt", f"{there}/nothing")


def test_what_hostile_files_say_is_left_out_and_named(
    det: Det, client: Client, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    write_checkpoint(client, there, "whole", 10)
    files: dict[str, dict[str, str | dict[str, object]]] = {
        "a": {"metadata.json": "[" * 200_000},
        "b": {"metadata.json": {"steps_completed": 10**30}},
        "c": {"load_data.json": {"config": [1]}},
        "d": {"load_data.json": {"config": {"labels": 3}, "hparams": "x"}},
        "e": {"load_data.json": {"config": {"labels": 3}}},
        "f": {"load_data.json": {"seed": "x"}},
        "g": {"metadata.json": {"experiment_id": [7], "trial_id": "../x"}},
        "h": {"metadata.json": {"uuid": "../whole"}},
    }
    for uuid, changed in files.items():
        write_checkpoint(client, there, uuid, 10)
        for name, fields in changed.items():
            file = there / uuid / name
            whole = fields if isinstance(fields, str) else json.dumps(
                json.loads(file.read_text()) | fields)  # fmt: skip
            file.write_text(whole)
    said = det("c", "adopt", str(there)).splitlines()
    assert all(line.startswith(("Experiment ", "Left out: ")) for line in said), said
    assert any("load_data.json is damaged: config" in line for line in said)
    adopted = {one.uuid for one in client.find_checkpoints("*")} - {"good", "bad"}
    assert adopted == {"whole", "b", "g"}  # a step or a number that is none is left out


def test_a_copy_takes_the_place_of_a_checkpoint_that_is_lost(
    det: Det, client: Client, routes: Routes, tmp_path: Path
) -> None:
    there = str(tmp_path / "there")
    det("c", "copy", "*", "--to", there)
    assert det("c", "adopt", there) == "2 checkpoints of it are listed here already."
    det("c", "rm", "bad", "--yes")
    carry_out(routes)
    for path in (own_folder() / "good").iterdir():
        path.unlink()
    (own_folder() / "good").rmdir()
    assert det("c", "adopt", there) == "Found 2 checkpoints again: bad, good."
    found = Experiment(client, 1).checkpoints()
    assert [(each.view.state, each.view.path) for each in found] == [
        ("COMPLETED", f"{there}/good"), ("COMPLETED", f"{there}/bad"),
    ]  # fmt: skip


def test_garbage_is_listed_with_its_reason_then_deleted(
    det: Det, client: Client, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert det("c", "gc") == "There is nothing to delete."
    draft = own_folder() / ".part-killed"
    draft.mkdir()
    (draft / "weights").write_bytes(b"x" * 1000)
    monkeypatch.setattr(garbage, "_SETTLED_S", 0.0)
    (trial,) = routes.service.machine.state.trials.values()
    assert trial.ended_at is not None
    write_unrecorded("lost", trial.ended_at)
    write_unrecorded("of_a_lost_database", trial.created_at - 60)
    write_unrecorded("later", trial.ended_at + 7200)
    write_unrecorded("of_another_trial", trial.ended_at, trial_id=2)
    routes.post("/experiments/1/retention", save_experiment_best=0, save_trial_best=0,
                save_trial_latest=9)  # fmt: skip
    dry = json.loads(det("c", "gc", "--dry-run", "--json"))
    assert [(each["Why"], Path(each["Path"]).name) for each in dry] == [
        ("draft", ".part-killed"), ("unrecorded", "lost"),
    ]  # fmt: skip
    assert draft.exists()
    shown = [each["Path"] for each in dry if each["Why"] == "draft"]
    done = client.collect_garbage(shown)
    assert [each.path for each in done.found] == shown  # only what a list has shown
    assert det("c", "gc", "--yes").startswith("Deleted 1 item (")
    left = sorted(path.name for path in own_folder().iterdir())
    assert left == ["bad", "good", "later", "of_a_lost_database", "of_another_trial"]


def test_a_checkpoint_that_is_deleted_meanwhile_hides_no_other_garbage(
    client: Client, routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "_SETTLED_S", 0.0)
    (trial,) = routes.service.machine.state.trials.values()
    assert trial.ended_at is not None
    for name in ("gone", "lost"):
        write_unrecorded(name, trial.ended_at)
    scan = DirectoryStorage.scan

    def scan_then_delete(storage: DirectoryStorage) -> list[CheckpointFiles]:
        found = scan(storage)
        remove_tree(own_folder() / "gone")
        return found

    monkeypatch.setattr(DirectoryStorage, "scan", scan_then_delete)
    found = client.collect_garbage()
    assert [Path(each.path).name for each in found.found] == ["lost"]
    assert "gone" in found.problems[0]


def write_unrecorded(uuid: str, at: float, trial_id: int = 1) -> None:
    """Write a whole checkpoint of which there is no record."""
    folder = own_folder() / uuid
    folder.mkdir()
    file = folder / "metadata.json"
    file.write_text(json.dumps({"uuid": uuid, "experiment_id": 1, "trial_id": trial_id}))
    for path in (file, folder):
        os.utime(path, (at, at))


def test_a_checkpoint_whose_version_was_deleted_is_garbage_by_its_policy(
    det: Det, routes: Routes
) -> None:
    det("m", "create", "digits")
    det("m", "register-version", "digits", "bad")
    routes.post("/experiments/1/retention", save_experiment_best=1, save_trial_best=0,
                save_trial_latest=0)  # fmt: skip
    assert det("c", "gc", "--dry-run") == "There is nothing to delete."
    det("m", "delete", "digits", "--yes")
    (row,) = json.loads(det("c", "gc", "--dry-run", "--json"))
    assert (row["Why"], Path(row["Path"]).name, row["Experiment ID"]) == ("policy", "bad", 1)
    said = det("c", "gc", "--yes").splitlines()
    assert said[0].startswith("Deleted 1 item (")
    assert said[1].endswith("are removed in the background.")
    carry_out(routes)
    assert det("c", "list", "*", "--csv").count("DELETED") == 1


def test_checkpoints_go_to_a_bucket_and_come_back(
    det: Det, client: Client, routes: Routes, bucket: BucketServer, tmp_path: Path
) -> None:
    location = f"{bucket.location}/team"
    det("c", "move", "*", "--to", location)
    carry_out(routes)
    assert list(own_folder().iterdir()) == []
    assert {name.split("/")[1] for name in bucket.objects()} == {"good", "bad"}
    best = Experiment(client, 1).best_checkpoint()
    best.download(tmp_path / "here")
    assert (tmp_path / "here" / "state_dict.pt").read_bytes() == b"weights"
    folder = str(tmp_path / "folder")
    det("c", "copy", "good", "--to", folder)
    assert open_storage(folder, tmp_path).files("good") == BucketStorage(location).files("good")
    bucket.replace("team/bad/state_dict.pt", None)
    det("c", "rm", "good", "--yes")
    carry_out(routes)
    assert det("c", "adopt", location) == (
        f"Left out: {location}/bad: it is damaged: state_dict.pt (0 of 7 bytes)"
    )
    Experiment(client, 1).delete()
    carry_out(routes)
    assert bucket.objects() == {}
