"""The user's own modules travel with the trial as they were when it was captured."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fork_source import REPOSITORY
from tests.integration.capture_notebook import Notebook, open_notebook
from tests.integration.rank_forks import RankForks


@pytest.fixture
def notebook(tmp_path: Path, ranks: RankForks) -> Iterator[Notebook]:
    with open_notebook(tmp_path, ranks) as opened:
        sys.path.insert(0, str(opened.folder))
        yield opened


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_module_beside_the_notebook_travels_as_it_was(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_nets.py": "class Net:\n    depth = 3\n"})
    notebook.run(
        "import cap_nets\nfrom cap_nets import Net",
        "class Trial(Net):\n    def f(self): return [cap_nets.Net.depth, self.depth]",
    )
    capsule = notebook.capture()
    write(notebook.folder, {"cap_nets.py": "raise RuntimeError('edited meanwhile')"})
    assert list(capsule.modules) == ["cap_nets.py"]
    assert [c.name for c in capsule.captured] == ["Trial"]
    code = """
import cap_nets
show([Trial().f(), cap_nets.__file__ == str(root / "code" / "cap_nets.py")])
"""
    assert notebook.in_rank(capsule, code) == [[3, 3], True]


def test_the_snapshot_wins_over_a_module_in_the_ranks_folder(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_same.py": "where = 'snapshot'"})
    write(notebook.root, {"rank/cap_same.py": "where = 'rank'"})
    notebook.run("import cap_same", "class Trial:\n    def f(self): return cap_same.where")
    capsule = notebook.capture()
    assert notebook.in_rank(capsule, "show(Trial().f())") == "snapshot"


def test_the_snapshot_wins_over_a_module_that_is_already_imported(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_early.py": "where = 'snapshot'"})
    write(notebook.root, {"rank/cap_early.py": "where = 'rank'"})
    notebook.run("import cap_early", "class Trial:\n    def f(self): return cap_early.where")
    capsule = notebook.capture()
    code = """
import importlib.util
spec = importlib.util.spec_from_file_location("cap_early", "cap_early.py")
sys.modules["cap_early"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["cap_early"])
before = sys.modules["cap_early"].where
show([before, load_capsule(capsule, blobs, root / "code")().f()])
"""
    assert notebook.in_rank(capsule, code) == ["rank", "snapshot"]


def test_a_package_travels_whole_with_its_small_data(notebook: Notebook) -> None:
    write(
        notebook.folder,
        {
            "src/cap_pack/__init__.py": "",
            "src/cap_pack/words.py": """
from importlib import resources
def load(): return resources.files(__package__).joinpath("data/words.txt").read_text()
def lazy():
    from . import other
    import cap_beside
    return other.x + cap_beside.x
""",
            "src/cap_pack/other.py": "x = 1",
            "src/cap_pack/data/words.txt": "one two",
            "src/cap_pack/data/huge.bin": "x" * 2**21,
            "src/cap_pack/__pycache__/old.pyc": "",
            "src/cap_pack/.hidden": "",
            "src/cap_pack/notes.ipynb": "",
            "src/cap_beside.py": "x = 10",
            "src/cap_unused.py": "",
        },
    )
    notebook.run(
        "import sys, os\nsys.path.insert(0, os.path.join(sys.path[0], 'src'))",
        "from cap_pack.words import load, lazy",
        "class Trial:\n    def f(self): return [load(), lazy()]",
    )
    capsule = notebook.capture()
    assert sorted(capsule.modules) == [
        "cap_beside.py",
        "cap_pack/__init__.py",
        "cap_pack/data/words.txt",
        "cap_pack/other.py",
        "cap_pack/words.py",
    ]
    assert capsule.notices == [
        "package cap_pack: cap_pack/data/huge.bin did not travel (data files above 1 MiB, or "
        "32 MiB together); give the trial an absolute path instead"
    ]
    assert notebook.in_rank(capsule, "show(Trial().f())") == ["one two", 11]


def test_modules_that_a_cell_imports_lazily_travel(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_lazy.py": "import cap_deeper", "cap_deeper.py": "x = 5"})
    notebook.run(
        """
class Trial:
    def f(self):
        import json, cap_lazy as lazy
        return lazy.cap_deeper.x
