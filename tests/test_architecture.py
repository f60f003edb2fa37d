"""The layers of DESIGN: which part may import which. The arrows are data; `ast` checks them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "det_jupyter"
# What any part may import.
CONTRACT = {
    "_version", "blobs", "bounds", "capsule", "control", "direction", "errors", "records",
    "system", "wire", "words",
}  # fmt: skip

# part: what it may import, besides itself and the contract
ARROWS: dict[str, set[str]] = {
    "__init__": {"core", "notebook", "pytorch"},  # for type checkers; imported when first used
    "config": set(),
    "searcher": {"config"},
    "scheduler": {"config"},
    "session": {"config"},
    "autostart": {"config", "session"},
    "client": {"config", "session"},
    "view": set(),
    "verbs": {"client", "config"},
    "storage": {"config"},
    "notebook": {"client", "session", "autostart", "config", "verbs", "view"},
    "engine": set(),
    "master": {"searcher", "scheduler", "config", "engine", "session", "autostart"},
    "agent": set(),
    "core": {"storage", "config"},
    "pytorch": {"core", "storage", "config"},
    "worker": {"core", "pytorch", "storage", "config"},
}

# room of a part: which rooms of the same part it may import. "" is the modules on top.
ROOMS: dict[str, dict[str, set[str]]] = {
    "master": {
        "": {"chores", "http", "machine.core", "sampling", "service"},
        "machine.core": set(),
        "machine.rules": {"machine.core"},
        "machine.on": {"machine.core", "machine.rules"},
        "machine": {"machine.core", "machine.on", "machine.rules"},
        "views": {"machine", "machine.core"},
        "sampling": set(),
        "service": {"machine", "machine.core", "machine.rules", "sampling", "views"},
        "chores": {"machine.core", "machine.rules", "sampling", "service"},
        "http": {"machine.core", "machine.on", "machine.rules", "service", "views"},
    },
    "scheduler": {"": set(), "deciding": {""}, "reasons": {"", "deciding"}},
    "view": {
        "": {"build", "forms", "model"},
        "model": set(),
        "build": {"", "model"},
        "forms": {"", "build", "model"},
    },
    "notebook": {
        "": {"complete", "submit", "verbs"},
        "capture": set(),
        "handles": set(),
        "submit": {"capture", "handles"},
        "complete": {"handles"},
        "verbs": {"handles", "submit"},
    },
    "pytorch": {
        "": {"checkpoints", "data", "reducers", "run", "steps", "training", "trial"},
        "run": set(),
        "data": {""},
        "ranks": set(),
        "parallel": {""},
        "reducers": {"", "ranks"},
        "steps": {"", "data", "parallel"},
        "trial": {"", "data", "parallel", "reducers", "steps"},
        "checkpoints": {"", "parallel", "ranks", "run", "trial"},
        "metrics": {"", "data", "parallel", "ranks", "reducers", "run", "trial"},
        "training": {
            "", "checkpoints", "data", "metrics", "parallel", "ranks", "run", "steps", "trial",
        },
        "experimental": {"checkpoints", "data", "ranks", "reducers", "trial"},
    },
}  # fmt: skip

# Parts and rooms that reach for nothing outside: facts in, answers out.
PURE = (
    "config", "scheduler", "searcher", "view",
    "master.machine", "master.machine.core", "master.machine.on", "master.machine.rules",
    "master.views",
)  # fmt: skip
IMPURE_MODULES = {
    "asyncio", "importlib", "logging", "multiprocessing", "os", "pathlib", "random", "socket",
    "sqlite3", "subprocess", "threading", "time", "torch",
}  # fmt: skip
SEEDED = "random.Random"  # a generator of one's own; the module's functions share a hidden one
TORCH_IS_ALLOWED_IN = {"core", "pytorch", "worker", "capsule"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of(path: Path) -> str:
    """Return the folders between the part and the file, dotted: `machine.core`."""
    return ".".join(path.relative_to(PACKAGE).parts[1:-1])


def file_of(module: str) -> Path:
    path = PACKAGE.parent / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the full name of every module that the file imports, wherever in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            if node.module in ("det_jupyter", "random"):
                yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
            else:
                yield node.module, node.lineno


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_part_imports_only_what_its_arrows_allow(path: Path) -> None:
    part = part_of(path)
    allowed = CONTRACT | (set() if part in CONTRACT else ARROWS[part] | {part})
    wrong = [
        f"line {line}: {name}"
        for name, line in imports_of(path)
        if name.startswith("det_jupyter.") and name.split(".")[1] not in allowed
    ]
    assert not wrong, f"{part} may import {sorted(allowed)}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_only_the_training_library_and_the_ranks_import_torch(path: Path) -> None:
    names = {name.split(".")[0] for name, _ in imports_of(path)}
    assert "torch" not in names or part_of(path) in TORCH_IS_ALLOWED_IN


@pytest.mark.parametrize(
    "path",
    [p for p in modules() if part_of(p) in ROOMS],
    ids=lambda p: str(p.relative_to(PACKAGE)),
)
def test_a_room_imports_only_what_its_arrows_allow(path: Path) -> None:
    rooms = ROOMS[part_of(path)]
    allowed = rooms[room_of(path)] | {room_of(path)}
    wrong = [
        f"line {line}: {name}"
        for name, line in resolved_imports_of(path)
        if name.startswith(f"det_jupyter.{part_of(path)}.")
        and room_of(file_of(name)) not in allowed
    ]
    assert not wrong, f"{room_of(path) or 'the top'} may import {sorted(allowed)}"


@pytest.mark.parametrize("part", ROOMS)
def test_rooms_have_no_circles_and_none_is_left_over(part: str) -> None:
    rooms = ROOMS[part]
    assert set(rooms) == {room_of(path) for path in modules() if part_of(path) == part}

    def visit(room: str, trail: list[str]) -> None:
        assert room not in trail, " → ".join([*trail, room])
        for target in rooms[room]:
            if target:  # modules on top may be loose ones, or those that put the rooms together
                visit(target, [*trail, room])

    for room in rooms:
        visit(room, [])


def pure_modules() -> list[Path]:
    return [
        path
        for path in modules()
        if part_of(path) in PURE or f"{part_of(path)}.{room_of(path)}" in PURE
    ]


@pytest.mark.parametrize("path", pure_modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pure_parts_reach_for_nothing_outside(path: Path) -> None:
    wrong = [
        f"line {line}: {name}"
        for name, line in imports_of(path)
        if name.split(".")[0] in IMPURE_MODULES and name != SEEDED
    ]
    assert not wrong


def test_no_module_imports_in_a_circle() -> None:
    graph = {
        module_name(path): {name for name, _ in module_level_imports(path)} for path in modules()
    }
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


def module_level_imports(path: Path) -> Iterator[tuple[str, int]]:
    """Yield imports that run when the module does, names imported from packages resolved."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return resolved(tree.body)


def resolved_imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield all imports, wherever they are, names imported from packages resolved."""
    return resolved(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def resolved(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            known = [name for name in submodules if file_of(name).exists()]
            yield from ((name, node.lineno) for name in known or [node.module])
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
