"""The layers of DESIGN: which part may import which. The arrows are data; `ast` checks them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from tests import mutants
from tests.rooms import (
    CONTRACT,
    PACKAGE,
    PAGE,
    ROOT,
    draw,
    imports_of,
    modules,
    modules_with,
    part_of,
    room_graph,
    room_of,
    sentences_read,
    texts_of,
    tree,
)

# part: what it may import, besides itself and the contract
ARROWS: dict[str, set[str]] = {
    "__init__": {"client", "core", "front", "hp", "pytorch"},  # for type checkers; imported late
    "__main__": {"front"},
    "config": {"searcher"},
    "searcher": set(),
    "scheduler": {"config"},
    "diagnosis": set(),
    "storage": set(),
    "engine": set(),
    "hp": set(),
    "connection": {"config"},
    "view": set(),
    "client": {"config", "connection", "diagnosis", "storage", "view"},
    "front": {"client", "config", "connection", "master", "view"},
    "reader": {"client", "config", "connection", "master", "view"},
    "master": {
        "config", "connection", "diagnosis", "engine", "scheduler", "searcher", "storage",
    },
    "trackers": {"client", "config", "connection"},  # a client of the master, started by it
    # Who is next among a computer's users; `unmanaged` is started by a user's process.
    "agent": {"connection", "scheduler", "storage"},
    "core": {"storage", "config"},
    "pytorch": {"core", "storage", "config"},
    "integrations": {"core"},  # the Core API, as a user of it
    "launch": {"core", "pytorch", "storage", "config"},  # `trial` is a rank; the others start fast
    "rank": {"core", "pytorch", "storage", "config"},
}  # fmt: skip

# room of a part: which rooms of the same part it may import. "" is the modules in no room.
ROOMS: dict[str, dict[str, set[str]]] = {
    "contract": {
        "values": set(),
        "host": {"values"},
        "schema": {"values"},
        "messages": {"host", "values"},
        "documents": set(),
        "run": {"host", "messages", "values"},
        "trial": {"host", "messages", "trial.context_dir", "values"},
        "trial.context_dir": {"host", "messages", "values"},
    },
    "client": {
        "": set(),
        "following": {""},
        "diagnosing": {""},
        "imports": {""},
        "imports.determined": {"", "imports", "submitting"},
        "sharing": {"", "following", "imports"},
        "handles": {"", "diagnosing", "following", "imports", "sharing"},
        "submitting": {"", "handles"},
        "answers": {"", "handles"},
    },
    "front": {
        "verbs": set(),
        "cli": {"verbs"},
        "assistants": {"cli", "verbs"},
        "jupyter_server": set(),
        "notebook": {"notebook.complete", "notebook.handles", "notebook.submit", "verbs"},
        "notebook.capture": set(),
        "notebook.handles": {"verbs"},
        "notebook.submit": {"notebook.capture", "notebook.handles", "verbs"},
        "notebook.complete": {"notebook.handles", "verbs"},
    },
    "agent": {
        "": {"devices", "hangs", "starting", "link", "runs", "sampler", "tunnel"},
        "devices": set(),
        "starting": set(),
        "tunnel": {"starting"},
        "hangs": {"runs"},
        "runs": {"devices", "starting", "tunnel"},
        "sampler": {"devices", "starting", "runs"},
        "link": {"devices", "runs", "sampler", "starting", "tunnel"},
        "unmanaged": {"link", "runs", "sampler"},
    },
    "master": {
        "": {
            "background", "delivery", "http", "machine.model", "sampling", "service",
            "service.committing", "service.storing",
        },
        "machine.model": set(),
        "machine.rules": {"machine.model"},
        "machine.handlers": {"machine.model", "machine.rules"},
        "machine": {"machine.model", "machine.handlers", "machine.rules"},
        "views": {"machine", "machine.model"},
        "sampling": set(),
        "service.storing": {"machine.model", "views"},
        "service.agents": {"machine", "machine.model"},
        "service.committing": {"machine", "machine.model", "machine.rules", "service.storing"},
        "service.reports": {
            "machine", "machine.model", "machine.rules", "service.agents", "service.committing",
        },
        "service": {
            "machine", "machine.model", "machine.rules", "sampling", "service.agents",
            "service.committing", "service.reports", "service.storing", "views",
        },
        "background": {
            "machine.model", "machine.rules", "sampling", "service", "service.agents",
            "service.committing", "service.storing",
        },
        "delivery": {"machine.model", "service", "service.storing"},
        "http": {
            "background", "delivery", "machine.handlers", "machine.model", "machine.rules",
            "sampling", "service", "service.agents", "service.reports", "service.storing", "views",
        },
    },
    "core": {"": {"ranks", "timings"}, "ranks": set(), "timings": set()},
    "scheduler": {"": set(), "reasons": {""}},
    "view": {
        "model": set(),
        "making": {"model"},
        "forms": {"making", "model"},
    },
    "pytorch": {
        "": set(),
        "data": {""},
        "parallel": {""},
        "reducers": {""},
        "steps": {"", "data", "parallel"},
        "trial": {"", "data", "parallel", "reducers", "steps"},
        "checkpoints": {"", "parallel", "steps", "trial"},
        "metrics": {"", "data", "parallel", "reducers", "trial"},
        "training": {
            "", "checkpoints", "data", "metrics", "parallel", "steps", "trial",
        },
        "experimental": {"", "checkpoints", "data", "reducers", "trial"},
        "deepspeed": {"", "checkpoints", "data", "metrics", "training", "trial"},
    },
}  # fmt: skip

# Parts and rooms that reach for nothing outside: facts in, answers out.
PURE = (
    "config", "contract.schema", "diagnosis", "scheduler", "searcher", "view",
    "master.machine", "master.machine.model", "master.machine.handlers", "master.machine.rules",
    "master.views",
)  # fmt: skip
IMPURE_MODULES = {
    "asyncio", "importlib", "logging", "multiprocessing", "os", "pathlib", "random", "socket",
    "sqlite3", "subprocess", "threading", "time", "torch",
}  # fmt: skip
SEEDED = "random.Random"  # a generator of one's own; the module's functions share a hidden one
TORCH_IS_ALLOWED_IN = {"integrations", "core", "launch", "pytorch", "rank", "contract.trial"}


@pytest.mark.parametrize("part", sorted({part_of(path) for path in modules()}))
def test_a_part_imports_only_what_its_arrows_allow(part: str) -> None:
    allowed = CONTRACT | (set() if part in CONTRACT else ARROWS[part] | {part})
    wrong = [
        where
        for path in modules()
        if part_of(path) == part
        for name, where in imports_of(path)
        if name.startswith("det_jupyter.") and name.split(".")[1] not in allowed
    ]
    assert not wrong, f"{part} may import {sorted(allowed)}"


def test_only_the_training_library_and_the_ranks_import_torch() -> None:
    wrong = [
        where
        for path in modules()
        if TORCH_IS_ALLOWED_IN.isdisjoint({part_of(path), f"{part_of(path)}.{room_of(path)}"})
        for name, where in imports_of(path)
        if name.split(".")[0] == "torch"
    ]
    assert not wrong


def test_only_the_senders_and_the_import_of_runs_import_libraries_of_trackers() -> None:
    reader = PACKAGE / "client" / "imports" / "imported_runs.py"
    wrong = [
        where
        for path in modules()
        if part_of(path) != "trackers" and path != reader
        for name, where in imports_of(path)
        if name.split(".")[0] in ("mlflow", "wandb")
    ]
    assert not wrong


def test_only_the_process_that_transfers_imports_obstore() -> None:
    room = "det_jupyter.storage.buckets"
    own = {
        "obstore",
        f"{room}.objects",
        f"{room}.opening",
        f"{room}.leftovers",
        f"{room}.sweeping",
        f"{room}.probes",
    }
    wrong = [
        where
        for path in modules()
        for name, where in imports_of(path)
        if any(name == each or name.startswith(f"{each}.") for each in own)
        and module_name(path) not in {*own, f"{room}.__main__"}
    ]
    assert not wrong, "obstore hangs in processes that were forked: use process.transfers"


@pytest.mark.parametrize("part", ROOMS)
def test_a_room_imports_only_what_its_arrows_allow(part: str) -> None:
    graph, allowed = room_graph(part), ROOMS[part]
    assert graph.keys() == allowed.keys()
    for room, targets in graph.items():
        assert targets <= allowed[room], f"{part}/{room} imports {targets - allowed[room]}"


@pytest.mark.parametrize("part", ROOMS)
def test_rooms_have_no_circles(part: str) -> None:
    assert_no_circles(ROOMS[part])


def test_pure_parts_reach_for_nothing_outside() -> None:
    wrong = [
        where
        for path in modules()
        if part_of(path) in PURE or f"{part_of(path)}.{room_of(path)}" in PURE
        for name, where in imports_of(path)
        if name.split(".")[0] in IMPURE_MODULES and name != SEEDED
    ]
    assert not wrong


def test_no_module_imports_in_a_circle() -> None:
    """Late imports count as well; the package's own lookup of names is left out."""
    graph = {module_name(path): {name for name, _ in imports_of(path)} for path in modules()}
    assert_no_circles({name: targets for name, targets in graph.items() if name != "det_jupyter"})


