"""Which files are the user's own, and which modules a source imports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from det_jupyter.front.notebook.capture import modules
from det_jupyter.front.notebook.capture.modules import (
    LocalFiles,
    find_local_modules,
    find_packages,
)


def test_files_of_the_notebooks_folder_are_local_and_installed_ones_are_not(
    tmp_path: Path,
) -> None:
    local = LocalFiles(str(tmp_path))
    assert local.has(str(tmp_path / "nets.py"))
    assert local.has(f"{os.sep}elsewhere{os.sep}nets.py")
    assert not local.has(os.__file__)
    assert not local.has(pytest.__file__)
    assert not local.has(str(tmp_path / "site-packages" / "nets.py"))
    assert not local.has("nets.py")  # such as the file of a module in a zip archive


def test_a_path_is_relative_to_the_notebooks_folder_also_through_a_link(tmp_path: Path) -> None:
    folder = tmp_path / "real"
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)
    local = LocalFiles(str(tmp_path / "link"))
    assert local.relative(str(folder / "nets" / "wide.py")) == "nets/wide.py"
    assert local.relative(str(tmp_path / "link" / "nets.py")) == "nets.py"
    assert local.relative(str(tmp_path / "real-other.py")) is None


def test_a_python_in_the_notebooks_folder_does_not_make_its_files_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert LocalFiles(str(tmp_path / "home")).has(str(tmp_path / "home" / "nets.py"))


@pytest.mark.parametrize(
    ("source", "all_names", "lazy_names"),
    [
        ("import a.b, c as d\nfrom e.f import g", {"a", "c", "e"}, set()),
        ("def f():\n    import a\n\tfrom b import c", {"a", "b"}, {"a", "b"}),
        ("from . import a\nfrom .b import c", set(), set()),
        ("x = 'import a'", set(), set()),
    ],
)
def test_imports_are_found_by_their_top_level_names(
    source: str, all_names: set[str], lazy_names: set[str]
) -> None:
    assert modules._imported_names(source) == all_names
    assert modules._imported_names(source, only_lazy=True) == lazy_names


def test_a_module_is_sent_with_those_that_it_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "unit_nets.py").write_text("import unit_layers\n")
    (tmp_path / "unit_layers").mkdir()
    (tmp_path / "unit_layers" / "__init__.py").touch()
    (tmp_path / "unit_layers" / "table.txt").write_text("1")
    (tmp_path / "unit_layers" / "large.bin").write_bytes(b"0" * (2**20 + 1))
    for place in (".git", "__pycache__", "node_modules", "site-packages", "venv/lib", "wide"):
        (tmp_path / "unit_layers" / place).mkdir(parents=True)
        (tmp_path / "unit_layers" / place / "more.py").touch()
    (tmp_path / "unit_layers" / "venv" / "pyvenv.cfg").touch()
    for name in (".hidden.py", "notes.ipynb"):
        (tmp_path / "unit_layers" / name).touch()
    (tmp_path / "unit_other.py").touch()
    found = find_local_modules(set(), ["def f():\n    import unit_nets"], str(tmp_path))
    assert sorted(found.files) == [
        "unit_layers/__init__.py", "unit_layers/table.txt", "unit_layers/wide/more.py",
        "unit_nets.py",
    ]  # fmt: skip
    [notice] = found.notices
    assert notice.startswith("package unit_layers: unit_layers/large.bin did not travel")


def test_packages_are_installed_distributions_with_their_versions() -> None:
    found = find_packages({"pytest", "os", "nets", "cloudpickle"}, ["nets.py"])
    assert found == {"pytest": pytest.__version__}
    assert find_packages({"pytest"}, ["pytest/__init__.py"]) == {}
