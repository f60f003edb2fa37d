"""Contexts at their bounds: links that stay inside, names, sizes, and what is said of each."""

from __future__ import annotations

import errno
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from det_jupyter.client.context_notices import find_unrun_hook
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.context_dir import (
    context_files,
    ignoring,
    pack_context,
    plan_context,
    unpack_context,
)
from det_jupyter.contract.trial.context_dir.python_modules import find_syntax_error
from det_jupyter.contract.values.entrypoints import Command, parse_entrypoint
from det_jupyter.errors import CaptureError
from tests.problems import said


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    write(folder, "train.py", "print('hi')\n")
    write(folder, "package/net.py", "WIDTH = 3\n")
    return folder


def write(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def link(path: Path, target: Path | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def links_of(folder: Path) -> dict[str, str]:
    entries = plan_context(folder).entries
    return {name: entry.link for name, entry in entries.items() if entry.kind == "link"}


# AgentLinks


def test_a_link_that_stays_inside_travels_as_it_is(folder: Path) -> None:
    link(folder / "package/up", "..")
    link(folder / "package/self", ".")
    link(folder / "package/deep/net.py", "../net.py")
    link(folder / "latest", "package")
    link(folder / "through.py", "latest/net.py")
    plan = plan_context(folder)
    assert links_of(folder) == {
        "package/up": "..", "package/self": ".", "package/deep/net.py": "../net.py",
        "latest": "package", "through.py": "latest/net.py",
    }  # fmt: skip
    assert (plan.problems, plan.notices) == ([], [])


def test_a_link_that_leaves_and_comes_back_is_spelled_anew(folder: Path) -> None:
    link(folder / "whole", folder)
    link(folder / "round", "../model")
    link(folder / "package/deep/absolute.py", folder / "train.py")
    link(folder / "package/round.py", "../../model/package/net.py")
    assert links_of(folder) == {
        "whole": ".", "round": ".", "package/deep/absolute.py": "../../train.py",
        "package/round.py": "net.py",
    }  # fmt: skip
    assert plan_context(folder).notices == []


def test_a_folder_whose_name_begins_alike_is_outside(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "model-data/x.csv")
    link(folder / "data", "../model-data")
    (problem,) = plan_context(folder).problems
    assert f"links lead out of {folder}: data → ../model-data; --follow-links" in problem


def test_links_that_lead_out_are_followed_on_request(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "lib/deep/a.py")
    write(tmp_path, "other/b.py")
    write(tmp_path, "lib/__pycache__/a.pyc")
    link(folder / "lib", tmp_path / "lib")
    link(folder / "b.py", "../other/b.py")
    link(tmp_path / "lib/b", "../other/b.py")  # inside of what is followed, and leads on
    link(tmp_path / "lib/back.py", f"../{folder.name}/train.py")
    link(tmp_path / "lib/pipe", "/dev/null")
    plan = plan_context(folder, follow_links=True)
    assert plan.problems == []
    assert plan.notices == ["context: not sent: lib/pipe (device)"]
    kinds = {name: each.kind for name, each in plan.entries.items()}
    assert kinds["b.py"] == kinds["lib/b"] == kinds["lib/deep/a.py"] == "file"
    assert kinds["lib"] == "folder"
    assert "lib/__pycache__" not in kinds
    assert plan.entries["lib/back.py"].link == "../train.py"
    assert plan.read("lib/deep/a.py") == (tmp_path / "lib/deep/a.py").read_bytes()


@pytest.mark.parametrize(
    ("entrypoint", "started"),
    [
        ("model_def:Trial", "-m det_jupyter.launch.torch_distributed --trial model_def:Trial"),
        ("python3 train.py --note 'a b'", "train.py --note a b"),
        (
            "python3 -m det_jupyter.launch.deepspeed --trial model_def:Trial",
            "-m det_jupyter.launch.deepspeed --trial model_def:Trial",
        ),
    ],
)
def test_a_startup_hook_is_not_run_and_the_notice_has_what_would_run_it(
    folder: Path, entrypoint: str, started: str
) -> None:
    write(folder, "model_def.py", "class Trial(pytorch.PyTorchTrial): pass\n")
    write(folder, "startup-hook.sh", "#!/bin/bash\n# packages\n[[ -d . ]] && export HOOKED=yes\n")
    [notice] = find_unrun_hook(plan_context(folder), entrypoint)
    assert "startup-hook.sh is not run" in notice
    assert "([[ -d . ]] && export HOOKED=yes)" in notice
    line = notice.partition("entrypoint: ")[2]
    python = write(folder, "bin/python3", '#!/bin/sh\necho "$HOOKED" "$@"\n')
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    assert isinstance(parse_entrypoint(line), Command)
    command = ["sh", "-c", line]
    ran = subprocess.run(command, cwd=folder, env={"PATH": path}, capture_output=True, text=True)
    assert ran.stdout == f"yes {started}\n"
    write(folder, "startup-hook.sh", "set -e\nfalse\n")
    failed = subprocess.run(command, cwd=folder, env={"PATH": path}, capture_output=True)
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert list(find_unrun_hook(plan_context(folder), line)) == []  # it is run


@pytest.mark.parametrize(
    ("name", "has_line"),
    [("main", False), ("Plain", False), ("Other", False), ("Base", True), ("Derived", True)],
)
def test_a_startup_hook_is_put_before_trial_classes_only(
    folder: Path, name: str, has_line: bool
) -> None:
    write(
        folder,
        "model_def.py",
        "from elsewhere import Other\ndef main(): pass\nclass Plain: pass\n"
        "class Base(PyTorchTrial): pass\nclass Derived(Plain, Base): pass\n",
    )
    write(folder, "startup-hook.sh", "pip install x\n")
    [notice] = find_unrun_hook(plan_context(folder), f"model_def:{name}")
    assert "(pip install x); run it yourself before" in notice
    assert ("entrypoint: " in notice) is has_line


def test_links_around_what_holds_them_are_refused(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "one/x.py")
    write(tmp_path, "two/y.py")
    link(folder / "one", tmp_path / "one")
    link(folder / "above", "..")
    link(folder / "gone", tmp_path / "nowhere")
    link(tmp_path / "one/two", tmp_path / "two")
    link(tmp_path / "two/one", tmp_path / "one")
    problems = plan_context(folder, follow_links=True).problems
    assert [problem for problem in problems if "holds the link itself" in problem] == [
        f"context: {folder}/above leads to {tmp_path}, which holds the link itself; write it as "
        "a line of .detignore",
        f"context: {folder}/one/two/one leads to {tmp_path}/one, which holds the link itself; "
        "write it as a line of .detignore",
    ]
    assert "gone (No such file or directory)" in problems[-1]


def test_links_of_an_included_folder_are_seen_from_there(folder: Path, tmp_path: Path) -> None:
    write(tmp_path, "shared/util.py")
    link(tmp_path / "shared/whole", tmp_path / "shared")
    link(tmp_path / "shared/same.py", "util.py")
    link(tmp_path / "shared/gone", "nowhere")
    plan = plan_context(folder, include=[tmp_path / "shared"])
    assert plan.problems == []
    assert plan.notices == ["context: links to what does not travel: shared/gone → nowhere"]
    assert {"shared", "shared/whole", "shared/same.py", "shared/gone"} <= plan.entries.keys()


def test_a_link_to_a_name_that_is_not_utf8_is_told(folder: Path) -> None:
    os.symlink(b"caf\xe9.py", os.fsencode(folder / "cafe.py"))
    (problem,) = plan_context(folder).problems
    assert "names that are not UTF-8: b'caf\\xe9.py'; rename them" in problem


def test_a_link_is_no_folder_to_detignore(folder: Path) -> None:
    link(folder / "data", "package")
    write(folder, ".detignore", "data/\n")
    assert "data" in plan_context(folder).entries
    write(folder, ".detignore", "data\n")
    plan = plan_context(folder)
    assert "data" not in plan.entries
    assert plan.ignored == ["data"]


# What stays behind


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"caf\xe9\n", "it is not UTF-8 text"),
        (None, "Is a directory"),
    ],
)
def test_patterns_that_cannot_be_read_are_a_problem(
    folder: Path, content: bytes | None, reason: str
) -> None:
    file = folder / ".detignore"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    (problem,) = plan_context(folder).problems
    assert problem == f"{file}: {reason}; it holds patterns like those of .gitignore"


