"""Finds mistakes in a trial's code before it runs, and reports each in a notice.

    a name that is defined nowhere      in the bytecode of each function that is sent
    breakpoint(), pdb.set_trace()       likewise
    loss.backward(), optimizer.step()   in the source of a PyTorchTrial's methods, and of the
                                        notebook's functions that are sent with it
    self.x = torch.optim.Adam(...)      in `__init__` of a PyTorchTrial that never wraps self.x

Notices refuse nothing: the code may never be reached.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import CodeType, FunctionType
from typing import Any

_OPTIMIZER = re.compile(r"(^|_)opt(im|imizer)?s?\d*(_|$)")
_OF_TORCH = re.compile(
    r"(?:\w+\.)*optim\.[A-Z]\w*"
)  # optim.Adam, and no optim.lr_scheduler.StepLR
_DEBUGGERS = {"pdb", "ipdb", "Pdb"}


def find_code_traps(value: Any, functions: Iterable[FunctionType]) -> list[str]:
    """Return one line for each mistake in a trial or function, and in `functions`.

    `functions` are the notebook's functions that are sent with it.
    """
    functions = list(functions)
    methods, found = _methods_of(value), list[str]()
    if methods:  # functions that methods may call are checked too
        methods += [each for each in functions if "." not in each.__qualname__]
        found += _find_unwrapped(value, methods)
    found += [*_find_raw_calls(methods), *_find_undefined(functions), *_find_stops(functions)]
    return list(dict.fromkeys(found))


def _find_undefined(functions: list[FunctionType]) -> Iterator[str]:
    made = {name for each in functions for name in _globals_of(each.__code__, "STORE_GLOBAL")}
    reported: set[str] = set()
    for function in functions:
        known = function.__globals__
        for name in _globals_of(function.__code__, "LOAD_GLOBAL"):
            if name in known or name in made or name in reported or hasattr(builtins, name):
                continue
            reported.add(name)
            yield (
                f"{function.__qualname__}: {name} is defined nowhere, so ranks that come to it "
                f"end with a NameError{_near(name, known, function)}"
            )


def _near(name: str, known: Mapping[str, Any], function: FunctionType) -> str:
    names = [each for each in known if not each.startswith("_")]
    local = [each for each in function.__code__.co_varnames if each != name]
    close = get_close_matches(name, [*local, *names, *dir(builtins)], n=3, cutoff=0.75)
    found = dict.fromkeys(close)
    return f"; did you mean {' or '.join(found)}?" if found else "; define it, or import it"


def _globals_of(code: CodeType, operation: str) -> Iterator[str]:
    """Yield the names of this bytecode operation in code and in the functions inside of it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == operation:
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant, operation)


def _find_stops(functions: Iterable[FunctionType]) -> Iterator[str]:
    for function in functions:
        names = set(_globals_of(function.__code__, "LOAD_GLOBAL"))
        called = _names_of(function.__code__)
        is_plain = "breakpoint" in names and "breakpoint" not in function.__globals__
        if is_plain or ("set_trace" in names | called and (names | called) & _DEBUGGERS):
            call = "breakpoint()" if is_plain else "set_trace()"
            yield (
                f"{function.__qualname__}: {call} needs a terminal, and ranks have none; "
                "%%det_experiment --local runs a few batches in this notebook, where it works"
            )


