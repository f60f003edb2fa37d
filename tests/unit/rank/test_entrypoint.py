"""A class or function of a module is found, or it is said what is wrong with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.values.entrypoints import Captured, Imported
from det_jupyter.errors import ConfigError
from det_jupyter.rank import entrypoint
from det_jupyter.rank.entrypoint import find_in_module, load_entrypoint, put_first
from tests.modules import modules_as_before
from tests.problems import said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with modules_as_before():
        yield tmp_path


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


MODEL = """
from math import pi
limit = 3
class Outer:
    class Trial: ...
def main(core_context, hparams, info): ...
def needy(model): ...
"""


def test_classes_and_functions_of_modules_and_packages_are_found(folder: Path) -> None:
    write(folder, "ctx_model.py", MODEL)
    write(folder, "ctx_pkg/sub.py", "from ctx_model import main\nclass Trial: ...\n")
    put_first(folder)
    assert sys.path[0] == str(folder)
    assert find_in_module(Imported("ctx_model", "main"), folder).__name__ == "main"
    assert find_in_module(Imported("ctx_model", "Outer.Trial"), folder).__name__ == "Trial"
    assert find_in_module(Imported("ctx_pkg.sub", "Trial"), folder).__name__ == "Trial"
    assert find_in_module(Imported("ctx_model", "needy"), folder, ["model"]).__name__ == "needy"


def test_modules_of_pythonpath_are_found_after_those_of_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "src/ctx_lib.py", "def main(): ...\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", "src:/elsewhere")
    put_first(folder)
    assert sys.path[:3] == [str(folder), str(folder / "src"), "/elsewhere"]
    assert find_in_module(Imported("ctx_lib", "main"), folder).__name__ == "main"


@pytest.mark.parametrize(
    ("module", "name", "problem"),
    [
        ("ctx_modle", "main",
         "entrypoint: there is no module ctx_modle in the folder that ranks work in, nor an "
         "installed one; did you mean ctx_model? (modules there: ctx_bad, ctx_model and ctx_pkg)"),
        ("ctx_pkg.trian", "main",
         "entrypoint: there is no module ctx_pkg.trian in the folder that ranks work in, nor an "
         "installed one; did you mean ctx_pkg.train? (modules there: ctx_pkg.train)"),
        ("zzz.net", "main",
         "entrypoint: there is no module zzz in the folder that ranks work in, nor an "
         "installed one (modules there: ctx_bad, ctx_model and ctx_pkg)"),
        ("ctx_model.net.deep", "main",
         "entrypoint: there is no module ctx_model.net: ctx_model is no package"),
        ("ctx_model", "mian",
         "entrypoint: ctx_model.py has no mian; did you mean main? "
         "(classes and functions there: Outer, main and needy)"),
        ("ctx_model", "Outer.Trail",
         "entrypoint: Outer has no Trail; did you mean Trial? (classes and functions there: "
         "Trial)"),
        ("ctx_model", "limit",
         "entrypoint: limit of ctx_model.py is of type int, expected a class or a function"),
        ("ctx_model", "needy",
         "entrypoint: needy requires model, and ranks give only hyperparameters (there is none), "
         "core_context, hparams and info; give the others a default"),
        ("ctx_bad", "main",
         "entrypoint: ctx_bad.py, line 2: expected ':'\n    def main()\n              ^"),
    ],
)  # fmt: skip
def test_what_cannot_be_found_is_told_with_what_is_there(
    folder: Path, module: str, name: str, problem: str
) -> None:
    write(folder, "ctx_model.py", MODEL)
    write(folder, "ctx_bad.py", "import os\ndef main()\n    pass\n")
    write(folder, "ctx_pkg/__init__.py", "")
    write(folder, "ctx_pkg/train.py", "def main(): ...\n")
    put_first(folder)
    with pytest.raises(ConfigError) as caught:
        find_in_module(Imported(module, name), folder)
    assert said(caught.value.problems) == [problem]


def test_an_import_that_fails_in_the_module_is_its_own_error(folder: Path) -> None:
    write(folder, "ctx_lame.py", "import not_there_at_all\n")
    put_first(folder)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        find_in_module(Imported("ctx_lame", "main"), folder)


def test_a_file_takes_the_place_of_a_module_of_python_as_in_a_fresh_python(folder: Path) -> None:
    import statistics

    write(folder, "statistics.py", "def main(): ...\n")
    put_first(folder)
    assert sys.modules.get("statistics") is not statistics
    found = find_in_module(Imported("statistics", "main"), folder)
    assert found.__code__.co_filename == str(folder / "statistics.py")


def test_what_would_hide_a_package_in_use_or_python_itself_is_refused(folder: Path) -> None:
    write(folder, "pydantic/__init__.py", "")
    write(folder, "sys.py", "")
    with pytest.raises(ConfigError) as caught:
        put_first(folder)
    assert said(caught.value.problems) == [
        "context: pydantic/ would take the place of the installed pydantic, which ranks need; "
        "rename it"
    ]
    with pytest.raises(ConfigError, match=r"the module sys is Python's own, and sys\.py cannot"):
        find_in_module(Imported("sys", "main"), folder)


@pytest.mark.parametrize("has_context", [True, False])
def test_captured_code_finds_the_modules_of_its_context(
    folder: Path, monkeypatch: pytest.MonkeyPatch, has_context: bool
) -> None:
    loaded: list[object] = []

    def load(*given: object) -> str:
        loaded.append(given)
        return "the class"

    monkeypatch.setattr(entrypoint, "load_capsule", load)
    capsule = Capsule(entrypoint="T", payload="", sources="").model_copy(
        update={"context": object() if has_context else None}
    )
    blobs = BlobStore(folder / "blobs")
    named = Captured("T")
    found = load_entrypoint(capsule, blobs, folder / "code", folder, named)
    assert found == "the class"
    assert loaded == [(capsule, blobs, folder / "code")]
    assert (sys.path[0] == str(folder)) is has_context


def test_a_module_is_loaded_with_a_main_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", before := sys.modules["__main__"])
    write(folder, "ctx_loaded.py", "def main(): ...\n")
    capsule = Capsule(entrypoint="T", payload="", sources="")
    blobs = BlobStore(folder / "blobs")
    named = Imported("ctx_loaded", "main")
    found = load_entrypoint(capsule, blobs, folder / "code", folder, named)
    assert found.__module__ == "ctx_loaded"
    assert sys.modules["__main__"] is not before


def test_a_module_of_the_folder_takes_the_place_of_pythons_and_of_no_other(
    folder: Path,
) -> None:
    import json.decoder
    import shelve

    names = ["json", "json.decoder", "shelve", "jsonschema_of_nobody"]
    sys.modules["jsonschema_of_nobody"] = shelve
    assert json.decoder is not None
    sys.path.append(str(folder))
    write(folder, "json.py", "")
    put_first(folder)
    assert [name for name in names if name in sys.modules] == ["shelve", "jsonschema_of_nobody"]
    assert sys.path.count(str(folder)) == 1
    del sys.modules["jsonschema_of_nobody"]
