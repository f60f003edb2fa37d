"""The layers of DESIGN: which part may import which. The arrows are data; `ast` checks them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "det_jupyter"
CONTRACT = {
    "_version", "births", "blobs", "bounds", "capsule", "clock", "control", "daemon", "errors",
    "ownership", "paths", "pdeathsig", "programs", "records", "rundir", "wire", "words",
}  # fmt: skip

# part: what it may import, besides itself and the contract
ARROWS: dict[str, set[str]] = {
    "__init__": set(),
    "config": set(),
    "searcher": {"config"},
    "scheduler": {"config"},
    "session": {"config"},
    "autostart": {"config", "session"},
    "client": {"config", "session"},
    "storage": {"config"},
    "notebook": {"client", "session", "autostart", "config"},
    "engine": set(),
    "master": {"searcher", "scheduler", "config", "engine", "session", "autostart"},
    "agent": set(),
    "core": {"storage", "config"},
    "pytorch": {"core", "storage", "config"},
    "worker": {"core", "pytorch", "storage", "config"},
}
# In master/ this is the shell: all the rest of it is pure.
SHELL = {
    "__init__", "__main__", "api", "cli", "connections", "consult", "deleting", "door", "feed",
    "ingest", "keeper", "leaving", "links", "log_rows", "matching", "pools_file",
    "publishing", "quarantine",
    "restoring", "routes_agents", "routes_cluster", "routes_experiments", "routes_keeping",
    "routes_master", "routes_search", "routes_templates", "rows", "sampling", "serve", "service",
    "store", "tidying", "work",
}  # fmt: skip
IMPURE_MODULES = {
    "asyncio", "logging", "multiprocessing", "os", "pathlib", "socket", "sqlite3", "subprocess",
    "threading", "time", "torch",
}  # fmt: skip
TORCH_IS_ALLOWED_IN = {"core", "pytorch", "worker", "capsule"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the full name of every module that the file imports, wherever in it, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            if node.module == "det_jupyter":
                yield from ((f"det_jupyter.{alias.name}", node.lineno) for alias in node.names)
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


def pure_modules() -> list[Path]:
    return [
        path
        for path in modules()
        if part_of(path) in ("searcher", "scheduler", "config")
        or (part_of(path) == "master" and path.stem not in SHELL)
    ]


@pytest.mark.parametrize("path", pure_modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_pure_parts_reach_for_nothing_outside(path: Path) -> None:
    wrong = [
        f"line {line}: {name}"
        for name, line in imports_of(path)
        if name.split(".")[0] in IMPURE_MODULES
        or (name.startswith("det_jupyter.master.") and name.split(".")[2] in SHELL)
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
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            known = [s for s in submodules if (PACKAGE.parent / s.replace(".", "/")).exists()
                     or (PACKAGE.parent / (s.replace(".", "/") + ".py")).exists()]  # fmt: skip
            yield from ((name, node.lineno) for name in known or [node.module])
        elif isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
