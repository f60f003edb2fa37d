"""The parts of a source that make a trial: definitions, methods, and what they return."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import FunctionType

from det_jupyter.contract.trial.context_dir.modules import parse_module

Function = ast.FunctionDef | ast.AsyncFunctionDef


def method_of(class_: type, name: str) -> Function | None:
    """Return a method of a class that is loaded, parsed; None if its source is not known."""
    part = getattr(class_, name, None)
    part = inspect.unwrap(part) if callable(part) else None
    if not isinstance(part, FunctionType):
        return None
    with suppress(OSError, TypeError, SyntaxError):
        (found,) = parse_module(textwrap.dedent(inspect.getsource(part))).body
        return found if isinstance(found, Function) else None
    return None


def method_in(sources: Sequence[str], entrypoint: str) -> Callable[[str], Function | None]:
    """Return what finds the methods of a class, also those of its bases in the same sources."""
    made = definitions(sources)

    def find(name: str) -> Function | None:
        for class_ in line_of(made, entrypoint):
            for part in class_.body:
                if isinstance(part, Function) and part.name == name:
                    return part
        return None

    return find


def definitions(sources: Sequence[str]) -> dict[str, Function | ast.ClassDef]:
    made: dict[str, Function | ast.ClassDef] = {}
    for source in sources:
        for part in _parsed(source):
            if isinstance(part, ast.ClassDef | Function):
                made[part.name] = part
    return made


def _parsed(source: str) -> list[ast.stmt]:
    """Return the statements of a cell; those of magics and the shell are left out."""
    plain = "\n".join(
        "" if line.lstrip()[:1] in ("%", "!", "?") else line for line in source.splitlines()
    )
    for text in (source, plain):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return parse_module(text).body
    return []


def line_of(made: Mapping[str, ast.AST], name: str) -> Iterator[ast.ClassDef]:
    """Yield a class and its bases, as far as the sources have them."""
    queued, seen = [name], set()
    while queued:
        class_ = made.get(queued[0])
        seen.add(queued.pop(0))
        if isinstance(class_, ast.ClassDef):
            yield class_
            bases = [each.id for each in class_.bases if isinstance(each, ast.Name)]
            queued += [each for each in bases if each not in seen]


def reached(made: Mapping[str, ast.AST], name: str) -> Iterator[ast.AST]:
    """Yield a definition and all that it names, and they name."""
    queued, seen = [name], {name}
    while queued:
        part = made[queued.pop(0)]
        yield part
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and node.id in made and node.id not in seen:
                seen.add(node.id)
                queued.append(node.id)


def texts(nodes: Sequence[ast.expr]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def returns_of(node: ast.AST) -> Iterator[ast.Return]:
    """Yield the return statements of a function, not those of functions inside of it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from returns_of(child)
