"""What cannot travel is named, all of it at once, with the variable and its cell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.capture_notebook import Notebook, open_notebook
from tests.integration.rank_forks import RankForks

IMPORTS = """
import asyncio, concurrent.futures, io, multiprocessing, queue, socket, sqlite3, subprocess
import sys, tempfile, threading
"""
# expression, type, reason, remedy
KINDS = [
    ("open(path)", "TextIOWrapper", "an open file belongs to this process", "open it"),
    ("open(path, 'rb')", "BufferedReader", "an open file belongs to this process", "open it"),
    ("open(path, 'ab', 0)", "FileIO", "an open file belongs to this process", "open it"),
    ("socket.socket()", "socket", "a socket belongs to this process", "open it"),
    (
        "sqlite3.connect(':memory:')",
        "Connection",
        "a database connection belongs to this process",
        "open it",
    ),
    ("(i for i in range(3))", "generator", "a generator runs once, in this process", "make it"),
    ("coroutine", "coroutine", "a running coroutine belongs to this process", "make it"),
    ("threading.Lock()", "lock", "a lock works only among the threads of this process", "make it"),
    (
        "threading.RLock()",
        "RLock",
        "a lock works only among the threads of this process",
        "make it",
    ),
    (
        "threading.Event()",
        "Event",
        "an event works only among the threads of this process",
        "make it",
    ),
    (
        "threading.Condition()",
        "Condition",
        "a lock works only among the threads of this process",
        "make it",
    ),
    (
        "threading.Thread()",
        "Thread",
        "threads and what ties them together belong to this process",
        "make it",
    ),
    (
        "threading.local()",
        "_local",
        "threads and what ties them together belong to this process",
        "make it",
    ),
    (
        "concurrent.futures.ThreadPoolExecutor()",
        "ThreadPoolExecutor",
        "threads and what ties them together belong to this process",
        "make it",
    ),
    ("queue.Queue()", "Queue", "a queue works only inside this process", "make it"),
    ("queue.SimpleQueue()", "SimpleQueue", "a queue works only inside this process", "make it"),
    ("multiprocessing.Lock()", "Lock", "it belongs to this process and its children", "make it"),
    ("multiprocessing.Event()", "Event", "it belongs to this process and its children", "make it"),
    (
        "multiprocessing.Process()",
        "Process",
        "it belongs to this process and its children",
        "make it",
    ),
]


@pytest.fixture
def notebook(tmp_path: Path, ranks: RankForks) -> Iterator[Notebook]:
    with open_notebook(tmp_path, ranks) as opened:
        opened.run(IMPORTS)
        opened.names["path"] = str(tmp_path / "file.txt")
        (tmp_path / "file.txt").write_text("text")
        yield opened


@pytest.mark.parametrize(("expression", "type_name", "reason", "remedy"), KINDS)
def test_each_kind_is_named_with_variable_cell_reason_and_remedy(
    notebook: Notebook, expression: str, type_name: str, reason: str, remedy: str
) -> None:
    notebook.run(
        "async def wait(): pass\ncoroutine = wait()",
        f"thing = {expression}",
        "class Trial:\n    def train_batch(self, batch):\n        return thing",
    )
    problems = notebook.problems()
    notebook.run("coroutine.close()\nif hasattr(thing, 'close'): thing.close()\ndel thing")
    assert problems == [
        f"thing ({type_name}, from In [3]) cannot travel to the ranks: {reason}; "
        f"{remedy} in Trial.__init__ instead (Trial.train_batch uses thing)"
    ]
    assert not notebook.blobs.root.exists()


def test_all_of_them_are_named_at_once_with_their_paths(notebook: Notebook) -> None:
    notebook.run(
        "state = {'step': 1, 'lock': threading.Lock()}",
        """
class Helper:
    def __init__(self):
        self.name = "helper"
        self.conn = sqlite3.connect(":memory:")
helper = Helper()
""",
        "nested = [1, (2, {'q': queue.Queue()})]",
        "def make():\n    lock = threading.Lock()\n    def step(): return lock\n    return step\n"
        "step = make()",
        "def with_default(x=threading.Lock()): return x",
        "import functools\ncall = functools.partial(print, threading.Event())",
        """
class Trial:
    guard = threading.Lock()
    def __init__(self): self.used = [state, helper]
    def train_batch(self): return call() or deeper()