def _names_of(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return {*code.co_names}.union(*map(_names_of, inner))


def _methods_of(value: Any) -> list[FunctionType]:
    """Return the user's methods of a PyTorchTrial; [] for any other entrypoint.

    An overridden method is included only if the overriding one calls it (`super()`).
    """
    library = sys.modules.get("det_jupyter.pytorch")
    if (
        library is None
        or not isinstance(value, type)
        or not issubclass(value, library.PyTorchTrial)
    ):
        return []
    libraries = ("builtins", "det_jupyter", "torch")
    own = [c for c in value.__mro__ if c.__module__.partition(".")[0] not in libraries]
    found: list[FunctionType] = []
    for name in dict.fromkeys(name for class_ in own for name in vars(class_)):
        parts = [vars(class_).get(name) for class_ in own]
        for method in filter(None, map(_function_of, parts)):
            if name != "__init__":
                found.append(method)
            if name not in _base_methods_called(method):
                break
    return found


def _function_of(part: Any) -> FunctionType | None:
    """Return the function inside a static method, class method, property or decorator."""
    part = part.fget if isinstance(part, property) else getattr(part, "__func__", part)
    part = inspect.unwrap(part) if callable(part) else part
    return part if isinstance(part, FunctionType) else None


def _base_methods_called(method: FunctionType) -> set[str]:
    """Return the names of methods that a method calls by `super()` or by a class's name."""
    return {
        what.attr
        for _, what in _calls_of(method)
        if (isinstance(what.value, ast.Call) and ast.unparse(what.value.func) == "super")
        or (isinstance(what.value, ast.Name) and what.value.id[:1].isupper())
    }


def _find_raw_calls(methods: Iterable[FunctionType]) -> Iterator[str]:
    """Report `loss.backward()` and `optimizer.step()` if the context's methods are not called.

    A trial that calls both may discard the raw gradients; RawBackward checks that in the ranks.
    """
    calls = [(method, *call) for method in methods for call in _calls_of(method)]
    done = {what.attr for _, call, what in calls if call.args}  # context.backward(loss)
    for method, call, what in calls:
        if call.args or call.keywords:
            continue
        where, of = f"{method.__qualname__}: {ast.unparse(call)}", ast.unparse(what.value)
        if what.attr == "backward" and "backward" not in done:
            yield (
                f"{where} does not exchange and weigh the gradients of all ranks; write "
                f"self.context.backward({of})"
            )
        if what.attr == "step" and "step_optimizer" not in done and _is_optimizer(what.value):
            yield (
                f"{where} leaves out what the context does (aggregation, clipping, mixed "
                f"precision); write self.context.step_optimizer({of})"
            )


def _find_unwrapped(trial: type, methods: Iterable[FunctionType]) -> Iterator[str]:
    """Report optimizers that `__init__` makes and no checkpoint will have.

    Only where that is certain: each call of `wrap_optimizer` shows what it wraps, the optimizer is
    given to nothing else that might, and no callback may save it.
    """
    made = _function_of(vars(trial).get("__init__"))
    has_own_base = trial.__mro__[1].__module__.partition(".")[0] != "det_jupyter"
    if made is None or has_own_base or any(m.__name__ == "build_callbacks" for m in methods):
        return
    given = [
        (ast.unparse(node.func), argument)
        for method in (made, *methods)
        for node in _nodes_of(method)
        if isinstance(node, ast.Call)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords))
    ]
    wrapped = [argument for what, argument in given if what.endswith("wrap_optimizer")]
    if not all(isinstance(each, (ast.Attribute, ast.Call)) for each in wrapped):
        return
    passed = {
        ast.unparse(part)
        for what, argument in given
        if not what.endswith("step_optimizer") and "lr_scheduler" not in what
        for part in ast.walk(argument)
        if isinstance(part, ast.Attribute) or part is argument
    }
    if "self" in passed:  # a function may wrap what it finds there
        return
    for node in _nodes_of(made):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        (target, *more), kind = node.targets, ast.unparse(node.value.func)
        if more or not isinstance(target, ast.Attribute) or not _OF_TORCH.fullmatch(kind):
            continue
        if (name := ast.unparse(target)) not in passed:
            yield (
                f"{made.__qualname__}: {name} ({kind}) is in no checkpoint, so a run that "
                f"continues begins it anew; write {name} = context.wrap_optimizer({kind}(...))"
            )


def _calls_of(method: FunctionType) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    """Yield the calls of attributes in a method's source, each with its attribute."""
    for node in _nodes_of(method):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func


def _nodes_of(method: FunctionType) -> Iterator[ast.AST]:
    """Yield the nodes of a method's source; none if there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):
        return
    yield from ast.walk(tree)


def _is_optimizer(node: ast.expr) -> bool:
    """Return whether an expression is named like an optimizer: `self.optimizer`, `opts[0]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return _OPTIMIZER.search(name.lower()) is not None
