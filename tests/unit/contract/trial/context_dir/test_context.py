"""A folder travels as one tar file: what is in it, what stays behind, and what is refused."""

from __future__ import annotations

import os
import shutil
import socket
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages.requests import ContextRef
from det_jupyter.contract.trial.context_dir import (
    context_files,
    pack_context,
    plan_context,
    unpack_context,
)
from det_jupyter.errors import CaptureError, LaunchError, NotFound
from tests.problems import said


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder, "train.py", "print('hi')\n")
    write(folder, "package/__init__.py", "")
    write(folder, "package/net.py", "WIDTH = 3\n")
    return folder


def write(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def copy_of(ref: ContextRef, blobs: BlobStore, tmp_path: Path) -> Path:
    target = tmp_path / "run" / "work"
    unpack_context(ref, blobs, target)
    return target


def test_the_copy_has_files_bits_links_and_empty_folders(
    folder: Path, blobs: BlobStore, tmp_path: Path
) -> None:
    write(folder, "run.sh", "#!/bin/sh\n").chmod(0o700)
    (folder / "empty").mkdir()
    (folder / "latest").symlink_to("package")
    (folder / "absolute.py").symlink_to(folder / "package" / "net.py")
    (folder / "package" / "around.py").symlink_to("../../model/train.py")

    plan = plan_context(folder)
    ref = pack_context(plan, blobs)
    copy = copy_of(ref, blobs, tmp_path)

    assert (copy / "package/net.py").read_text() == "WIDTH = 3\n"
    assert os.access(copy / "run.sh", os.X_OK)
    assert not os.access(copy / "train.py", os.X_OK)
    assert list((copy / "empty").iterdir()) == []
    assert os.readlink(copy / "latest") == "package"
    assert os.readlink(copy / "absolute.py") == "package/net.py"
    assert (copy / "package/around.py").read_text() == "print('hi')\n"
    assert ref.num_files == len(plan.files) == 7
    assert plan.notices == []


def test_what_detignore_and_habit_name_stays_behind(folder: Path, blobs: BlobStore) -> None:
    for name in (
        ".git/config", "__pycache__/a.pyc", "package/b.pyc", ".venv/lib/x.py", "data/big.bin",
        "logs/1.txt", "logs/keep.txt", ".idea/x", "sub/data/small", "sub/env/pyvenv.cfg",
        "sub/env/bin/python", "terraform.tfvars",
    ):  # fmt: skip
        write(folder, name)
    write(folder, ".detignore", "/data/\nlogs/*\n!logs/keep.txt\n# a comment\n\n")
    plan = plan_context(folder)
    assert plan.problems == []
    assert list(plan.files) == [
        "logs/keep.txt", "package/__init__.py", "package/net.py", "sub/data/small", "train.py",
    ]  # fmt: skip
    assert sorted(plan.ignored) == [
        ".git/", ".idea/", ".venv/", "__pycache__/", "data/", "logs/1.txt", "package/b.pyc",
        "sub/env/", "terraform.tfvars",
    ]  # fmt: skip


def test_a_line_of_detignore_that_means_nothing_is_named(folder: Path) -> None:
    write(folder, ".detignore", "ok\n!\n[z-a]\n")
    assert [problem.partition(": ")[2] for problem in plan_context(folder).problems] == [
        "line 2: '!' is no pattern: it means nothing in .gitignore's syntax",
        "line 3: '[z-a]' is no pattern: bad character range z-a at position 10",
    ]


def test_a_large_folder_is_refused_before_it_is_read_and_says_what_is_large(
    folder: Path, blobs: BlobStore
) -> None:
    os.truncate(write(folder, "data/images.bin"), 5 * 10**9)  # sparse: it takes no room
    os.truncate(write(folder, "weights.pt"), 10**6)
    with pytest.raises(CaptureError) as caught:
        pack_context(plan_context(folder), blobs)
    assert len(said(caught.value.problems)) == 1
    assert "5 files, 5.0 GB, and at most 100 MB can travel" in said(caught.value.problems)[0]
    assert "largest: data/ (5.0 GB), weights.pt (1.0 MB)" in said(caught.value.problems)[0]
    assert f"{folder}/.detignore, a line like /data/ for each" in said(caught.value.problems)[0]


def test_a_folder_of_very_many_files_is_refused_without_counting_them_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.walking._MAX_ENTRIES", 20)
    for number in range(40):
        write(folder, f"many/{number}")
    (problem,) = plan_context(folder).problems
    assert "holds more than 20 files (so far in: many (" in problem


def test_all_links_that_lead_out_are_one_problem(folder: Path, tmp_path: Path) -> None:
    outside = write(tmp_path, "elsewhere/data.csv")
    (folder / "data").symlink_to(outside.parent)
    (folder / "package" / "one.csv").symlink_to("../../elsewhere/data.csv")
    (folder / "chain").symlink_to("data")
    (folder / "etc").symlink_to("/etc/passwd")
    (problem,) = plan_context(folder).problems
    assert f"links lead out of {folder}: chain → data, data → {outside.parent}, " in problem
    assert "etc → /etc/passwd, package/one.csv → ../../elsewhere/data.csv; --follow" in problem
    write(folder, ".detignore", "chain\n/data\n*.csv\n/etc\n")
    assert plan_context(folder).problems == []


def test_a_link_to_what_does_not_travel_is_a_notice(folder: Path) -> None:
    (folder / "gone").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    plan = plan_context(folder)
    assert plan.problems == []
    assert plan.notices == ["context: links to what does not travel: gone → nowhere"]


def test_pipes_and_sockets_do_not_travel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # paths of sockets are short
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind("sock")
        plan = plan_context(folder)
    assert plan.notices == ["context: not sent: pipe (pipe), sock (socket)"]
    assert "pipe" not in plan.files


def test_unreadable_files_and_odd_names_are_told_together(folder: Path) -> None:
    write(folder, "secret").chmod(0)
    (folder / "closed").mkdir(mode=0)
    with open(os.path.join(os.fsencode(folder), b"caf\xe9.py"), "w"):
        pass
    problems = plan_context(folder).problems
    odd = next(each for each in problems if "not UTF-8" in each)
    assert f"{folder}: names that are not UTF-8: b'caf\\xe9.py'; rename them" in odd
    if os.geteuid() != 0:  # root reads everything
        names = "secret (Permission denied), closed (Permission denied)"
        assert any(f"{folder}: cannot be read: {names}; allow it" in p for p in problems)
    (folder / "closed").chmod(0o700)


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


NAMES = st.text(alphabet="aé .-🙂\n", min_size=1, max_size=6).filter(lambda name: name.strip(". "))


@settings(max_examples=40, deadline=None)
@given(files=st.dictionaries(NAMES, st.binary(max_size=40), max_size=6))
def test_the_same_files_make_the_same_blob(files: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        blobs = BlobStore(root / "blobs")
        refs = []
        for number, order in enumerate((sorted(files), sorted(files, reverse=True))):
            folder = root / f"at{number}"
            folder.mkdir()
            for name in order:
                (folder / name).write_bytes(files[name])
                os.utime(folder / name, (number * 1e6, number * 1e6))
                (folder / name).chmod(0o600 if number else 0o644)
            refs.append(pack_context(plan_context(folder), blobs))
        assert refs[0] == refs[1]
        unpack_context(refs[0], blobs, root / "copy")
        assert {p.name: p.read_bytes() for p in (root / "copy").iterdir()} == files


def test_what_a_killed_agent_left_is_made_anew(
    folder: Path, blobs: BlobStore, tmp_path: Path
) -> None:
    ref = pack_context(plan_context(folder), blobs)
    write(tmp_path, "run/.work.part/left.py")
    unpack_context(ref, blobs, tmp_path / "run/work")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["work"]
    assert not (tmp_path / "run/work/left.py").exists()
    write(tmp_path, "run/work/made_by_the_ranks")
    unpack_context(ref, blobs, tmp_path / "run/work")
    assert (tmp_path / "run/work/made_by_the_ranks").exists()


def test_a_damaged_or_missing_blob_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    ref = ContextRef(blob=blobs.put(b"not a tar file" * 100), num_files=1, size_bytes=1)
    with pytest.raises(LaunchError, match="the stored context directory is damaged"):
        unpack_context(ref, blobs, tmp_path / "work")
    with pytest.raises(NotFound, match="the context directory is damaged"):
        context_files(ref, blobs)
    with pytest.raises(NotFound):
        unpack_context(ref.model_copy(update={"blob": "ab" * 32}), blobs, tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_hostile_tar_file_writes_nothing_outside(blobs: BlobStore, tmp_path: Path) -> None:
    made = tmp_path / "hostile.tar"
    with tarfile.open(made, "w") as tar:
        member = tarfile.TarInfo("../escaped")
        tar.addfile(member)
    ref = ContextRef(blob=blobs.put(made.read_bytes()), num_files=1, size_bytes=1)
    with pytest.raises(LaunchError):
        unpack_context(ref, blobs, tmp_path / "run" / "work")
    assert not (tmp_path / "run" / "escaped").exists()


def test_people_see_the_text_of_a_context_with_a_bound(folder: Path, blobs: BlobStore) -> None:
    write(folder, "huge.json", "x" * 10**6)
    (folder / "picture.txt").write_bytes(b"\x00\xff")
    (folder / "net.bin").write_bytes(b"abc")
    assert context_files(pack_context(plan_context(folder), blobs), blobs) == {
        "huge.json": "# 1.0 MB: too much to be shown here\n",
        "package/__init__.py": "",
        "package/net.py": "WIDTH = 3\n",
        "train.py": "print('hi')\n",
    }


def test_a_folder_that_is_gone_while_it_is_packed_is_told(folder: Path, blobs: BlobStore) -> None:
    plan = plan_context(folder)
    shutil.rmtree(folder / "package")
    with pytest.raises(CaptureError, match=r"package/__init__\.py: No such file"):
        pack_context(plan, blobs)


def test_a_file_that_becomes_huge_or_a_pipe_while_it_is_packed_is_told(
    folder: Path, blobs: BlobStore
) -> None:
    plan = plan_context(folder)
    os.truncate(folder / "train.py", 2**40)  # sparse; it must not be read whole
    with pytest.raises(CaptureError, match="it grows"):
        pack_context(plan, blobs)
    (folder / "train.py").unlink()
    os.mkfifo(folder / "train.py")
    with pytest.raises(CaptureError, match="it is no file any more"):
        pack_context(plan, blobs)
