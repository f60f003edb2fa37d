"""Trainers of other libraries that a function calls without DetCallback, and the lines it lacks.

Without the callback nothing is saved: a pause or a crash loses the training. That a function does
so is known for sure only if its source shows it:

    trainer = Trainer(model, arguments, train_dataset=data)      the library's class, without an
    trainer.train()                                              object that could be a callback

and neither the context nor anything of det_jupyter is used. Otherwise it is found out during the
run (core/plain_runs.py).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from det_jupyter.contract.trial.source import Function, definitions
from det_jupyter.contract.values.entrypoints import Command, Program, try_parse_entrypoint


@dataclass(frozen=True, slots=True)
class PlainTrainer:
    """How a trainer gets the callback.

    Args:
        library: The module of det_jupyter.integrations.
        method: Its method that trains.
        resume: The argument of `method` with the checkpoint, and the callback's attribute; "":
            none.
        is_late: The callback is an argument of `method`, not of the trainer.
    """

    library: str
    method: str
    resume: str = ""
    is_late: bool = False

    def lines(self, name: str) -> list[str]:
        """Return the lines to add, for a trainer in a variable of this name."""
        made = "det = DetCallback()"
        if self.is_late:
            return [made, f"model.{self.method}(..., callbacks=[det])"]
        resumed = f"{self.resume}=det.{self.resume}"
        others = "" if self.library == "transformers" else "..., "
        return [
            made,
            f"trainer = {name.rpartition('.')[2]}(..., callbacks=[det])",
            f"trainer.{self.method}({others}{resumed})",
        ]


_TRANSFORMERS = PlainTrainer("transformers", "train", "resume_from_checkpoint")
_KERAS = PlainTrainer("keras", "fit", is_late=True)
TRAINERS = {
    "transformers.Trainer": _TRANSFORMERS,
    "transformers.Seq2SeqTrainer": _TRANSFORMERS,
    "lightning.Trainer": PlainTrainer("lightning", "fit", "ckpt_path"),
    "keras.Sequential": _KERAS,
    "keras.Model": _KERAS,
}


def describe_plain(name: str, entrypoint: str) -> str:
    """Return the notice that a trainer is called without the callback, with what to add.

    >>> print(describe_plain("transformers.Trainer", "finetune"))
    `finetune` calls transformers.Trainer without DetCallback, so nothing is saved: a pause or a \