"""
    )
    capsule = notebook.capture()
    assert "cap_lazy" not in sys.modules
    assert sorted(capsule.modules) == ["cap_deeper.py", "cap_lazy.py"]
    assert notebook.in_rank(capsule, "show(Trial().f())") == 5


def test_a_folder_without_init_travels_as_a_package(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_folder/part.py": "x = 6", "cap_folder/data.csv": "1,2"})
    notebook.run(
        "import cap_folder.part", "class Trial:\n    def f(self): return cap_folder.part.x"
    )
    capsule = notebook.capture()
    assert list(capsule.modules) == ["cap_folder/part.py"]
    assert notebook.in_rank(capsule, "show(Trial().f())") == 6


def test_a_module_from_another_folder_travels_when_the_trial_uses_it(notebook: Notebook) -> None:
    write(notebook.root, {"lib/cap_lib.py": "x = 7", "lib/cap_idle.py": ""})
    notebook.run(
        "import sys, os\nsys.path.append(os.path.join(sys.path[0], '..', 'lib'))",
        "import cap_lib, cap_idle",
        "class Trial:\n    def f(self): return cap_lib.x",
    )
    capsule = notebook.capture()
    assert list(capsule.modules) == ["cap_lib.py"]
    assert notebook.in_rank(capsule, "show(Trial().f())") == 7


def test_a_trial_defined_in_a_module_travels(notebook: Notebook) -> None:
    write(notebook.folder, {"cap_trial.py": "class Trial:\n    def f(self): return 8\n"})
    notebook.run("from cap_trial import Trial")
    capsule = notebook.capture()
    assert [(c.name, c.cell) for c in capsule.captured] == [("Trial", "In [1]")]
    assert notebook.in_rank(capsule, "show(Trial().f())") == 8


def test_closures_made_by_a_module_travel_by_value(notebook: Notebook) -> None:
    write(
        notebook.folder,
        {"cap_deco.py": "FACTOR = 2\ndef double(f):\n    return lambda *a: f(*a) * FACTOR\n"},
    )
    notebook.run(
        "import cap_deco", "class Trial:\n    @cap_deco.double\n    def f(self): return 4"
    )
    assert notebook.in_rank(notebook.capture(), "show(Trial().f())") == 8


def test_installed_packages_and_det_jupyter_do_not_travel(notebook: Notebook) -> None:
    notebook.run(
        "import numpy, sklearn.utils, json, det_jupyter.errors as errors, psutil",
        "class Trial:\n    x = [sklearn.utils.Bunch, errors.DetError]\n"
        "    def f(self): return numpy, json, psutil",
    )
    # It holds the interpreter's site-packages, or at least det_jupyter.
    notebook.folder = Path(REPOSITORY)
    modules = notebook.capture().modules
    of_tests = ("tests/", "hatch_build.py")  # which they import
    assert not [name for name in modules if not name.startswith(of_tests)]


def test_a_module_file_cannot_be_written_outside_its_folder(notebook: Notebook) -> None:
    from det_jupyter.contract.trial.captured import load_capsule

    notebook.run("class Trial: ...")
    capsule = notebook.capture()
    for name in ("../escaped.py", "/escaped.py", "a/../../escaped.py"):
        evil = capsule.model_copy(update={"modules": {name: notebook.blobs.put(b"")}})
        with pytest.raises(ValueError, match="would lie outside"):
            load_capsule(evil, notebook.blobs, notebook.root / "code", as_main=False)


def test_modules_that_lie_there_as_they_were_unpacked_are_not_unpacked_again(
    notebook: Notebook,
) -> None:
    from det_jupyter.contract.trial.captured import load_capsule

    notebook.run("class Trial: ...")
    modules = {name: notebook.blobs.put(b"x = 1\n") for name in ("cap_a.py", "cap_p/b.py")}
    capsule = notebook.capture().model_copy(update={"modules": modules})
    folder = notebook.root / "code"

    def unpack() -> dict[str, int]:
        load_capsule(capsule, notebook.blobs, folder, as_main=False)
        return {name: (folder / name).stat().st_ino for name in modules}

    first = unpack()
    blob = notebook.blobs.path(modules["cap_a.py"])
    hidden = blob.rename(blob.with_name("hidden"))
    assert unpack() == first  # without the blob: it was not looked at
    hidden.rename(blob)
    (folder / "cap_a.py").write_bytes(b"x = 2\n")
    (folder / "cap_p" / "b.py").unlink()
    unpack()
    assert [(folder / name).read_bytes() for name in modules] == [b"x = 1\n"] * 2
