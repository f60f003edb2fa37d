"""Modules of other libraries that are changed when they are first imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from det_jupyter.core.timings.after_import import after_import


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "later_imported.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "later_imported", raising=False)
    return "later_imported"


def test_it_is_changed_after_its_import_and_once(module: str) -> None:
    calls: list[int] = []
    after_import(module, lambda: calls.append(sys.modules[module].value), has="value")
    assert calls == []
    importlib.import_module(module)
    importlib.import_module(module)
    assert calls == [1]


def test_it_is_changed_now_if_it_is_imported(module: str) -> None:
    importlib.import_module(module)
    calls: list[int] = []
    after_import(module, lambda: calls.append(1), has="value")
    assert calls == [1]


def test_a_look_whether_it_is_installed_is_no_import(module: str) -> None:
    calls: list[int] = []
    after_import(module, lambda: calls.append(1), has="value")
    assert importlib.util.find_spec(module) is not None
    assert calls == []
    importlib.import_module(module)
    assert calls == [1]


def test_a_module_that_is_not_installed_stays_absent() -> None:
    after_import("no_such_module_at_all", lambda: None, has="value")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_module_at_all")


@pytest.mark.parametrize("is_imported", [True, False])
def test_a_change_that_fails_does_not_fail_the_import(
    module: str, is_imported: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_imported:
        importlib.import_module(module)
    after_import(module, lambda: sys.modules[module].not_there, has="value")
    assert importlib.import_module(module).value == 1
    (line,) = caplog.messages
    assert "later_imported: this version is not recorded: AttributeError" in line


def test_two_wait_for_the_same_module(module: str) -> None:
    calls: list[int] = []
    after_import(module, lambda: calls.append(1), has="value")
    after_import(module, lambda: calls.append(2), has="value")
    importlib.import_module(module)
    assert sorted(calls) == [1, 2]
