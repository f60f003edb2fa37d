"""A trial is taken out of a real IPython shell and put together in a fresh process."""

from __future__ import annotations

import errno
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from det_jupyter.contract.messages import CapturedName
from det_jupyter.contract.trial.captured import cell_labels, load_capsule
from det_jupyter.errors import CaptureError, ConfigError, DetError
from tests.integration.capture_notebook import Notebook, open_notebook
from tests.integration.rank_forks import RankForks
from tests.problems import said


@pytest.fixture
def notebook(tmp_path: Path, ranks: RankForks) -> Iterator[Notebook]:
    with open_notebook(tmp_path, ranks) as opened:
        yield opened


def blob_files(notebook: Notebook) -> list[Path]:
    return [path for path in notebook.blobs.root.rglob("*") if path.is_file()]


LANGUAGE = [
    """
import enum, functools, math, typing
from collections import namedtuple
from dataclasses import dataclass, field
""",
    """
class Base:
    scale = 2
    def describe(self, x):
        return f"base {x * self.scale}"
""",
    """
@dataclass(frozen=True)
class Settings:
    lr: float = 0.5
    names: list = field(default_factory=lambda: ["a"])
class Color(enum.Enum):
    RED = "red"
Point = namedtuple("Point", "x y")
UserId = typing.NewType("UserId", int)
T = typing.TypeVar("T")
class Box(typing.Generic[T]):
    def __init__(self, item: T) -> None: self.item = item
class Sized(typing.Protocol):
    def area(self) -> int: ...
class Pair(typing.NamedTuple):
    first: int
    second: int = 2
class Tagged(type):
    def __new__(cls, name, bases, names):
        return super().__new__(cls, name, bases, names | {"tag": name})
class Slotted(metaclass=Tagged):
    __slots__ = ("value",)
    class Inner:
        depth = 2
TABLE = {Color.RED: Point(1, 2)}
""",
    """
def is_even(n): return n == 0 or is_odd(n - 1)
def is_odd(n): return n != 0 and is_even(n - 1)
@functools.lru_cache(maxsize=7)
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
def adder(by):
    def add(x): return x + by
    return add
add_three = adder(3)
count = 0
def increase():
    global count
    count += 1
""",
    """
class Trial(Base):
    settings = Settings()
    def describe(self, x, color=Color.RED):
        return super().describe(x) + f" {color.value}"
    @staticmethod
    def area(radius): return math.floor(math.pi * radius**2)
    @classmethod
    def named(cls): return cls.__name__
    @property
    def double(self): return UserId(self.scale * 2)
    def twice(self):
        increase(); increase()
        return count
    def read(self):
        with open(__import__("os").devnull) as file:
            return file.read()
""",
]


def test_everything_that_python_defines_in_cells_works_in_a_rank(notebook: Notebook) -> None:
    notebook.run(*LANGUAGE)
    shown = notebook.in_rank(
        notebook.capture(),
        """
t = Trial()
import __main__ as main
show([
    t.describe(4), Trial.area(2), Trial.named(), t.double, t.settings.lr, t.settings.names,
    t.twice(), main.count, t.read(),
    type(t.settings)() == t.settings, type(t).__module__,
])
""",
    )
    assert shown == ["base 8 red", 12, "Trial", 4, 0.5, ["a"], 2, 2, "", True, "__main__"]


def test_functions_travel_with_what_they_refer_to(notebook: Notebook) -> None:
    notebook.run(
        *LANGUAGE,
        """
class Caller(Trial):
    @functools.cached_property
    def once(self): return [self.scale]
    @functools.lru_cache
    def cached(self): return [self.scale]
    def call(self):
        slotted = Slotted()
        slotted.value = 5
        return [is_even(10), fibonacci(30), add_three(1), TABLE[Color.RED].y, Box(3).item,
                Pair(1).second, slotted.value, Slotted.tag, Slotted.Inner.depth,
                self.once is self.once, self.cached() is self.cached(), isinstance(Sized, type)]
""",
    )
    rank_code = """
t = Trial()
import __main__ as main
show([t.call(), main.fibonacci.cache_parameters()["maxsize"], main.fibonacci.__name__])
"""
    shown = notebook.in_rank(notebook.capture("Caller"), rank_code)
    assert shown == [
        [True, 832040, 4, 2, 3, 2, 5, "Slotted", 2, True, True, True],
        7,
        "fibonacci",
    ]


def test_objects_of_captured_classes_can_be_pickled_in_a_rank(notebook: Notebook) -> None:
    notebook.run(
        "class Base: ...\nclass Net(Base):\n    x = 1\nnets = [Net()]",
        "class Trial:\n    def make(self): return nets",
    )
    code = """
import pickle, __main__
objects = pickle.loads(pickle.dumps([Trial().make(), Trial, __main__.Base, __main__.Net]))
show([objects[0][0].x, objects[1] is Trial])
"""
    assert notebook.in_rank(notebook.capture(), code) == [1, True]


