"""What `.detignore` and the built-in patterns leave out, and patterns that are refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.context_dir import (
    ignoring,
    plan_context,
)
from tests.unit.contract.trial.context_dir.folders import link, write


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
        "logs/keep.txt", "package/net.py", "sub/data/small", "train.py",
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


def test_a_link_is_no_folder_to_detignore(folder: Path) -> None:
    link(folder / "data", "package")
    write(folder, ".detignore", "data/\n")
    assert "data" in plan_context(folder).entries
    write(folder, ".detignore", "data\n")
    plan = plan_context(folder)
    assert "data" not in plan.entries
    assert plan.ignored == ["data"]


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


@pytest.mark.parametrize("end", ["", "x", "/", "/x"])
def test_many_stars_in_a_row_take_no_time_and_mean_what_one_means(folder: Path, end: str) -> None:
    lines = [f"{'*' * 40}{end}{number}b" for number in range(40)]
    write(
        folder, ".detignore", "\n".join([*lines, f"{'*' * 40}.txt", "data/****/x", "!****y.txt"])
    )
    for path in ("a" * 250, "a.txt", "y.txt", "data/1/2/x", "data/z"):
        write(folder, path, "")
    began = time.process_time()
    plan = plan_context(folder)
    assert time.process_time() - began < 5  # it was more than a minute
    assert plan.problems == []
    assert set(plan.entries) >= {"a" * 250, "y.txt", "data/z"}
    assert not {"a.txt", "data/1/2/x"} & set(plan.entries)


def test_patterns_that_take_too_long_are_refused_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, ".detignore", "# * * * a comment\n\n" + "*a" * 100 + "b\n")
    assert plan_context(folder).problems == []
    write(folder, "a" * 250, "")
    # Versions of `regex` take from a tenth of a second for it to an age.
    monkeypatch.setattr(ignoring, "_MOST_S", 0.01)
    assert plan_context(folder).problems == [
        f"{folder}/.detignore: its patterns took over 0.01 s; write fewer and simpler ones, with "
        "one `*` or `**` each"
    ]


@pytest.mark.parametrize("pattern", ["**/a/**/c{}", "*a*c{}", "**/a/**/a/**/c{}"])
def test_the_time_is_looked_at_between_patterns_of_several_stars(
    monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    seconds = count()  # one passes at each look
    monkeypatch.setattr(ignoring, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    rules = ignoring.IgnoreRules([pattern.format(number) for number in range(100)])
    with pytest.raises(ignoring.TooSlow):
        rules.match_file("a/b")
    assert 10 <= next(seconds) < 20


def test_patterns_of_two_stars_mean_what_they_say(folder: Path) -> None:
    write(folder, ".detignore", "**/a/**/c\n*b*d\n!**/keep/**\n")
    for path in ("a/x/c", "y/a/c", "x/abcd", "keep/bd", "x/c"):
        write(folder, path)
    entries = plan_context(folder).files
    assert {"keep/bd", "x/c"} <= {*entries}
    assert not {"a/x/c", "y/a/c", "x/abcd"} & {*entries}