def test_patterns_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    (folder / ".detignore").write_bytes(b"\xef\xbb\xbftrain.py\n")
    plan = plan_context(folder)
    assert (plan.ignored, plan.problems) == (["train.py"], [])


def test_only_the_patterns_at_the_top_count_and_only_they_stay_behind(folder: Path) -> None:
    write(folder, ".detignore", "train.py\n!.venv/\n")
    write(folder, "package/.detignore", "net.py\n")
    write(folder, ".venv/lib.py")
    plan = plan_context(folder)
    assert list(plan.files) == [".venv/lib.py", "package/.detignore", "package/net.py"]
    assert plan.ignored == ["train.py"]


def test_an_included_folder_has_patterns_and_environments_of_its_own(
    folder: Path, tmp_path: Path
) -> None:
    write(tmp_path, "shared/.detignore", "/secret\n")
    for name in ("secret", "kept", "env/pyvenv.cfg", "__pycache__/a"):
        write(tmp_path, f"shared/{name}")
    plan = plan_context(folder, include=[tmp_path / "shared"])
    assert sorted(plan.ignored) == ["shared/__pycache__/", "shared/env/", "shared/secret"]
    assert [name for name in plan.entries if name.startswith("shared")] == [
        "shared", "shared/kept",
    ]  # fmt: skip