def test_captured_names_are_listed_by_size_with_their_cells(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np, math",
        "images = np.zeros((1000, 100))\nunused = np.ones(10)",
        "class Labels:\n    def __init__(self): self.values = np.ones(500)\nlabels = Labels()",
        "factor = 3\ndef scale(x): return x * factor",
        "class Trial:\n    def f(self): return scale(images), labels, math.pi, len('')",
    )
    captured = notebook.capture().captured
    assert [(c.name, c.cell, c.type) for c in captured] == [
        ("images", "In [2]", "ndarray"),
        ("labels", "In [3]", "Labels"),
        ("Trial", "In [5]", "class"),
        ("Labels", "In [3]", "class"),
        ("scale", "In [4]", "function"),
        ("factor", "In [4]", "int"),
    ]
    assert 800_000 <= captured[0].size_bytes < 800_500
    assert 4_000 <= captured[1].size_bytes < 4_500
    assert captured[-1].size_bytes < 100


def test_shared_memory_is_counted_for_one_name_only(notebook: Notebook) -> None:
    notebook.run(
        "import torch",
        "x = torch.zeros(1000, 100)\npair = torch.utils.data.TensorDataset(x[:500], x[500:])",
        "class Trial:\n    def f(self): return pair, x",
    )
    sizes = {c.name: c.size_bytes for c in notebook.capture().captured}
    assert 400_000 < sizes["x"] + sizes["pair"] < 410_000


def test_names_reached_through_other_objects_are_listed_as_themselves(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np\nimages = np.zeros(50_000)",
        "class Data:\n    def __init__(self, x): self.x = x\ndata = Data(images)",
        "class Trial:\n    def f(self): return data",
    )
    captured = {c.name: c.size_bytes for c in notebook.capture().captured}
    assert set(captured) == {"Trial", "Data", "data", "images"}
    assert captured["images"] >= 400_000
    assert captured["data"] < 1000


def test_versions_of_the_packages_that_a_trial_or_cell_imports_are_noted(
    notebook: Notebook,
) -> None:
    notebook.run(
        "import numpy as np, psutil\nfrom sklearn.utils import Bunch\nimport IPython",
        """
class Trial:
    def f(self):
        import yaml
        return np.pi, Bunch
""",
    )
    packages = notebook.capture().packages
    assert set(packages) == {"Python", "numpy", "psutil", "scikit-learn", "pyyaml", "IPython"}
    assert packages["numpy"] == np.__version__


def test_the_package_that_made_the_captured_data_is_noted(notebook: Notebook) -> None:
    notebook.run(
        "from sklearn.datasets import load_digits\nimages = load_digits().data",
        "class Trial:\n    def f(self): return images",
    )
    assert set(notebook.capture().packages) == {"Python", "numpy", "scikit-learn"}


# ---- entrypoints ---------------------------------------------------------------------------


def test_an_undefined_entrypoint_is_refused_with_the_classes_there_are(notebook: Notebook) -> None:
    notebook.run("class CatsTrial: ...\nfrom collections import OrderedDict")
    with pytest.raises(ConfigError) as refused:
        notebook.capture("DogsTrial")
    assert said(refused.value.problems) == [
        "entrypoint: 'DogsTrial' is not defined in this notebook; "
        "run the cell that defines it (classes and functions defined here: CatsTrial)"
    ]


def test_an_entrypoint_that_is_no_class_is_refused(notebook: Notebook) -> None:
    notebook.run("class Trial: ...\ntrial = Trial()")
    with pytest.raises(ConfigError, match="entrypoint: 'trial' is of type Trial, expected"):
        notebook.capture("trial")


