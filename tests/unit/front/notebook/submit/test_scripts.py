"""Cells as files of a context; entrypoints that --local cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.values.entrypoints import parse_entrypoint
from det_jupyter.errors import ConfigError, UsageError
from det_jupyter.front.notebook.submit import preview_and_local
from det_jupyter.front.notebook.submit.contexts import (
    SCRIPTS,
    list_files,
    list_scripts,
    plan_notebook_context,
    store_script,
)


@pytest.fixture(autouse=True)
def scripts() -> Iterator[None]:
    SCRIPTS.clear()
    yield
    SCRIPTS.clear()


def test_a_script_is_kept_and_listed_and_replaced() -> None:
    assert list_scripts().startswith("no scripts yet")
    said = store_script(" run/train.py ", "x = 1\ny = 2\n", "In [3]")
    assert said == "run/train.py: 2 lines, taken along by experiments with --context or a command"
    assert store_script("run/train.py", "x = 1", "In [4]").endswith("(instead of the one before)")
    assert list_scripts().split() == ["run/train.py", "1", "line", "In", "[4]"]


@pytest.mark.parametrize(
    "name", ["", "/abs.py", "../up.py", ".", "a/../../b.py", "a.py b.py", "a.py --force", "'a.py"]
)
def test_a_script_has_one_path_in_the_context(name: str) -> None:
    with pytest.raises(UsageError, match="expected the path of one file in the context"):
        store_script(name, "x = 1", "In [1]")
    assert SCRIPTS == {}


def test_a_path_in_quotes_may_have_spaces() -> None:
    store_script("'my run.py'", "x = 1", "In [1]")
    assert list(SCRIPTS) == ["my run.py"]


def test_a_script_that_cannot_be_read_is_refused_in_its_cell() -> None:
    with pytest.raises(ConfigError, match=r"bad\.py, line 2: "):
        store_script("bad.py", "x = 1\n!ls\n", "In [1]")
    assert SCRIPTS == {}
    store_script("run.sh", "!ls\n", "In [1]")  # no Python


def test_scripts_travel_with_commands_and_contexts_and_not_with_captured_code(
    tmp_path: Path,
) -> None:
    command = parse_entrypoint("python3 train.py")
    captured = parse_entrypoint("Trial")
    assert plan_notebook_context(None, (), command) is None
    store_script("train.py", "x = 1", "In [3]")
    assert plan_notebook_context(None, (), captured) is None
    plan = plan_notebook_context(None, (), command)
    assert plan is not None
    assert plan.notices == [
        "ranks work in a copy of train.py alone; --context . takes the rest of this folder along"
    ]
    (tmp_path / "data.txt").write_text("abc")
    (tmp_path / ".git").mkdir()
    plan = plan_notebook_context(tmp_path, (), captured)
    assert plan is not None
    assert plan.describe() == f"Context {tmp_path}: 2 files, 8 B; stays behind: .git/"
    assert list(list_files(plan)) == [
        "data.txt                 file                            3 bytes",
        "train.py                 script of In [3]                5 bytes",
    ]


@pytest.mark.parametrize(
    ("entrypoint", "way"),
    [
        ("model_def:Trial", "`from model_def import Trial`, and write `entrypoint: Trial`"),
        ("python3 train.py --name 'a b'", "`!python3 train.py --name 'a b'`"),
        ("python3 -m pkg.train", "`!python3 -m pkg.train`"),
        ("./run.sh | tee log", "`!./run.sh | tee log`"),
    ],
)
def test_what_the_kernel_cannot_try_has_another_way(entrypoint: str, way: str) -> None:
    meaning = parse_entrypoint(entrypoint)
    assert preview_and_local._another_way(meaning).endswith(way)  # type: ignore[arg-type]  # none is Captured


def test_a_function_is_called_as_ranks_do() -> None:
    def main(core_context: object, hparams: object) -> None: ...
    def plain() -> None: ...

    assert preview_and_local._call_of(plain, {}) == "call it, plain()"
    assert preview_and_local._call_of(main, {"lr": 1}) == (
        "call it, `with det_jupyter.core.init() as context: main(core_context=context, "
        "hparams={'lr': 1})`"
    )
