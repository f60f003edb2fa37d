"""The tar file of a context: packed, unpacked to a copy, and shown as text."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from io import BytesIO
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
from tests.unit.contract.trial.context_dir.folders import copy_of, link, write


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
    assert ref.num_files == len(plan.files) == 6
    assert plan.notices == []


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
    write(folder, "package/__init__.py", "")
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
    with pytest.raises(CaptureError, match=r"package/net\.py: No such file"):
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
    with pytest.raises(CaptureError, match="it is no regular file"):
        pack_context(plan, blobs)


def test_a_context_of_just_the_largest_size_travels(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("context_plan", "archive"):
        monkeypatch.setattr(f"det_jupyter.contract.trial.context_dir.{module}.MAX_BYTES", 22)
    plan = plan_context(folder)
    assert plan.size_bytes == 22
    assert pack_context(plan, blobs).size_bytes == 22
    write(folder, "more")
    write(folder, "train.py", "print('ho')\n\n")
    with pytest.raises(CaptureError) as caught:
        pack_context(plan, blobs)
    assert said(caught.value.problems) == ["context: it grows, and is above 22 B now"]
    (problem,) = plan_context(folder).problems
    assert "context: 3 files, 24 B, and at most 22 B can travel" in problem


def test_the_tar_file_says_nothing_of_owner_time_and_place(
    folder: Path, blobs: BlobStore, tmp_path: Path
) -> None:
    write(folder, "run.sh").chmod(0o700)
    write(folder, "theirs.sh").chmod(0o655)  # others may execute it
    link(folder / "latest", "package")
    ref = pack_context(plan_context(folder), blobs)
    with tarfile.open(fileobj=BytesIO(blobs.map(ref.blob))) as tar:
        modes = {member.name: (member.mode, member.uid, member.uname) for member in tar}
        assert {member.mtime for member in tar} == {315_532_800}
    assert modes == {
        "latest": (0o755, 0, ""), "package": (0o755, 0, ""), "package/net.py": (0o644, 0, ""),
        "run.sh": (0o755, 0, ""), "theirs.sh": (0o644, 0, ""), "train.py": (0o644, 0, ""),
    }  # fmt: skip
    unpack_context(ref, blobs, tmp_path / "run/work")
    assert (tmp_path / "run/work").stat().st_mode & 0o777 == 0o700


def test_texts_are_shown_up_to_a_size_each_and_together(
    folder: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.archive._MAX_FILE_BYTES", 30)
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.archive._MAX_SHOWN_BYTES", 60)
    texts = {
        "a.PY": "x" * 30, "b.txt": "y" * 31, "c.md": "é" * 4, "d.sh": "z" * 23, "e": "w" * 22,
        "f": "",
    }  # fmt: skip
    plan = plan_context(None, scripts={**texts, "g.bin": "x"})
    (folder / "nul.txt").write_bytes(b"a\0b")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    link(folder / "link.py", "train.py")
    shown = context_files(pack_context(plan, blobs), blobs)
    assert shown == {
        "a.PY": "x" * 30, "b.txt": "# 31 B: too much to be shown here\n", "c.md": "é" * 4,
        "d.sh": "# 23 B: too much to be shown here\n", "e": "w" * 22, "f": "",
    }  # fmt: skip
    own = context_files(pack_context(plan_context(folder), blobs), blobs)
    assert list(own) == ["package/net.py", "train.py"]


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
