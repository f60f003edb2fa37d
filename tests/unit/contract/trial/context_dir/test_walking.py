"""What is found in a folder: links, names, kinds of files, and what cannot be sent."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.contract.trial.context_dir import (
    plan_context,
)
from det_jupyter.contract.trial.context_dir.walking import LiveEntries
from tests.unit.contract.trial.context_dir.folders import link, links_of, write


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
    assert "etc → /etc/passwd and package/one.csv → ../../elsewhere/data.csv; --follow" in problem
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
    assert plan.notices == ["context: not sent: pipe (pipe) and sock (socket)"]
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


@pytest.mark.parametrize(("number", "more"), [(11, " and gone10 → nowhere"), (12, " and 2 more")])
def test_ten_names_are_listed(folder: Path, number: int, more: str) -> None:
    for index in range(number):
        link(folder / f"gone{index:02}", "nowhere")
    (notice,) = plan_context(folder).notices
    assert notice.endswith(f"gone09 → nowhere{more}")


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


def test_a_folder_is_looked_up_as_it_is(tmp_path: Path) -> None:
    entries = LiveEntries(tmp_path)
    assert list(entries) == []
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "run.sh").touch(mode=0o755)
    (tmp_path / "a.py").touch(mode=0o644)
    assert list(entries) == ["a.py", "package", "package/__init__.py", "run.sh"]
    assert len(entries) == 4
    assert (entries["package"].kind, entries["package"].source) == (
        "folder", str(tmp_path / "package"),
    )  # fmt: skip
    assert [(entries[name].kind, entries[name].is_executable) for name in ("a.py", "run.sh")] == [
        ("file", False), ("file", True),
    ]  # fmt: skip
    with pytest.raises(KeyError):
        entries["nothing"]
