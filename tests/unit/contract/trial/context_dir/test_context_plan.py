"""What is planned of folders, includes and scripts, and how a plan is described."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.context_dir import (
    pack_context,
    plan_context,
)
from det_jupyter.errors import CaptureError
from tests.problems import said
from tests.unit.contract.trial.context_dir.folders import copy_of, link, write


def test_a_large_folder_is_refused_before_it_is_read_and_says_what_is_large(
    folder: Path, blobs: BlobStore
) -> None:
    os.truncate(write(folder, "data/images.bin"), 5 * 10**9)  # sparse: it takes no room
    os.truncate(write(folder, "weights.pt"), 10**6)
    with pytest.raises(CaptureError) as caught:
        pack_context(plan_context(folder), blobs)
    assert len(said(caught.value.problems)) == 1
    assert "4 files, 5.0 GB, and at most 100 MB can travel" in said(caught.value.problems)[0]
    assert "largest: data/ (5.0 GB), weights.pt (1.0 MB)" in said(caught.value.problems)[0]
    assert f"{folder}/.detignore, a line like /data/ for each" in said(caught.value.problems)[0]


def test_no_such_folder_and_a_file_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (problem,) = plan_context(folder / "nowhere").problems
    assert problem.endswith("/nowhere: there is no such folder; give the folder with your code")
    monkeypatch.chdir(folder)
    (problem,) = plan_context("nowhere").problems
    assert f"nowhere: there is no such folder (this is {folder}); give the folder" in problem
    (problem,) = plan_context(folder / "train.py").problems
    assert "train.py: it is not a folder" in problem


def test_includes_are_added_by_their_own_names(
    folder: Path, blobs: BlobStore, tmp_path: Path
) -> None:
    write(tmp_path, "shared/util.py", "U = 1\n")
    write(tmp_path, "shared/__pycache__/util.pyc")
    write(tmp_path, "words.txt", "a b")
    plan = plan_context(folder, include=[tmp_path / "shared", tmp_path / "words.txt"])
    copy = copy_of(pack_context(plan, blobs), blobs, tmp_path)
    assert (copy / "shared/util.py").read_text() == "U = 1\n"
    assert (copy / "words.txt").read_text() == "a b"
    assert not (copy / "shared/__pycache__").exists()


def test_includes_that_are_missing_or_collide_are_refused(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "other/train.py")
    plan = plan_context(folder, include=[tmp_path / "other" / "train.py", "/nowhere", "/"])
    assert [each.partition(";")[0] for each in plan.problems] == [
        f"include: {tmp_path}/other/train.py: the context has a train.py already",
        "include: /nowhere: there is no such file or folder",
        "include: / has no name to be added under",
    ]


def test_scripts_of_a_notebook_are_files_of_the_context(
    folder: Path, blobs: BlobStore, tmp_path: Path
) -> None:
    scripts = {"train.py": "new", "tools/run.py": "run"}
    plan = plan_context(folder, scripts=scripts)
    copy = copy_of(pack_context(plan, blobs), blobs, tmp_path)
    assert (copy / "train.py").read_text() == "new"
    assert (copy / "tools/run.py").read_text() == "run"
    assert plan.notices == ["train.py is the script of the notebook, not the folder's file"]
    assert list(plan_context(None, scripts=scripts).files) == ["tools/run.py", "train.py"]


@pytest.mark.parametrize("name", ["../x.py", "/x.py", "", "a/../x.py", "package", "train.py/x"])
def test_a_script_stays_in_the_context(folder: Path, name: str) -> None:
    assert len(plan_context(folder, scripts={name: "x"}).problems) == 1


@pytest.mark.parametrize(("number", "more"), [(9, " and 8.pyc"), (10, " and 2 more")])
def test_a_line_describes_what_travels_and_eight_paths_that_do_not(
    folder: Path, number: int, more: str
) -> None:
    for index in range(number):
        write(folder, f"{index}.pyc")
    expected = ", ".join(f"{index}.pyc" for index in range(8))
    said = plan_context(folder).describe()
    assert said == f"Context {folder}: 2 files, 22 B; stays behind: {expected}{more}"
    assert plan_context(None, scripts={"a.py": "é"}).describe() == "Context: 1 file, 2 B"


def test_a_home_directory_may_be_abbreviated(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, "words.txt")
    plan = plan_context("~/model", include=["~/words.txt"])
    assert list(plan.files) == ["package/net.py", "train.py", "words.txt"]
    assert plan.folder == str(folder)


def test_a_link_to_nothing_is_no_context(folder: Path) -> None:
    link(folder / "gone", "nowhere")
    (problem,) = plan_context(folder / "gone").problems
    assert "/gone: it is not a folder; give the folder with your code" in problem
    (problem,) = plan_context(folder, include=[folder / "gone"]).problems
    assert problem.endswith("/gone: there is no such file or folder")


def test_a_present_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    (problem,) = plan_context("nowhere").problems
    assert "no such folder (the present folder itself is gone); give the" in problem


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (".", "expected a path in the context, like train.py"),
        ("..", "expected a path in the context, like train.py"),
        ("../x.py", "expected a path in the context, like train.py"),
        ("/x.py", "expected a path in the context, like train.py"),
        ("package", "the context has another package"),
        ("train.py/x", "the context has another train.py"),
    ],
)
def test_a_script_that_has_no_place_is_told(folder: Path, name: str, told: str) -> None:
    plan = plan_context(folder, scripts={name: "x"})
    assert plan.problems == [f"script {name}: {told}"]
    assert list(plan.files) == ["package/net.py", "train.py"]
    assert plan.notices == []


def test_a_script_beside_files_of_the_folder_leaves_them(folder: Path, blobs: BlobStore) -> None:
    plan = plan_context(folder, scripts={"package/run.py": "a\udc80", "..x/y.py": ""})
    assert (plan.problems, plan.notices) == ([], [])
    assert plan.entries["package"].source == str(folder / "package")
    assert plan.read("package/run.py") == b"a?"
    assert plan.read("package/net.py") == b"WIDTH = 3\n"


def test_the_five_largest_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.context_plan.MAX_BYTES", 100)
    for index in range(5):
        write(folder, f"data{index}/a", "x" * (100 + index))
        write(folder, f"data{index}/b", "x" * 100)
    (problem,) = plan_context(folder).problems
    named = ", ".join(f"data{index}/ ({200 + index} B)" for index in (4, 3, 2, 1, 0))
    assert f"largest: {named}. Write what" in problem
