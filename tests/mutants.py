"""How many small faults do the unit tests of the pure parts notice?

    python -m tests.mutants [PART ...] [--sample 150] [--minutes 30] [--seed 1] [--processes 2]

A mutant is a part with one fault: a comparison turned round, `and` for `or`, a number off by one,
a statement left out. A sample of all that are possible is tried: the unit tests of the part run;
the first that fails has noticed the fault. Tests that run three times longer than usual count as
failed. A survivor may be no fault (a shortcut left out, say), so 100 % is no aim.

Each mutant is a fork of this process, which has imported the libraries but nothing of det_jupyter.
The fork compiles the changed module from memory; no file is touched. (mutmut 3 changes nothing in
what is decorated, such as properties, and its bookkeeping slows the stateful tests of Hypothesis
down many times. cosmic-ray starts a Python process for each mutant and takes no sample.)
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.abc
import importlib.util
import os
import random
import resource
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

PARTS = {  # the folder of the part, and where its unit tests are
    "config": ("det_jupyter/config", "tests/unit/config"),
    "core": ("det_jupyter/core", "tests/unit/core tests/unit/test_control.py"),
    "machine": ("det_jupyter/master/machine", "tests/unit/master"),
    "scheduler": ("det_jupyter/scheduler", "tests/unit/scheduler"),
    "searcher": ("det_jupyter/searcher", "tests/unit/searcher"),
    "view": ("det_jupyter/view", "tests/unit/view"),
    "views": ("det_jupyter/master/views", "tests/unit/master"),
}
_LIBRARIES = "cloudpickle fastapi httpx hypothesis.stateful IPython numpy psutil torch tqdm yaml"
_INSTEAD: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_CALLED_INSTEAD = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: the `number`th that is possible in the file."""

    path: Path
    number: int

    def made(self) -> tuple[ast.Module, str]:
        """Return the changed module, and the change in words."""
        tree = ast.parse(self.path.read_text())
        node, fault, put = list(_faults(tree))[self.number]
        before = ast.unparse(node).splitlines()[0]
        put(fault)
        after = ast.unparse(fault).splitlines()[0]
        line = getattr(node, "lineno", 0)
        return ast.fix_missing_locations(tree), f"{self.path}:{line}  {before}  ->  {after}"


def mutants_of(folder: Path) -> list[Mutant]:
    """Return all mutants of the modules in a folder."""
    return [
        Mutant(path, number)
        for path in sorted(folder.rglob("*.py"))
        for number, _ in enumerate(_faults(ast.parse(path.read_text())))
    ]


Put = Callable[[ast.AST], None]