crash loses the training. Add: det = DetCallback(); trainer = Trainer(..., callbacks=[det]); \
trainer.train(resume_from_checkpoint=det.resume_from_checkpoint). DetCallback is in \
det_jupyter.integrations.transformers
    """
    is_script = isinstance(try_parse_entrypoint(entrypoint), Program | Command)
    trainer = TRAINERS.get(name)
    if trainer is None:
        added = "a callback of det_jupyter.integrations (docs/integrations.md)"
    else:
        where = " inside of `with core.init():`" if is_script else ""
        added = (
            f"{'; '.join(trainer.lines(name))}{where}. DetCallback is in "
            f"det_jupyter.integrations.{trainer.library}"
        )
    return (
        f"`{entrypoint}` calls {name} without DetCallback, so nothing is saved: a pause or a "
        f"crash loses the training. Add: {added}"
    )


def find_plain_trainer(function: Function, names: Mapping[str, object]) -> str:
    """Return the trainer that a function calls without a callback; "" if that is not sure.

    Args:
        function: The parsed function.
        names: The global names that the function can use.
    """
    found = _find(function, lambda name: _name_of_value(names.get(name)))
    return found.name if found is not None else ""


def with_callback(source: str, entrypoint: str, name: str) -> str | None:
    """Return the source of a cell or file with the callback added; None if it can't be added.

    Args:
        source: Source that defines the function.
        entrypoint: The function's name.
        name: The trainer's name. If the source does not import the library, it is assumed to use
            the library's usual names.
    """
    function = definitions([source]).get(entrypoint)
    if not isinstance(function, Function):
        return None
    root, _, class_name = name.partition(".")
    usual = {class_name: name, root: root, "L": "lightning"}
    found = _find(function, lambda each: usual.get(each, ""))
    if found is None or not found.can_be_changed(source):
        return None
    used = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    det = "det" if "det" not in used else "det_callback"
    edits = [_with_argument(call, *given) for call, *given in found.missing(det)]
    indent = " " * found.statement.col_offset
    made = (
        f"{indent}from det_jupyter.integrations.{TRAINERS[name].library} import DetCallback\n\n"
        f"{indent}{det} = DetCallback()\n"
    )
    place = (found.statement.lineno, 0)
    changed = _edited(source, [*edits, (place, place, made)])
    return changed if entrypoint in definitions([changed]) else None


_Edit = tuple[tuple[int, int], tuple[int, int], str]  # from, to (line from 1, byte), new text


@dataclass(frozen=True, slots=True)
class _Found:
    """A trainer that a function makes, and its calls."""

    name: str
    made: ast.Call
    statement: ast.stmt
    trained: list[ast.Call]

    def can_be_changed(self, source: str) -> bool:
        """Return whether the statement begins its line, and no call passes a state to resume."""
        before = source.splitlines()[self.statement.lineno - 1].encode()
        is_alone = not before[: self.statement.col_offset].strip()
        return is_alone and not (
            self.name.startswith("transformers") and any(call.args for call in self.trained)
        )

    def missing(self, det: str) -> Iterator[tuple[ast.Call, str, str]]:
        """Yield calls, each with the name and value of an argument that it lacks."""
        trainer = TRAINERS[self.name]
        for call in self.trained if trainer.is_late else [self.made]:
            yield call, "callbacks", f"[{det}]"
        for call in self.trained if trainer.resume else []:
            yield call, trainer.resume, f"{det}.{trainer.resume}"


def _find(function: Function, named: Callable[[str], str]) -> _Found | None:
    """Return the trainer that the source shows; None if it has a callback, or could have one.

    Args:
        named: Returns the dotted name of the object that a global name refers to.
    """
    imported = _imports_of(function)
    nodes = list(ast.walk(function))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    read = [node for node in names if isinstance(node.ctx, ast.Load)]
    given = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    own = given | {node.id for node in names if not isinstance(node.ctx, ast.Load)}

    def name_of(node: ast.expr) -> str:
        """Return the dotted name of the object that an expression refers to; "" if unknown."""
        match node:
            case ast.Name(id=name) if name in imported:
                return imported[name]
            case ast.Name(id=name) if name not in own:
                return named(name)
            case ast.Attribute(value=value, attr=attr) if above := name_of(value):
                return f"{above}.{attr}"
        return ""

    if any(n.id in given - {"hparams"} or _root(name_of(n)) == "det_jupyter" for n in read):
        return None  # it may report and save by itself
    for statement in nodes:
        match statement:
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call() as made):
                name = _known(name_of(made.func))
                if not name or not _is_plain(made, name_of):
                    continue
                uses = _attributes(nodes, variable)
                methods = [each for each in uses if each.attr == TRAINERS[name].method]
                trained = [n for n in nodes if isinstance(n, ast.Call) and n.func in methods]
                is_kept = len(uses) == sum(n.id == variable for n in read)
                if trained and is_kept and all(_is_plain(call, name_of) for call in trained):
                    return _Found(name, made, statement, trained)
    return None


def _attributes(nodes: list[ast.AST], variable: str) -> list[ast.Attribute]:
    """Return the uses of a variable that cannot give it a callback: its other attributes."""
    return [
        node
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == variable
        and isinstance(node.ctx, ast.Load)
        and "callback" not in node.attr
    ]


def _is_plain(call: ast.Call, name_of: Callable[[ast.expr], str]) -> bool:
    """Return whether a call gives no callbacks but those of the library itself."""
    if any(each.arg is None for each in call.keywords):
        return False
    if any(isinstance(each, ast.Starred) for each in call.args):
        return False
    for keyword in call.keywords:
        if keyword.arg == "callbacks":
            if not isinstance(keyword.value, ast.List):
                return False
            for each in keyword.value.elts:
                kind = each.func if isinstance(each, ast.Call) else each
                if _root(name_of(kind)) not in _ROOTS:
                    return False
    return True


_ROOTS = {name.partition(".")[0] for name in TRAINERS}


def _root(name: str) -> str:
    return name.partition(".")[0]


def _known(name: str) -> str:
    """Return the key of TRAINERS with the root and the class of a dotted name; "" if none.

    >>> _known("lightning.pytorch.trainer.trainer.Trainer")
    'lightning.Trainer'
    """
    short = f"{_root(name)}.{name.rpartition('.')[2]}"
    return short if short in TRAINERS else ""


def _imports_of(function: Function) -> dict[str, str]:
    """Return the dotted names of the objects that a function imports, by local name."""
    found = {}
    for node in ast.walk(function):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                found[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.asname:
                    found[each.asname] = each.name
                else:
                    found[_root(each.name)] = _root(each.name)
    return found


def _name_of_value(value: object) -> str:
    if isinstance(value, ModuleType):
        return value.__name__
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str):
        return f"{module}.{name}"
    kind = type(value)  # an object, such as a callback that was made before
    return "" if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _with_argument(call: ast.Call, name: str, value: str) -> _Edit:
    """Return the edit that gives a call this keyword argument."""
    for keyword in call.keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.List):
            items = keyword.value.elts
            added = value[1:-1]
            if items:
                end = _end(items[-1])
                return end, end, f", {added}"
            return _start(keyword.value), _end(keyword.value), value
        if keyword.arg == name:
            return _start(keyword.value), _end(keyword.value), value
    given = [*call.args, *(each.value for each in call.keywords)]
    if given:
        end = _end(max(given, key=_end))
        return end, end, f", {name}={value}"
    line, column = _end(call)
    return (line, column - 1), (line, column - 1), f"{name}={value}"


def _start(node: ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _edited(source: str, edits: list[_Edit]) -> str:
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    for (line, column), (end_line, end_column), text in sorted(edits, reverse=True):
        before, after = lines[line - 1][:column], lines[end_line - 1][end_column:]
        lines[line - 1 : end_line] = [before + text.encode() + after]
    return b"".join(lines).decode()