def test_a_full_disk_is_told_as_such(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook.run("import numpy as np\ntable = np.zeros(100_000)")
    notebook.run("class Trial:\n    def use(self): return table")

    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(DetError) as refused:
        notebook.capture()
    assert not isinstance(refused.value, CaptureError)
    assert str(notebook.blobs.root) in str(refused.value)
    assert "No space left on device; " in str(refused.value)
    assert "are free there" in str(refused.value)


# ---- tracebacks ----------------------------------------------------------------------------


def test_a_traceback_in_a_rank_shows_the_cell_and_its_line(notebook: Notebook) -> None:
    notebook.run(
        "def check(x):\n    y = x - 1\n    return 1 / y  # the culprit",
        "%time pass\nclass Trial:\n    def f(self):\n        return check(1)  # the caller",
    )
    capsule = notebook.capture()
    printed = notebook.in_rank(
        capsule,
        """
import traceback
try: Trial().f()
except ZeroDivisionError: show(traceback.format_exc())
""",
    )
    assert "    return 1 / y  # the culprit" in printed
    assert ", line 4, in f\n    return check(1)  # the caller" in printed
    labels = cell_labels(capsule, notebook.blobs)
    assert sorted(labels.values()) == ["Cell In[1]", "Cell In[2]"]
    assert all(file in printed for file in labels)


# ---- loading in the notebook ---------------------------------------------------------------


def test_loading_in_the_notebook_leaves_the_notebooks_own_class_alone(notebook: Notebook) -> None:
    notebook.run("factor = 2", "class Trial:\n    def f(self): return factor")
    capsule = notebook.capture()
    notebook.run("factor = 3")
    own, main, path = notebook.names["Trial"], sys.modules["__main__"], list(sys.path)
    method = own.f
    loaded = load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False)
    assert loaded is not own
    assert loaded().f() == 2
    assert own().f() == 3
    assert own.f is method
    assert sys.modules["__main__"] is main
    assert sys.path == path


def test_a_capsule_can_be_loaded_twice(notebook: Notebook) -> None:
    notebook.run("import enum\nclass Mode(enum.Enum):\n    A = 1\nclass Trial:\n    mode = Mode.A")
    capsule = notebook.capture()
    first, second = (
        load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False) for _ in "ab"
    )
    assert first is not second
    assert first.mode.value == second.mode.value == 1


def test_capturing_the_same_again_stores_nothing_new(notebook: Notebook) -> None:
    notebook.run("import numpy as np\nx = np.arange(20_000)", "class Trial:\n    def f(self): x")
    before = notebook.capture()
    files = blob_files(notebook)
    assert notebook.capture() == before
    assert blob_files(notebook) == files


# ---- memory --------------------------------------------------------------------------------


def test_equal_arrays_do_not_become_one(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np\na = np.zeros(20_000)\nb = np.zeros(20_000)\nc = b",
        "class Trial:\n    def f(self): return a, b, c",
    )
    capsule = notebook.capture()
    assert len(set(capsule.buffers)) == 1
    shown = notebook.in_rank(
        capsule, "a, b, c = Trial().f(); a[0] = 1; show([a[0], b[0], b is c])"
    )
    assert shown == [1, 0, True]


def test_a_rank_writes_to_its_arrays_without_touching_the_blob(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np, torch\nx = np.zeros(50_000)\nt = torch.zeros(50_000)",
        "class Trial:\n    def f(self): return x, t",
    )
    capsule = notebook.capture()
    before = [path.read_bytes() for path in blob_files(notebook)]
    code = "x, t = Trial().f(); x += 1; t.add_(2); show([x.sum(), t.sum().item()])"
    assert notebook.in_rank(capsule, code) == [50_000, 100_000]
    assert [path.read_bytes() for path in blob_files(notebook)] == before
    assert notebook.names["x"].sum() == 0


def test_arrays_keep_type_shape_order_and_writability(notebook: Notebook) -> None:
    notebook.run(
        """
import numpy as np
rng = np.random.default_rng(0)
big = rng.random((300, 400))
frozen = big.copy(); frozen.setflags(write=False)
arrays = [
    big, big.T, big[::2], big[:, ::3], np.asfortranarray(big), frozen, big.astype("f2"),
    big > 0.5, big.astype("c16"), np.zeros((0, 5)), np.array(3.5), big[5:6, 7:8],
    np.arange(40_000).astype("datetime64[s]"), np.array(["a", "bcd"] * 9000),
    np.array([{"a": 1}, None], dtype=object), np.zeros(9000, dtype=[("a", "i4"), ("b", "f8")]),
    np.ma.masked_array(np.arange(9000.0), mask=np.arange(9000) % 2 == 0),
    np.zeros(9000, dtype=[("a", "f8")]).view(np.recarray),
]
""",
        "class Trial:\n    def f(self): return arrays",
    )
    capsule = notebook.capture()
    loaded = load_capsule(capsule, notebook.blobs, notebook.root / "code", as_main=False)().f()
    for array, copy in zip(notebook.names["arrays"], loaded, strict=True):
        assert (copy.dtype, copy.shape, type(copy)) == (array.dtype, array.shape, type(array))
        assert copy.flags.writeable == array.flags.writeable
        np.testing.assert_array_equal(array, copy)
    assert loaded[4].flags.f_contiguous
    assert len(capsule.buffers) >= 10


