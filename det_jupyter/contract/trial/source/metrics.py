"""Which metrics code reports, and whether its source is certain to name all of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from det_jupyter.contract.trial.source.syntax import Function, returns_of, texts

_EVALUATE = ("evaluate_batch", "evaluate_full_dataset")


@dataclass(frozen=True, slots=True)
class Returned:
    """The metrics that a method returns.

    Args:
        names: Those that are seen.
        is_all: There are no others: every `return` gives a dict that spells its keys out.
    """

    names: list[str]
    is_all: bool


def returned_metrics(method: Function) -> Returned:
    """Return the keys of the dicts that a method returns."""
    values = [each.value for each in returns_of(method)]
    names = [name for value in values if value is not None for name in _keys_of(value, method)]
    is_plain = bool(values) and not method.decorator_list
    return Returned(list(dict.fromkeys(names)), is_plain and all(map(_is_spelled_out, values)))


def metrics_reported(parts: Sequence[ast.AST]) -> list[str]:
    """Return the metrics of validations that code is seen to report."""
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
    """Return the keys that a dict is seen to have: written out, or put into the name of one."""
    match value:
        case ast.Dict(keys=keys):
            return texts([key for key in keys if key is not None])
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            return [each.arg for each in keywords if each.arg is not None]
        case ast.Name(id=name):
            return [key for each in where for key in _put_into(name, each)]
    return []


def _put_into(name: str, where: ast.AST) -> Iterator[str]:
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