def deeper(): return step(), with_default(), nested
""",
    )
    assert [problem.partition(" cannot")[0] for problem in sorted(notebook.problems())] == [
        "Trial.guard (lock, from In [8])",
        "call.args[0] (Event, from In [7])",
        "helper.conn (Connection, from In [3])",
        "nested[1][1]['q'] (Queue, from In [4])",
        "state['lock'] (lock, from In [2])",
        "step.<locals>.lock (lock, from In [5])",
        "with_default(x=...) (lock, from In [6])",
    ]
    notebook.run("helper.conn.close()")


def test_several_in_one_variable_are_named_each(notebook: Notebook) -> None:
    notebook.run(
        "both = {'a': threading.Lock(), 'b': (i for i in ())}", "class Trial:\n    x = both"
    )
    assert [p.partition(" cannot")[0] for p in notebook.problems()] == [
        "Trial.x['a'] (lock, from In [3])",
        "Trial.x['b'] (generator, from In [3])",
    ]


def test_an_object_in_a_cycle_is_named_once(notebook: Notebook) -> None:
    notebook.run(
        """
class Node:
    def __init__(self, parent=None): self.parent = parent; self.children = []
tree = Node(); tree.children.append(Node(tree)); tree.lock = threading.Lock()
""",
        "class Trial:\n    def f(self): return tree",
    )
    assert [p.partition(" cannot")[0] for p in notebook.problems()] == [
        "tree.lock (lock, from In [2])"
    ]


def test_the_notebooks_shell_is_refused(notebook: Notebook) -> None:
    notebook.run("class Trial:\n    def f(self): get_ipython().run_line_magic('pwd', '')")
    assert notebook.problems() == [
        "get_ipython (InteractiveShell) cannot travel to the ranks: it is the notebook's own "
        "shell; the ranks have none: leave it out of the trial (Trial.f uses get_ipython)"
    ]


def test_a_handle_of_an_experiment_is_refused(notebook: Notebook) -> None:
    notebook.run(
        "from det_jupyter.client.handles.experiment import Experiment\n"
        "experiment = Experiment.__new__(Experiment)",
        "class Trial:\n    def f(self): return experiment.id",
    )
    assert notebook.problems() == [
        "experiment (Experiment, from In [2]) cannot travel to the ranks: it is a handle of this "
        "notebook; give the trial what it needs from it as a hyperparameter or a plain value "
        "(Trial.f uses experiment)"
    ]


def test_whatever_else_cannot_be_pickled_is_named_with_the_error(notebook: Notebook) -> None:
    notebook.run(
        """
class Stubborn:
    def __reduce__(self): raise RuntimeError("not me\\nreally")
things = [1, Stubborn()]
""",
        "class Trial:\n    def f(self): return things",
    )
    assert notebook.problems() == [
        "things[1] (Stubborn, from In [2]) cannot travel to the ranks: not me (RuntimeError); "
        "make it in Trial.__init__ instead (Trial.f uses things)"
    ]


def test_drivers_connections_are_recognised_by_their_name(notebook: Notebook) -> None:
    notebook.run(
        """
class FancyConnection:
    def __reduce__(self): raise TypeError("no")
db = FancyConnection()
""",
        "class Trial:\n    def f(self): return db",
    )
    assert notebook.problems() == [
        "db (FancyConnection, from In [2]) cannot travel to the ranks: a database connection "
        "belongs to this process; open it in Trial.__init__ instead (Trial.f uses db)"
    ]


def test_objects_known_by_their_name_only_are_refused(notebook: Notebook) -> None:
    notebook.run("import typing\nP = typing.ParamSpec('P')", "class Trial:\n    def f(self): P")
    assert notebook.problems() == [
        "P (ParamSpec, from In [2]) cannot travel to the ranks: pickle knows it only by its name "
        "in this notebook; define it in a module beside the notebook (Trial.f uses P)"
    ]


def test_what_works_anywhere_is_not_refused(notebook: Notebook) -> None:
    notebook.run(
        """
import logging
text = io.StringIO("text")
data = io.BytesIO(b"data")
out = sys.stdout
log = logging.getLogger("mine")
view = memoryview(b"abc")
numbers = iter([1, 2, 3])
""",
        """
class Trial:
    def f(self):
        out.write("")
        return [text.read(), data.read().decode(), log.name, bytes(view).decode(), list(numbers)]
    def leave(self): exit()
""",
    )
    shown = notebook.in_rank(notebook.capture(), "show(Trial().f())")
    assert shown == ["text", "data", "mine", "abc", [1, 2, 3]]


def test_names_that_the_trial_does_not_use_may_be_anything(notebook: Notebook) -> None:
    notebook.run(
        "lock = threading.Lock()\ndef unrelated(): return lock",
        "class Trial:\n    def f(self, lock): return lock",
    )
    assert notebook.problems() == []


def test_an_iterator_over_a_data_loader_is_named_with_its_remedy(notebook: Notebook) -> None:
    notebook.run(
        "import torch\nbatches = iter(torch.utils.data.DataLoader([1]))",
        "class Trial:\n    def train_batch(self, batch):\n        return next(batches)",
    )
    (problem,) = notebook.problems()
    assert problem.startswith("batches (_SingleProcessDataLoaderIter, from In [2]) cannot travel")
    assert "leave it out, and return the DataLoader from build_training_data_loader" in problem