def test_a_memory_mapped_file_travels_as_an_array(notebook: Notebook, tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    np.arange(30_000).tofile(path)
    notebook.names["path"] = str(path)
    notebook.run(
        "import numpy as np\ndata = np.memmap(path, dtype=np.int64, mode='r')[5:]",
        "class Trial:\n    def f(self): return data",
    )
    capsule = notebook.capture()
    path.unlink()
    code = "x = Trial().f(); show([type(x).__name__, int(x[0]), len(x)])"
    assert notebook.in_rank(capsule, code) == ["ndarray", 5, 29_995]


def test_capturing_a_large_array_does_not_copy_it(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np, torch\nx = np.ones(2_500_000)\nt = torch.ones(2_500_000)",
        "class Trial:\n    def f(self): return x, t",
    )
    notebook.capture()  # imports, caches
    for file in blob_files(notebook):
        file.unlink()
    tracemalloc.start()
    try:
        notebook.capture()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(file.stat().st_size for file in blob_files(notebook)) > 28_000_000
    assert peak_bytes < 5_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_share_the_memory_of_a_large_array(notebook: Notebook) -> None:
    notebook.run("import numpy as np\nx = np.ones(8_000_000)", "class Trial:\n    x = x")
    capsule = notebook.capture()
    blob = notebook.blobs.path(capsule.buffers[0])
    code = f"""
import os
def copied_kb():
    return int(open("/proc/self/smaps_rollup").read().split("Anonymous:")[1].split()[0])
def mapped():
    return [line.split()[4] for line in open("/proc/self/maps") if {str(blob)!r} in line]
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    assert status == 0
else:
    before = copied_kb()
    total = Trial.x.sum()
    assert total == 8_000_000 and copied_kb() - before < 2000, copied_kb() - before
    Trial.x[:100_000] = 2
    assert 700 < copied_kb() - before < 3000, copied_kb() - before
    os._exit(0)
show([mapped(), Trial.x[0], copied_kb()])
"""
    inodes, first, private_kb = notebook.in_rank(capsule, code)
    assert inodes == [str(blob.stat().st_ino)]
    assert first == 1
    assert private_kb < 40_000  # of 64 MB; the rest is python and numpy


def test_more_than_a_gibibyte_is_refused_before_anything_is_written(notebook: Notebook) -> None:
    notebook.run(
        "import numpy as np\nimages = np.zeros(400_000_000)",  # memory that nobody has touched
        "labels = np.zeros(1000)",
        "class Trial:\n    def f(self): return images, labels",
    )
    [problem] = notebook.problems()
    begin, _, end = problem.partition(", Trial (")
    assert begin == (
        "the trial takes 3.2 GB with it: images (3.2 GB, from In [1]), "
        "labels (8.0 kB, from In [2])"
    )
    assert end.endswith(
        ", from In [3]); load the data in build_training_data_loader instead, "
        "or pass --allow-large (in Python, allow_large=True)"
    )
    assert blob_files(notebook) == []


def test_a_large_trial_travels_when_that_is_allowed(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("det_jupyter.front.notebook.capture.capture._LARGE_BYTES", 100_000)
    notebook.run("import numpy as np\nx = np.zeros(20_000)", "class Trial:\n    def f(self): x")
    with pytest.raises(CaptureError, match="--allow-large"):
        notebook.capture()
    assert notebook.capture(allow_large=True).buffers


def test_state_that_objects_choose_to_leave_behind_stays_behind(notebook: Notebook) -> None:
    notebook.run(
        """
import threading
class Cache:
    def __init__(self): self.lock = threading.Lock(); self.size = offset()
    def __getstate__(self): return {"size": self.size}
    def __setstate__(self, state): self.size = state["size"] + offset(); self.lock = None
def offset(): return 1
cache = Cache()
""",
        "class Trial:\n    def f(self): return cache.size",
    )
    assert notebook.in_rank(notebook.capture(), "show(Trial().f())") == 2


def test_a_capture_leaves_the_class_as_it_was(notebook: Notebook) -> None:
    notebook.run("class Trial:\n    x = 1\n    def f(self): return self.x")
    before = dict(vars(notebook.names["Trial"]))
    notebook.capture()
    assert dict(vars(notebook.names["Trial"])) == before


def test_names_are_told_without_a_shell_too(notebook: Notebook) -> None:
    from det_jupyter.front.notebook.capture.capture import capture

    notebook.run("factor = 2", "class Trial:\n    def f(self): return factor")
    capsule = capture("Trial", notebook.names, blobs=notebook.blobs, cwd=notebook.folder)
    assert capsule.captured[-1] == CapturedName(
        name="factor", cell="In [1]", type="int", size_bytes=capsule.captured[-1].size_bytes
    )
    assert set(cell_labels(capsule, notebook.blobs).values()) == {"Cell In[2]"}
