"""Finds the values of a configuration that an entrypoint's code needs, by its source.

Nothing is run. It recognises these expressions, also by other names that the code assigns to them:

    context.get_hparam("lr"), hparams["lr"], hparams.get("drop", 0.1), self.hparams.lr
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.contract.trial.source import (
    Function,
    definitions,
    metrics_reported,
    reached,
    returns_of,
    texts,
)

UNKNOWN = object()  # default of a hyperparameter for which the code has none
BATCH_SIZE = "global_batch_size"
Path = tuple[str, ...]

_ASK_BATCH_SIZE = {"get_per_slot_batch_size", "get_global_batch_size"}
_ALWAYS_RUN = (
    "__init__", "build_training_data_loader", "build_validation_data_loader", "train_batch",
)  # fmt: skip
_WRAPPERS = {
    "AttrDict", "Box", "DotDict", "EasyDict", "Munch", "Namespace", "SimpleNamespace", "copy",
    "deepcopy", "dict",
}  # fmt: skip
_OF_DICTS = {*dir(dict), *dir(object)}


def hparams_read(parts: Sequence[ast.AST]) -> dict[str, Any]:
    """Return the hyperparameters that code reads, with their defaults or `UNKNOWN`; nested."""
    reads = _Reads()
    for _ in range(2):  # an alias may be assigned below its use, in another method
        for part in parts:
            reads.visit(part)
    return _as_tree(reads.found)


def find_batch_size_reader(method_named: Callable[[str], Function | None]) -> str:
    """Return a method that needs `global_batch_size` in every run of a trial class; "" if none.

    Args:
        method_named: Returns the method of the class with a name, its own or inherited.
    """
    queued, seen = list(_ALWAYS_RUN), set(_ALWAYS_RUN)
    while queued:
        name = queued.pop(0)
        method = method_named(name)
        if method is None:
            continue
        nodes = list(ast.walk(method))
        if any(_is_guarded(node) for node in nodes):
            return ""  # the code checks whether there is one
        if any(_reads_batch_size(node) for node in nodes):
            return name
        called = [node.func.attr for node in nodes if _is_own_call(node)]  # type: ignore[attr-defined]
        queued += [each for each in dict.fromkeys(called) if each not in seen]
        seen.update(called)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """The hyperparameters that a function passes on to a helper, and its other arguments.

    Args:
        without: Hyperparameters that the function takes out before, or may take out.
        fixed: Names of the other arguments.
    """

    without: set[str]
    fixed: set[str]


def find_passed_on(function: Function, is_helper: Callable[[str], bool]) -> PassedOn | None:
    """Return the arguments of `helper(hparams, ...)` in every run; None if not certain.

    Args:
        function: The function, which has a parameter `hparams`.
        is_helper: Returns whether a global name is the helper.
    """
    if "hparams" not in {each.arg for each in function.args.args + function.args.kwonlyargs}:
        return None
    call = _find_certain_call(function, is_helper)
    if call is None:
        return None
    uses = _UsesOfHparams(call)
    for part in function.body:
        uses.visit(part)
    fixed = {each.arg for each in call.keywords if each.arg is not None}
    return None if uses.are_unclear else PassedOn(without=uses.taken, fixed=fixed)


def _find_certain_call(function: Function, is_helper: Callable[[str], bool]) -> ast.Call | None:
    """Return a call `helper(hparams, ...)` that each run of the function reaches."""
    for statement in function.body:
        for node in _certain_parts(statement):
            match node:
                case ast.Call(func=ast.Name(id=name), args=[ast.Name(id="hparams")]) if is_helper(
                    name
                ):
                    return node
        is_nested = isinstance(statement, Function | ast.ClassDef)
        if isinstance(statement, ast.Return) or (not is_nested and any(returns_of(statement))):
            return None
    return None


_UNCERTAIN = (
    ast.AsyncFor, ast.AsyncFunctionDef, ast.AsyncWith, ast.BoolOp, ast.ClassDef, ast.Compare,
    ast.DictComp, ast.For, ast.FunctionDef, ast.GeneratorExp, ast.If, ast.IfExp, ast.Lambda,
    ast.ListComp, ast.Match, ast.SetComp, ast.Try, ast.TryStar, ast.While, ast.With,
)  # fmt: skip


def _certain_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node, and the nodes within it that are always evaluated together with it."""
    if isinstance(node, _UNCERTAIN):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _certain_parts(child)


@dataclass(slots=True)
class _UsesOfHparams(ast.NodeVisitor):
    """Finds the hyperparameters that a function takes out of `hparams` before it passes it on."""

    call: ast.Call
    taken: set[str] = field(default_factory=set)
    are_unclear: bool = False

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="hparams"), attr=attr)) if attr in (
                "get",
                "items",
                "keys",
                "pop",
                "values",
            ):
                keys = texts(node.args[:1])
                if attr == "pop":
                    self.taken.update(keys)
                    self.are_unclear |= not keys
                parts: list[ast.AST] = [*node.args, *node.keywords]
            case _:
                own = node.args[1:] if node is self.call else [node.func, *node.args]
                unpacked = [k for k in node.keywords if not _is_hparams(k)]
                parts = [*own, *unpacked]
        for each in parts:
            self.visit(each)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.value, ast.Name) or node.value.id != "hparams":
            self.generic_visit(node)
            return
        keys = texts([node.slice])
        if isinstance(node.ctx, ast.Del):
            self.taken.update(keys)
        self.are_unclear |= not keys and not isinstance(node.ctx, ast.Load)
        self.visit(node.slice)

    def visit_Name(self, node: ast.Name) -> None:
        """Note a use of `hparams` that is none of the above: it may change the dict."""
        self.are_unclear |= node.id == "hparams"


