"""Finds the cell that defined a name, or that a code object is from, in IPython's history.

The execution of cells is not hooked: their sources are parsed on request, the last one first, and
no more than needed.
"""

from __future__ import annotations

import ast
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from IPython.core.compilerop import CachingCompiler
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell

# Cell magics that run their body as Python in the notebook's namespace.
_PYTHON_MAGICS = {"capture", "debug", "prun", "time"}
_NUMBERED_FILE = re.compile(r"<ipython-input-(\d+)-")


class Cells:
    """The executed cells, by number."""

    def __init__(self, sources: Sequence[str], compiler: CachingCompiler | None = None) -> None:
        self._sources = sources
        self._compiler = compiler

    @classmethod
    def of(cls, namespace: Mapping[str, Any], shell: InteractiveShell | None) -> Cells:
        """Return the cells of a notebook; without its shell, those in its list `In`."""
        if shell is not None and shell.history_manager is not None:
            return cls(shell.history_manager.input_hist_parsed, shell.compile)
        sources = namespace.get("In")
        return cls(sources if isinstance(sources, list) else [])

    @property
    def sources(self) -> Sequence[str]:
        """The sources of all cells, in the order in which they ran."""
        return self._sources

    def maker_of(self, name: str) -> str:
        """Return the cell that last defined `name`, as "In [5]"; "" if none does."""
        for number in range(len(self._sources) - 1, 0, -1):
            source = self._sources[number]
            if name in source or "import *" in source:
                is_bound = _bindings(source).get(name)
                if is_bound is not None:
                    return f"In [{number}]" if is_bound else ""
        return ""

    def label_of(self, filename: str) -> str | None:
        """Return the label of a cell's code file, such as "Cell In[5]"; None for other files."""
        if self._compiler is not None and (name := self._compiler.format_code_name(filename)):
            return " ".join(name)
        if match := _NUMBERED_FILE.match(filename):
            return f"Cell In[{match[1]}]"
        source = "".join(linecache.getlines(filename)).strip()
        for number in range(len(self._sources) - 1, 0, -1):
            if source and self._sources[number].strip() == source:
                return f"Cell In[{number}]"
        return None


@lru_cache(maxsize=1024)
def _bindings(source: str) -> Mapping[str, bool]:
    """Return the names that a cell binds (True) or deletes (False) last, outside of functions."""
    found = _Bindings()
    for attempt in _python_sources(source):
        with suppress(SyntaxError, ValueError):
            found.visit(ast.parse(attempt))
            break
    return found.names


def _python_sources(source: str) -> Iterator[str]:
    """Yield the cell unchanged, then with magics as calls, then without lines of magics."""
    yield source
    with suppress(SyntaxError):
        yield TransformerManager().transform_cell(source)
    yield "\n".join(line for line in source.splitlines() if line.lstrip()[:1] not in "%!?")


class _Bindings(ast.NodeVisitor):
    def __init__(self) -> None:
        self.names: dict[str, bool] = {}

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.names[node.id] = isinstance(node.ctx, ast.Store)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # `x: int` alone binds nothing
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.names[node.name] = True

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.names[node.name] = True
        for inner in ast.walk(node):
            if isinstance(inner, ast.Global):  # bound when the function is called
                for name in inner.names:
                    self.names.setdefault(name, True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda binds nothing outside of itself."""

    def _visit_comprehension(self, node: ast.AST) -> None:
        for inner in ast.walk(node):  # targets of a comprehension are local, those of `:=` not
            if isinstance(inner, ast.NamedExpr):
                self.visit(inner.target)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _visit_comprehension

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.names[alias.asname or alias.name.partition(".")[0]] = True

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name == "*":
                self.names.update(dict.fromkeys(_public_names(node.module or ""), True))
            else:
                self.names[alias.asname or alias.name] = True

    def _visit_pattern(self, node: ast.MatchAs | ast.MatchStar | ast.MatchMapping) -> None:
        name = node.rest if isinstance(node, ast.MatchMapping) else node.name
        if name is not None:
            self.names[name] = True
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_MatchMapping = _visit_pattern

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and (body := _magic_body(node.func.attr, node)):
            self.names.update(_bindings(body))
        self.generic_visit(node)


def _magic_body(method: str, call: ast.Call) -> str | None:
    """Return the Python code that a call of `get_ipython().run_*_magic` runs."""
    texts = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    match (method, texts):
        case ("run_cell_magic", [str(magic), _, str(body)]) if magic in _PYTHON_MAGICS:
            return body
        case ("run_line_magic", ["time", str(body)]):
            return body
    return None


def _public_names(module_name: str) -> list[str]:
    module = vars(sys.modules[module_name]) if module_name in sys.modules else {}
    return list(module.get("__all__") or (name for name in module if not name.startswith("_")))
