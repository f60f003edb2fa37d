"""The definitions in the source of a trial, and the metrics that it reports. Nothing is run.

return {"val_loss": ...}                                   of an evaluating method
report_validation_metrics(metrics={"val_loss": ...})
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType

from det_jupyter.contract.trial.context_dir.python_modules import parse_module

Function = ast.FunctionDef | ast.AsyncFunctionDef


def method_of(class_: type, name: str) -> Function | None:
    """Return the parsed method of a loaded class; None if there is no source."""
    part = getattr(class_, name, None)
    return function_of(inspect.unwrap(part)) if callable(part) else None


def function_of(part: object) -> Function | None:
    """Return the parsed source of a loaded function; None if it is none or has no source."""
    if not isinstance(part, FunctionType):
        return None
    with suppress(OSError, TypeError, SyntaxError):
        (found,) = parse_module(textwrap.dedent(inspect.getsource(part))).body
        return found if isinstance(found, Function) else None
    return None


def method_in(sources: Sequence[str], entrypoint: str) -> Callable[[str], Function | None]:
    """Return a function that finds a method of a class by name, also in its bases.

    Only bases in the same sources are searched.
    """
    made = definitions(sources)

    def find(name: str) -> Function | None:
        for class_ in classes_of(made, entrypoint):
            for part in class_.body:
                if isinstance(part, Function) and part.name == name:
                    return part
        return None

    return find


def definitions(sources: Sequence[str]) -> dict[str, Function | ast.ClassDef]:
    """Return the top-level classes and functions by name; the last definition counts."""
    made: dict[str, Function | ast.ClassDef] = {}
    for source in sources:
        for part in _parsed(source):
            if isinstance(part, ast.ClassDef | Function):
                made[part.name] = part
    return made


def _parsed(source: str) -> list[ast.stmt]:
    """Return the statements of a cell, without lines of magics, shell commands and help."""
    plain = "\n".join(
        "" if line.lstrip()[:1] in ("%", "!", "?") else line for line in source.splitlines()
    )
    for text in (source, plain):
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return parse_module(text).body
    return []


def classes_of(made: Mapping[str, ast.AST], name: str) -> Iterator[ast.ClassDef]:
    """Yield a class and its bases, as far as the sources define them."""
    queued, seen = [name], set()
    while queued:
        class_ = made.get(queued[0])
        seen.add(queued.pop(0))
        if isinstance(class_, ast.ClassDef):
            yield class_
            bases = [each.id for each in class_.bases if isinstance(each, ast.Name)]
            queued += [each for each in bases if each not in seen]


def reached(made: Mapping[str, ast.AST], name: str) -> Iterator[ast.AST]:
    """Yield a definition, and all definitions that it uses, directly or not."""
    queued, seen = [name], {name}
    while queued:
        part = made[queued.pop(0)]
        yield part
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and node.id in made and node.id not in seen:
                seen.add(node.id)
                queued.append(node.id)


def texts(nodes: Sequence[ast.expr]) -> list[str]:
    """Return the values of those expressions that are constant strings."""
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def returns_of(node: ast.AST) -> Iterator[ast.Return]:
    """Yield the return statements of a function, without those of nested functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from returns_of(child)


_EVALUATE = ("evaluate_batch", "evaluate_full_dataset")


@dataclass(frozen=True, slots=True)
class Returned:
    """The metrics that a method returns.

    Args:
        names: The metrics that appear in the source.
        is_all: Whether there are no others: every `return` has a dict display with constant keys.
    """

    names: list[str]
    is_all: bool


def returned_metrics(method: Function) -> Returned:
    """Return the keys of the dicts that a method returns, as far as its source shows."""
    values = [each.value for each in returns_of(method)]
    names = [name for value in values if value is not None for name in _keys_of(value, method)]
    is_plain = bool(values) and not method.decorator_list
    return Returned(list(dict.fromkeys(names)), is_plain and all(map(_is_spelled_out, values)))


def metrics_reported(parts: Sequence[ast.AST]) -> list[str]:
    """Return the names of validation metrics that appear in the source of the code."""
    names: list[str] = []
    for node in (node for part in parts for node in ast.walk(part)):
        if isinstance(node, Function) and node.name in _EVALUATE:
            names += returned_metrics(node).names
        elif getattr(getattr(node, "func", None), "attr", "") == "report_validation_metrics":
            given = {each.arg: each.value for each in node.keywords}  # type: ignore[attr-defined]
            args = [*node.args[1:2], *filter(None, [given.get("metrics")])]  # type: ignore[attr-defined]
            names += [name for each in args for name in _keys_of(each, *parts)]
    return list(dict.fromkeys(names))


def _is_spelled_out(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Dict) and all(
        isinstance(key, ast.Constant) and isinstance(key.value, str) for key in value.keys
    )


def _keys_of(value: ast.expr, *where: ast.AST) -> list[str]:
    """Return the constant keys of a dict expression, or of the dict that a name in `where` has."""
    match value:
        case ast.Dict(keys=keys):
            return texts([key for key in keys if key is not None])
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return [each.arg for each in keywords if each.arg is not None]
        case ast.Name(id=name):
            return [key for each in where for key in _put_into(name, each)]
    return []


def _put_into(name: str, where: ast.AST) -> Iterator[str]:
    """Yield the constant keys that statements in `where` put into the dict `name`."""
    for node in ast.walk(where):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from _assigned(name, targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield from _assigned(name, [target], value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=each), attr="update")) if (
                each == name
            ):
                yield from (key for value in node.args for key in _keys_of(value))
                yield from (each.arg for each in node.keywords if each.arg is not None)


def _assigned(name: str, targets: Sequence[ast.expr], value: ast.expr) -> Iterator[str]:
    for target in targets:
        match target:
            case ast.Name(id=each) if each == name and not isinstance(value, ast.Name):
                yield from _keys_of(value)
            case ast.Subscript(value=ast.Name(id=each), slice=key) if each == name:
                yield from texts([key])