def test_a_virtual_environment_as_the_context_travels(tmp_path: Path) -> None:
    write(tmp_path, "env/pyvenv.cfg")
    assert list(plan_context(tmp_path / "env").files) == ["pyvenv.cfg"]


def test_a_folder_that_cannot_be_listed_is_named_and_the_others_travel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "zoo/animal.py")
    scandir = os.scandir

    def refusing(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("zoo"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.walking.os.scandir", refusing)
    plan = plan_context(folder)
    (problem,) = plan.problems
    assert f"{folder}: cannot be read: zoo (Permission denied); allow it" in problem
    assert list(plan.files) == ["package/net.py", "train.py"]


def test_a_folder_whose_name_is_not_utf8_is_told_once(folder: Path) -> None:
    odd = os.path.join(os.fsencode(folder), b"caf\xe9")
    os.mkdir(odd)
    open(os.path.join(odd, b"a.py"), "w").close()
    plan = plan_context(folder)
    (problem,) = plan.problems
    assert "names that are not UTF-8: b'caf\\xe9'; rename them" in problem
    assert list(plan.files) == ["package/net.py", "train.py"]


@pytest.mark.parametrize(("number", "more"), [(10, ""), (11, " and 1 more")])
def test_ten_names_are_listed(folder: Path, number: int, more: str) -> None:
    for index in range(number):
        link(folder / f"gone{index:02}", "nowhere")
    (notice,) = plan_context(folder).notices
    assert notice.endswith(f"gone09 → nowhere{more}")


@pytest.mark.parametrize(("number", "more"), [(8, ""), (9, " and 1 more")])
def test_a_line_describes_what_travels_and_eight_paths_that_do_not(
    folder: Path, number: int, more: str
) -> None:
    for index in range(number):
        write(folder, f"{index}.pyc")
    expected = ", ".join(f"{index}.pyc" for index in range(8))
    said = plan_context(folder).describe()
    assert said == f"Context {folder}: 2 files, 22 B; stays behind: {expected}{more}"
    assert plan_context(None, scripts={"a.py": "é"}).describe() == "Context: 1 file, 2 B"


def test_the_three_fullest_folders_of_too_many_files_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, number in (("a", 4), ("b", 3), ("c", 2), ("d", 1)):
        for index in range(number):
            write(folder, f"{name}/{index}\n")
    shown = "so far in: a (5), b (4), c (3)"
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.walking._MAX_ENTRIES", 17)
    assert plan_context(folder).problems == []
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.walking._MAX_ENTRIES", 16)
    (problem,) = plan_context(folder).problems
    assert shown in problem


# Places


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


# Sizes


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


def test_the_five_largest_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.contract.trial.context_dir.context_plan.MAX_BYTES", 100)
    for index in range(5):
        write(folder, f"data{index}/a", "x" * (100 + index))
        write(folder, f"data{index}/b", "x" * 100)
    (problem,) = plan_context(folder).problems
    named = ", ".join(f"data{index}/ ({200 + index} B)" for index in (4, 3, 2, 1, 0))
    assert f"largest: {named}. Write what" in problem


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


def test_a_program_that_is_too_deep_cannot_be_read() -> None:
    assert find_syntax_error("-" * 100_000 + "1", "t.py").startswith("t.py cannot be read: ")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (os.mkfifo, "it is no regular file"),
        (lambda file: file.symlink_to("/dev/zero"), "it is a link that leads out of the folder"),
        (lambda file: file.write_text("x\n" * 40_000), "it has more than 64 KiB"),
    ],
)
def test_a_detignore_that_would_be_read_for_ever_is_refused(
    folder: Path, make: Callable[[Path], object], problem: str
) -> None:
    file = folder / ".detignore"
    make(file)
    assert f"{file}: {problem}; it holds patterns" in plan_context(folder).problems[0]


def test_a_detignore_may_be_a_link_to_a_file_beside_it(folder: Path) -> None:
    write(folder, "ignored", "train.py\n")
    (folder / ".detignore").symlink_to("ignored")
    plan = plan_context(folder)
    assert (plan.problems, "train.py" in plan.entries) == ([], False)


def test_patterns_that_take_too_long_are_refused_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, ".detignore", "# * * * a comment\n\n" + "*a" * 100 + "b\n")
    assert plan_context(folder).problems == []
    write(folder, "a" * 250, "")
    # Versions of `regex` take from a tenth of a second for it to an age.
    monkeypatch.setattr(ignoring, "_MOST_S", 0.01)
    assert plan_context(folder).problems == [
        f"{folder}/.detignore: its patterns took over 0.01 s; write simpler ones, with at most 2 "
        "`*` or `**` each"
    ]