def _faults(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST, Put]]:
    """Give, for all that is done in functions, what may be there instead, and how to put it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for index in range(len(node.body)):
                for inner, put in _below(node, "body", index):
                    for fault in _instead(inner):
                        yield inner, fault, put


def _below(parent: ast.AST, name: str, index: int | None) -> Iterator[tuple[ast.AST, Put]]:
    """Give a node and all in it, but for types, assertions, and functions (which have a turn)."""
    held = getattr(parent, name)
    node = held if index is None else held[index]
    skipped = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert
    if name in ("annotation", "format_spec") or isinstance(node, skipped):
        return

    def put(fault: ast.AST) -> None:
        if index is None:
            setattr(parent, name, fault)
        else:
            held[index] = fault

    yield node, put
    for inner, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield from _below(node, inner, None)
        elif isinstance(value, list):
            for place, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _below(node, inner, place)


def _changed(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _instead(node: ast.AST) -> Iterator[ast.AST]:
    """Give what may wrongly be there instead of a node."""
    match node:
        case ast.Compare(ops=[first, *others]) if type(first) in _INSTEAD:
            yield _changed(node, ops=[_INSTEAD[type(first)](), *others])
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in _INSTEAD:
            yield _changed(node, op=_INSTEAD[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield _changed(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=[_, *_]):
            yield _changed(node, ifs=[])
        case ast.Constant(value=bool() as truth):
            yield ast.Constant(not truth)
        case ast.Constant(value=int() | float() as number):
            yield ast.Constant(number + 1)
        case ast.Call(func=ast.Name(id=name)) if name in _CALLED_INSTEAD:
            yield _changed(node, func=ast.Name(_CALLED_INSTEAD[name], ast.Load()))
        case ast.Return(value=value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Break() | ast.Continue():
            yield _INSTEAD[type(node)]()


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from a tree, and leaves the others to those who come after it."""

    def __init__(self, path: Path, tree: ast.Module) -> None:
        parts = path.with_suffix("").parts
        self._name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self._path, self._tree = path.absolute(), tree

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """See MetaPathFinder."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def create_module(self, spec: ModuleSpec) -> None:
        """See Loader."""

    def exec_module(self, module: ModuleType) -> None:
        """See Loader."""
        exec(compile(self._tree, str(self._path), "exec"), module.__dict__)


def _tests_for(path: Path, tests: list[Path]) -> list[str]:
    """Return the test files, those first that name the module."""
    name = ".".join(path.with_suffix("").parts)
    return [str(file) for file in sorted(tests, key=lambda file: name not in file.read_text())]


def _test_files(places: str) -> list[Path]:
    found: list[Path] = []
    for place in map(Path, places.split()):
        found += sorted(place.rglob("test_*.py")) if place.is_dir() else [place]
    return found


def run_tests(tests: Sequence[str], cpu_s: int) -> int:
    """Fork a process that runs tests for so long, quietly; return its pid."""
    if pid := os.fork():
        return pid
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    silence = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silence, descriptor)
    # A failure is enough: it need not become a small one, nor be remembered.
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("mutants", phases=phases, database=None, derandomize=True)
    settings.load_profile("mutants")
    options = "-x -p no:cacheprovider -p no:xdist -o timeout=0"
    imported = "ignore::pytest.PytestAssertRewriteWarning"  # the libraries are
    os._exit(pytest.main([*options.split(), "-W", imported, *tests]))


@dataclass(slots=True)
class Outcome:
    """What became of a sample of a part's mutants."""

    part: str
    possible: int
    tried: int
    survivors: list[str]

    def __str__(self) -> str:
        share = 1 - len(self.survivors) / max(1, self.tried)
        lines = [f"{self.part:<10} {self.possible:6} possible {self.tried:5} tried {share:7.1%}"]
        return "\n".join([*lines, *(f"    {survivor}" for survivor in sorted(self.survivors))])


def try_part(part: str, sample: int, minutes: float, seed: int, processes: int) -> Outcome:
    """Try a sample of the mutants of a part, or as many of it as there is time for."""
    folder, places = PARTS[part]
    mutants, tests = mutants_of(Path(folder)), _test_files(places)
    chosen = random.Random(seed).sample(mutants, min(sample, len(mutants)))
    usual_s = _usual_cpu_s(list(map(str, tests)))
    outcome = Outcome(part, len(mutants), 0, [])
    waiting, running = deque(chosen), dict[int, str]()
    deadline = time.monotonic() + 60 * minutes
    while (waiting and time.monotonic() < deadline) or running:
        while waiting and len(running) < processes and time.monotonic() < deadline:
            mutant = waiting.popleft()
            tree, change = mutant.made()
            importer = Importer(mutant.path, tree)
            sys.meta_path.insert(0, importer)
            pid = run_tests(_tests_for(mutant.path, tests), 3 * usual_s + 10)
            sys.meta_path.remove(importer)
            running[pid] = change
        pid, status = os.wait()
        change = running.pop(pid)
        outcome.tried += 1
        print("noticed " if status else "SURVIVED", change, flush=True)
        if status == 0:
            outcome.survivors.append(change)
    return outcome


def _usual_cpu_s(tests: list[str]) -> int:
    """Run the tests, which have to pass, and return the processor time that they take."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    _, status = os.waitpid(run_tests(tests, 3600), 0)
    if status != 0:
        raise SystemExit(f"{' '.join(tests)}: fails without a fault, so it cannot show any")
    return round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) + 1


def main() -> None:
    """Try the parts, and print what survived."""
    parser = argparse.ArgumentParser(description="How many small faults do unit tests notice?")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", default=[])
    parser.add_argument("--sample", type=int, default=150, help="of each part")
    parser.add_argument("--minutes", type=float, default=30, help="for each part, at most")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    for library in _LIBRARIES.split():
        importlib.import_module(library)
    outcomes = [
        try_part(part, options.sample, options.minutes, options.seed, options.processes)
        for part in options.parts or PARTS
    ]
    print("", *outcomes, sep="\n")


if __name__ == "__main__":
    main()
