"""Each example imports only what the install that it names brings."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(p for p in (ROOT / "examples").rglob("*") if p.suffix in (".ipynb", ".py"))
OURS = "det-jupyter"
DEV_TOOLS = {"demo.py"}  # `make demo` runs it, with all that tests need


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_imports_what_the_install_that_it_names_brings(file: Path) -> None:
    head, code = read(file)
    named = re.search(r"pip install 'det-jupyter\[([\w,-]+)\]'", head)
    extras = named[1].split(",") if named else ["test"] if file.name in DEV_TOOLS else []
    brought = closure(extras)
    homes = homes_of_modules()
    own = {path.stem for path in file.parent.glob("*.py")} | {"examples", "det_jupyter"}
    needed = set(imports(ast.parse(code))) - sys.stdlib_module_names - own
    for module in needed:
        assert module in homes, f"no module named '{module}': the extra `test` has to bring it"
    lacking = {
        module
        for module in needed
        if not brought & {canonicalize_name(home) for home in homes[module]}
    }
    assert lacking == set(), f"{file.name} names the extras {extras}"


@cache
def homes_of_modules() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()


def read(file: Path) -> tuple[str, str]:
    """Return the first lines of an example, and its Python."""
    if file.suffix == ".py":
        text = file.read_text()
        return text.partition("\nimport ")[0], text
    cells = nbformat.read(file, as_version=4).cells
    code = [c.source for c in cells if c.cell_type == "code" and not c.source.startswith("%%")]
    lines = "\n".join(code).splitlines()
    return cells[0].source, "\n".join(line for line in lines if not line.startswith(("%", "!")))


def imports(node: ast.AST) -> Iterator[str]:
    """Return the names of modules that it cannot do without."""
    if isinstance(node, ast.Try):  # `except ImportError`: it can
        return
    if isinstance(node, ast.Import):
        yield from (name.name.partition(".")[0] for name in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield (node.module or "").partition(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from imports(child)


def closure(extras: Iterable[str]) -> set[str]:
    """Return the distributions that our package brings with these extras."""
    found: set[tuple[str, str]] = set()
    wanted = [(OURS, extra) for extra in ("", *extras)]
    while wanted:
        name, extra = place = wanted.pop()
        if place in found:
            continue
        found.add(place)
        for requirement in requirements(name, extra):
            next_name = canonicalize_name(requirement.name)
            wanted += [(next_name, each) for each in ("", *requirement.extras)]
    return {name for name, _ in found}


@cache
def requirements(name: str, extra: str) -> list[Requirement]:
    if name == OURS:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
        return [Requirement(line) for line in lines]
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # for another platform, or not installed here
        return []
    parsed = [Requirement(line) for line in lines]
    return [r for r in parsed if r.marker is None or r.marker.evaluate({"extra": extra})]