def assert_no_circles(graph: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, trail: list[str]) -> None:
        assert name not in trail, " → ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for target in sorted(graph[name] & graph.keys()):
                visit(target, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_belongs_to_one_part_of_the_mutants() -> None:
    parts = mutants.parts()
    kept = sorted(path for paths in parts.values() for path in paths)
    with_functions = [
        path.relative_to(ROOT)
        for path in modules()
        if any(isinstance(node, mutants.Defined) for node in ast.walk(tree(path)))
    ]
    assert kept == with_functions
    parts_of_folder = {(path.parent, part) for part, paths in parts.items() for path in paths}
    folders = [folder for folder, _ in parts_of_folder]
    assert len(folders) == len(set(folders)), "a room is in two parts"


def test_each_part_of_the_mutants_has_faults_and_tests() -> None:
    for part, paths in mutants.parts().items():
        assert any(mutants.mutants_of(paths)), part
        for place in mutants.tests_of(part):
            path = ROOT / place
            assert path.is_file() or list(path.rglob("test_*.py")), f"{place} has no tests"


# Who speaks to a reader writes the lines to type; all others have them as data.
_READER = "contract/values/reader.py"
NOTEBOOKS_LINES = ("front/notebook/", _READER)
SHELLS_LINES = ("front/assistants/", "front/cli/", _READER)
_NOTEBOOKS = re.compile(r"%det|%pip|(?<![\w{])!(?:det|kill|ls|pip)\b")
_SHELLS = re.compile(r"`det [a-z{]|^det [a-z]")
_EITHER = re.compile(rf"{_NOTEBOOKS.pattern}|\bdet [a-z{{]")


@pytest.mark.parametrize(
    ("pattern", "allowed"), [(_NOTEBOOKS, NOTEBOOKS_LINES), (_SHELLS, SHELLS_LINES)]
)
def test_lines_to_type_are_written_where_their_readers_are_spoken_to(
    pattern: re.Pattern[str], allowed: tuple[str, ...]
) -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for path in modules_with(_EITHER)
        if not path.relative_to(PACKAGE).as_posix().startswith(allowed)
        for line, text in texts_of(path)
        if pattern.search(text)
    ]
    assert not wrong, "pass the Reader, or have the line as data"