def _is_hparams(keyword: ast.keyword) -> bool:
    """Return whether an argument is `**hparams`, which gives a copy."""
    is_name = isinstance(keyword.value, ast.Name) and keyword.value.id == "hparams"
    return keyword.arg is None and is_name


def _reads_batch_size(node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_asked = node.func.attr == "get_hparam" and texts(node.args[:1]) == [BATCH_SIZE]
        return is_asked or node.func.attr in _ASK_BATCH_SIZE
    return False


def _is_guarded(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return isinstance(node.left, ast.Constant) and node.left.value == BATCH_SIZE
    return isinstance(node, ast.Try) or getattr(node, "attr", "") == "has_batch_size"


def _is_own_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "self"
    )


@dataclass(slots=True)
class _Reads(ast.NodeVisitor):
    """Finds the hyperparameters that code reads, also by other names that it assigns them to."""

    found: dict[Path, Any] = field(default_factory=dict)
    aliases: dict[str, Path] = field(default_factory=dict)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._add_alias(node.targets, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._add_alias([node.target], node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._add_alias([node.target], node.value)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _ASK_BATCH_SIZE:
            self._add((BATCH_SIZE,), UNKNOWN)
        elif name in ("get", "pop", "setdefault") and isinstance(node.func, ast.Attribute):
            above = self._path(node.func.value)
            if above is not None and (key := texts(node.args[:1])):
                self._add((*above, *key), _constant(node.args[1:2]))
        elif name == "getattr" and len(node.args) > 1 and self._path(node.args[0]) == ():
            self._add((*texts(node.args[1:2]),), _constant(node.args[2:3]))
        elif path := self._path(node):
            self._add(path, UNKNOWN)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load) and (path := self._path(node)):
            self._add(path, UNKNOWN)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load) and (path := self._path(node)):
            self._add(path, UNKNOWN)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """A constant that a hyperparameter is compared with is one of its values."""
        path = self._path(node.left)
        is_equal = isinstance(node.ops[0], ast.Eq)
        if path and is_equal and isinstance(node.comparators[0], ast.Constant):
            self._add(path, _constant(node.comparators))
        self.generic_visit(node)

    def _add_alias(self, targets: Sequence[ast.expr], value: ast.expr | None) -> None:
        path = None if value is None else self._path(value)
        for target in targets:
            if path is not None and isinstance(target, ast.Name | ast.Attribute):
                self.aliases[ast.unparse(target)] = path

    def _add(self, path: Path, value: Any) -> None:
        if path and self.found.get(path, UNKNOWN) is UNKNOWN:
            self.found[path] = value

    def _path(self, node: ast.expr) -> Path | None:
        """Return the keys of the hyperparameter that an expression reads; () if it reads all."""
        if (alias := self.aliases.get(ast.unparse(node))) is not None:
            return alias
        match node:
            case ast.NamedExpr(value=value):
                return self._path(value)
            case ast.Name(id="hparams") | ast.Attribute(attr="hparams"):
                return ()
            case ast.Call(func=ast.Attribute(attr="get_hparams")):
                return ()
            case ast.Call(
                func=ast.Attribute(attr="get_hparam"), args=[ast.Constant(value=str(key))]
            ):
                return (key,)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _WRAPPERS:
                inner = [*node.args, *(each.value for each in node.keywords if each.arg is None)]
                return self._path(inner[0]) if len(inner) == 1 else None
            case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
                above = self._path(value)
                return None if above is None else (*above, key)
            case ast.Attribute(value=value, attr=key) if key not in _OF_DICTS:
                return (key,) if self._path(value) == () else None
        return None


def _constant(nodes: Sequence[ast.expr]) -> Any:
    """Return the value of the first expression; `UNKNOWN` if it is no constant of JSON."""
    with suppress(ValueError, TypeError, IndexError):
        value = ast.literal_eval(nodes[0])
        json.dumps(value, allow_nan=False)
        return value
    return UNKNOWN


def _as_tree(found: Mapping[Path, Any]) -> dict[str, Any]:
    """Return nested hyperparameters; one that contains others has no value of its own."""
    tree: dict[str, Any] = {}
    for path in sorted(found, key=len, reverse=True):
        section = tree
        for key in path[:-1]:
            section = section.setdefault(key, {})
        section.setdefault(path[-1], found[path])
    order = list(dict.fromkeys(path[0] for path in found))
    return {name: tree[name] for name in order}


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the code of an entrypoint reads and reports.

    Args:
        hparams: Hyperparameters that it reads, with their defaults or `UNKNOWN`; nested.
        metrics: Names of the metrics that a validation reports, as far as the source shows them.
    """

    hparams: dict[str, Any]
    metrics: list[str]


def needs_of(sources: Sequence[str], entrypoint: str) -> Needs | None:
    """Return what a class or function needs; None if the sources do not define it.

    Args:
        sources: Cells or files; of two definitions of a name, the later one counts.
    """
    made = definitions(sources)
    if entrypoint not in made:
        return None
    parts = list(reached(made, entrypoint))
    return Needs(hparams=hparams_read(parts), metrics=metrics_reported(parts))
