"""Parts and rooms of the package and the imports between them, read from the code.

`python -m tests.rooms` draws the parts into docs/architecture.md.  A part is a folder or a loose
module of `det_jupyter/`; a room is a folder in a part, named by dots (`machine.core`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "det_jupyter"
PAGE = ROOT / "docs" / "architecture.md"
# Modules that any part may import; drawn as one box.
CONTRACT = {"_version", "contract", "errors"}

Graph = Mapping[str, set[str]]
_BEGIN, _END = "<!-- drawn by `python -m tests.rooms` -->\n", "<!-- end of the drawing -->\n"


@cache
def modules() -> tuple[Path, ...]:
    return tuple(sorted(PACKAGE.rglob("*.py")))


def modules_with(text: re.Pattern[str]) -> Iterator[Path]:
    """Yield the modules in which this is found: those that are worth to be parsed for it."""
    return (path for path in modules() if text.search(path.read_text(encoding="utf-8")))


@cache
def tree(path: Path) -> ast.Module:
    """Return the syntax tree of a module; it is parsed once."""
    return ast.parse(path.read_text(encoding="utf-8"))


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def room_of(path: Path) -> str:
    """Return the folders between the part and the file, joined by dots; "" if there are none."""
    return ".".join(path.relative_to(PACKAGE).parts[1:-1])


@cache
def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def module_level_imports(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the imports that run when the module is imported: full name, and file with line."""
    return _resolved(tree(path).body, path)


@cache
def imports_of(path: Path) -> tuple[tuple[str, str], ...]:
    """Return all imports, including those in functions: full name, and file with line."""
    return tuple(_resolved(ast.walk(tree(path)), path))


def part_graph() -> Graph:
    """Return which part imports which, the contract as one part, without the package's top."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        part = _drawn_part(path)
        targets = {_drawn_part(file_of(name)) for name, _ in imports_of(path) if _is_ours(name)}
        graph.setdefault(part, set()).update(targets - {part, "__init__"})
    del graph["__init__"]
    return graph


def room_graph(part: str) -> Graph:
    """Return which room of a part imports which, without the part's own exports."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        if part_of(path) == part and path.parent.name + path.name != f"{part}__init__.py":
            files = [file_of(name) for name, _ in imports_of(path) if _is_ours(name)]
            targets = {room_of(each) for each in files if part_of(each) == part}
            graph.setdefault(room_of(path), set()).update(targets - {room_of(path)})
    return graph


def reduced(graph: Graph) -> Graph:
    """Return the graph without the arrows that follow from other arrows."""

    def reach(node: str, seen: frozenset[str]) -> set[str]:
        targets = graph.get(node, set()) - seen
        return targets.union(*(reach(each, seen | targets) for each in targets))

    return {
        node: {t for t in targets if not any(t in reach(o, frozenset({node}))
                                             for o in targets - {t})}
        for node, targets in graph.items()
    }  # fmt: skip


def draw(page: str) -> str:
    """Return the page with the present drawing."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{_chart(reduced(part_graph()))}{_END}{after}"


def _chart(graph: Graph) -> str:
    """Return a Mermaid chart of a graph."""
    lines = ["```mermaid", "flowchart TD"]
    for node in sorted(graph):
        lines.append(f'    {_id(node)}["{node}"]')
    for node in sorted(graph):
        lines += [f"    {_id(node)} --> {_id(target)}" for target in sorted(graph[node])]
    return "\n".join([*lines, "```", ""])


def _id(node: str) -> str:
    return f"n_{node}"


def _drawn_part(path: Path) -> str:
    part = part_of(path)
    return "contract" if part in CONTRACT else part


def _is_ours(name: str) -> bool:
    return name.startswith("det_jupyter.")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the strings in a module's code with their lines, without docstrings."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        scope.body[0].value
        for scope in ast.walk(tree(path))
        if isinstance(scope, scopes) and scope.body and isinstance(scope.body[0], ast.Expr)
    }
    for node in ast.walk(tree(path)):
        match node:
            case ast.Constant(value=str(text), lineno=line) if node not in docstrings:
                yield line, text


def sentences_read(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the places where a module parses a sentence, or searches for words in it.

    Examples are `problem.partition(":")`, `"missing" in problem` and `str(error) == ABSENT`.
    """
    for node in ast.walk(tree(path)):
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr=attr), args=args):
                is_read = attr in _TAKES_APART and _is_sentence(of)
                is_read |= attr in _MATCHES and any(map(_is_sentence, args))
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[of]):
                is_read = _is_sentence(of)
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                is_read = any(isinstance(each, ast.Call) for each in (left, right)) and any(
                    map(_is_sentence, (left, right))
                )
            case _:
                continue
        if is_read:
            yield node.lineno, ast.unparse(node)


def _is_sentence(node: ast.AST) -> bool:
    """Return whether a node is `str(error)`, or has a name of sentences."""
    match node:
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name.endswith("error")
        case ast.Name(id=name):
            return name in ("message", "problem", "sentence")
    return False


_TAKES_APART = {"partition", "rpartition", "split", "removeprefix", "startswith", "replace"}
_MATCHES = {"match", "search", "fullmatch", "sub", "findall", "split"}


def _resolved(nodes: Iterable[ast.AST], path: Path) -> Iterator[tuple[str, str]]:
    """Yield names with `from package import module` resolved to the module."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            is_ours = node.module.split(".")[0] == PACKAGE.name
            known = [name for name in names if is_ours and file_of(name).exists()]
            found = known or ([node.module] if is_ours or node.module != "random" else names)
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        where = f"{path.relative_to(ROOT)}:{node.lineno}"
        yield from ((name, f"{where}: {name}") for name in found)


if __name__ == "__main__":
    PAGE.write_text(draw(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