# Sentences of others (the kernel, torch, gloo, NCCL, the driver, regex, PyYAML), and repeated
# sentences.
READS_SENTENCES = {
    "config/yaml_salvage.py",
    "agent/devices/kernel_log.py", "agent/devices/watch.py", "agent/devices/xid_log.py",
    "agent/sampler/gpu_watch.py",
    "contract/trial/captured.py",
    "core/device_errors.py", "core/peer_errors.py",
    "core/tracebacks.py", "master/service/storing/stored_logs.py", "pytorch/parallel/replicas.py",
    "pytorch/training/init.py", "rank/endings.py",
}  # fmt: skip


def test_nothing_is_read_back_out_of_a_sentence_of_ours() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)}:{line}: {code}"
        for path in modules()
        if str(path.relative_to(PACKAGE)) not in READS_SENTENCES
        for line, code in sentences_read(path)
    ]
    assert not wrong, "have what is looked for as data (errors.Problem, wire.Remedy)"


def test_frames_of_threads_are_read_where_nothing_is_collected_meanwhile() -> None:
    readers = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        if re.search(r"sys\._current_(?:frames|exceptions)\(", path.read_text())
    }
    assert readers == {"contract/host/own_threads.py"}


# Classes that share a name, each with the reason.
SHARED_NAMES = {
    "DetCallback": "one for each library; a user imports one of them",
    "Experiment": "the user's handle, and the master's state",
    "Model": "the user's handle, and the master's state",
    "Trial": "the user's handle, and the master's state",
}


def test_no_two_classes_have_the_same_name() -> None:
    names = Counter(
        node.name
        for path in modules()
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    shared = {name for name, number in names.items() if number > 1}
    assert shared == SHARED_NAMES.keys(), "name each one after what it is"


def test_each_broad_except_gives_its_reason() -> None:
    """On its line or on the line above: what may be raised, or why nothing may pass."""
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in modules()
        for above, (number, line) in pairwise(_numbered(path))
        if _BROAD.search(line)
        if "  # " not in line and not above[1].lstrip().startswith("# ")
    ]
    assert not wrong, "name the classes that can come, or write the reason"


_BROAD = re.compile(r"\bexcept\*?:|\b(?:except|suppress)\b.*\b(?:Base)?Exception\b")


def _numbered(path: Path) -> list[tuple[int, str]]:
    return list(enumerate(path.read_text(encoding="utf-8").splitlines(), 1))


def test_nothing_waits_by_what_loses_a_cancellation() -> None:
    """On Python 3.11 `asyncio.wait_for` forgets that it was cancelled if the result has just come.

    A loop around it then goes on for ever. `asyncio.timeout` does not.
    """
    users = [path for path in modules() if "asyncio.wait_for(" in path.read_text()]
    assert users == []


def test_the_drawing_shows_the_parts_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert draw(page) == page, "run `python -m tests.rooms`"


# Files that docstrings name though they are a user's, or another package's.
_OUTSIDE = {"nets/wide.py", "src/train.py", "a/__init__.py", "b/__init__.py", "c/d.py"}


def test_files_that_sources_name_exist() -> None:
    tests = (ROOT / "tests").rglob("*.py")
    kept = [f"/{path.relative_to(ROOT).as_posix()}" for path in [*modules(), *tests]]
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in [*modules(), *(ROOT / "labextension" / "src").rglob("*.ts")]
        for name in re.findall(r"(?<![\w/])[a-z_]+(?:/\w+)+\.py\b", path.read_text())
        if name not in _OUTSIDE and not name.startswith("torch/")
        if not any(file.endswith(f"/{name}") for file in kept)
    ]
    assert missing == []
