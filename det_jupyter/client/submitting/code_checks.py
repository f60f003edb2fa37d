"""Checks, without importing it, that the code which an entrypoint names exists and parses.

It checks the files that would be sent: those of the context directory.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import assert_never

from det_jupyter.contract.trial.context_dir import ContextPlan
from det_jupyter.contract.trial.context_dir.python_modules import (
    find_syntax_error,
    is_builtin_or_frozen,
    modules_among,
    parse_module,
)
from det_jupyter.contract.trial.context_dir.walking import Entry, LiveEntries
from det_jupyter.contract.trial.source import method_in
from det_jupyter.contract.trial.source_needs import find_batch_size_reader
from det_jupyter.contract.values.entrypoints import (
    Captured,
    Command,
    Entrypoint,
    Imported,
    Program,
)
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import Problem

_MAX_NAMES = 12  # listed in a message
# Packages that ranks import: a module of the context with such a name would hide them.
_IN_RANKS = ("IPython", "det_jupyter", "ipykernel", "numpy", "pydantic", "torch", "yaml", "zmq")
_OURS = ("det_jupyter", "determined")  # Determined's launchers are replaced by ours
_LAUNCHERS = "there are torch_distributed, deepspeed, horovod, mpi and wrap_rank"
_DYNAMIC = re.compile(r"\b(?:globals|exec|setattr|__getattr__)\b")  # names may be defined by these
_FIRST_WORD = re.compile(r"[\w./+-]+")
_SHELL_WORDS = {
    ".", "[", "[[", "alias", "case", "cd", "command", "do", "else", "eval", "exec", "exit",
    "export", "for", "function", "if", "local", "nohup", "set", "shopt", "source", "test", "then",
    "time", "trap", "true", "ulimit", "umask", "unset", "until", "wait", "while",
}  # fmt: skip


def find_code_problems(
    entrypoint: Entrypoint,
    plan: ContextPlan | None,
    cwd: Path,
    variables: Collection[str] = (),
) -> list[Problem]:
    """Return what is wrong with the code that an entrypoint names.

    Args:
        plan: The context directory; None: ranks work in `cwd` itself, which it is submitted from.
        variables: Names of the environment variables that ranks get. With PATH or PYTHONPATH
            among them, installed programs or modules are not checked.
    """
    code = _Code(
        plan,
        cwd,
        knows_modules="PYTHONPATH" not in variables,
        knows_programs="PATH" not in variables,
    )
    shadowed = [
        Problem(
            "context",
            f"{file} would take the place of the installed {name}, which ranks need; rename it",
        )
        for name, file in code.modules.items()
        if name in _IN_RANKS
    ]
    match entrypoint:
        case Captured(name=name):
            found = code.check_captured(name)
        case Imported(module=module, name=name):
            found = code.check_name(module, name)
        case Program(is_module=True, target=module, args=args):
            found = code.check_runnable(module, args)
        case Program(target=script):
            found = code.check_script(script)
        case Command(argv=argv):
            found = code.check_command(argv)
        case _:
            assert_never(entrypoint)
    return [*shadowed, *(Problem("entrypoint", each) for each in found)]


def find_batch_size_method(entrypoint: Entrypoint, plan: ContextPlan | None, cwd: Path) -> str:
    """Return the method of a module's trial class that needs a batch size in every run; or ""."""
    if not isinstance(entrypoint, Imported):
        return ""
    code = _Code(plan, cwd, knows_modules=True, knows_programs=True)
    text = code.text_of(entrypoint.module)
    reader = find_batch_size_reader(method_in([text], entrypoint.name)) if text else ""
    return f"{entrypoint.name}.{reader}" if reader else ""


class _Code:
    def __init__(
        self, plan: ContextPlan | None, cwd: Path, *, knows_modules: bool, knows_programs: bool
    ) -> None:
        self._entries: Mapping[str, Entry] = LiveEntries(cwd) if plan is None else plan.entries
        self._ignored = [] if plan is None else plan.ignored
        self._place = (
            f"folder {cwd}" if plan is None else f"context directory {plan.folder}".strip()
        )
        self._knows_modules = knows_modules
        self._knows_programs = knows_programs
        self.modules = modules_among(self._entries)

    def text_of(self, module: str) -> str:
        """Return the source of a module of the context; "" if it is not there."""
        file = self._file_of(module)
        if file is None:
            return ""
        text = self._text(file)
        return text if isinstance(text, str) else text.decode(errors="replace")

    def check_captured(self, name: str) -> Iterator[str]:
        found = [
            f"{module}:{name}"
            for module, file in self.modules.items()
            if file.endswith(".py") and name in (_names_in(self._text(file)) or ())
        ]
        hint = f"; did you mean {found[0]}?" if found else ", as in model_def:MyTrial"
        yield (
            f"got {name!r}, which would be a class or function of a notebook; name its module "
            f"too{hint}"
        )

    def check_name(self, module: str, name: str) -> Iterator[str]:
        if problem := self._find_missing(module):
            yield problem
            return
        file = self._file_of(module)
        if file is None:  # an installed module
            return
        text = self._text(file)
        if problem := find_syntax_error(text, file):
            yield problem
            return
        first = name.partition(".")[0]
        names = _names_in(text)
        if names is None or first in names:
            return
        kinds = (ast.ClassDef, ast.FunctionDef)
        defined = [node.name for node in parse_module(text).body if isinstance(node, kinds)]
        near = get_close_matches(first, defined, 1)  # not an imported name, such as PyTorchTrial
        hint = f"; did you mean {near[0]}?" if near else ""
        has = listed(defined, most=_MAX_NAMES) or "none"
        yield f"{file} has no {first}{hint} (classes and functions there: {has})"

    def check_runnable(self, module: str, args: tuple[str, ...]) -> Iterator[str]:
        package, _, name = module.partition(".")
        if package in _OURS:
            if name.startswith("launch.") and not _has_ours(f"det_jupyter.{name}"):
                yield f"there is no launcher {module}; {_LAUNCHERS}"
            scripts = [each for each in args if each.endswith(".py") and not each.startswith("-")]
            yield from self.check_script(scripts[0]) if scripts else ()
            return
        if problem := self._find_missing(module):
            yield problem
            return
        path = module.replace(".", "/")
        if path in self._entries and f"{path}/__main__.py" not in self._entries:
            if f"{path}.py" not in self._entries:
                yield f"{path}/ has no __main__.py, so `python -m {module}` runs nothing"
            return
        file = f"{path}.py" if f"{path}.py" in self._entries else f"{path}/__main__.py"
        if file in self._entries:
            yield from filter(None, [find_syntax_error(self._text(file), file)])

    def check_script(self, script: str) -> Iterator[str]:
        if os.path.isabs(script):
            if not os.path.isfile(script):
                yield f"there is no file {script}"
            return
        name = os.path.normpath(script)
        entry = self._entries.get(name)
        if entry is None:
            yield self._no_file(name)
        elif entry.kind == "folder":
            if f"{name}/__main__.py" not in self._entries:
                yield f"{name} is a folder without a __main__.py; name the script in it"
        elif problem := find_syntax_error(self._text(name), name):
            yield problem

    def check_command(self, argv: tuple[str, ...]) -> Iterator[str]:
        program = argv[0]
        if argv[:2] == ("sh", "-c") and len(argv) == 3:
            program = _first_word(argv[2])
            if not program or program in _SHELL_WORDS:
                return
        if os.path.isabs(program):
            if not os.access(program, os.X_OK):
                yield f"there is no program {program}"
        elif "/" in program:
            name = os.path.normpath(program)
            entry = self._entries.get(name)
            if entry is None:
                yield self._no_file(name)
            elif entry.kind == "file" and not entry.is_executable:
                yield f"{name} is not executable: `chmod +x` it, or name its interpreter"
        elif self._knows_programs and shutil.which(program) is None:
            bare = os.path.normpath(program)
            here = f"; did you mean ./{bare}?" if bare in self._entries else ""
            yield f"there is no program {program} on this computer{here}"

    def _find_missing(self, module: str) -> str:
        """Return a problem if a module is neither in the context nor installed."""
        top = module.partition(".")[0]
        path = module.replace(".", "/")
        if top in self.modules and is_builtin_or_frozen(top):
            file = self.modules[top]
            return f"the module {top} is Python's own, and {file} cannot take its place; rename it"
        if f"{path}.py" in self._entries or path in self._entries:
            return ""
        if top in self.modules or top in self._entries:
            parent = path.rpartition("/")[0]
            below = {
                name.removeprefix(f"{parent}/")
                for name in self._entries
                if parent and name.startswith(f"{parent}/")
            }
            return self._no_module(module, f"{path}.py", modules_among(below))
        if self._knows_modules and find_spec(top) is None:
            return self._no_module(module, f"{path}.py", self.modules)
        return ""

    def _no_module(self, module: str, file: str, known: dict[str, str]) -> str:
        parent = module.rpartition(".")[0]
        prefix = f"{parent}." if parent else ""
        near = get_close_matches(module.rpartition(".")[2], known, 1)
        hint = f"; did you mean {prefix}{near[0]}?" if near else ""
        has = listed((f"{prefix}{name}" for name in known), most=_MAX_NAMES) or "none"
        return (
            f"there is no module {module} in the {self._place}{self._where(file)}, nor an "
            f"installed one{hint} (modules there: {has})"
        )

    def _no_file(self, name: str) -> str:
        near = get_close_matches(name, self._entries, 1, cutoff=0.5)
        hint = self._where(name) or (f"; did you mean {near[0]}?" if near else "")
        return f"there is no {name} in the {self._place}{hint}"

    def _where(self, name: str) -> str:
        found = [each for each in self._ignored if name == each or name.startswith(each)]
        return f" (.detignore leaves {found[0]} out)" if found else ""

    def _file_of(self, module: str) -> str | None:
        path = module.replace(".", "/")
        names = (f"{path}/__init__.py", f"{path}.py")
        return next((name for name in names if name in self._entries), None)

    def _text(self, name: str) -> bytes:
        try:
            return self._entries[name].read()
        except OSError:  # reported when the context is packed
            return b""


def _has_ours(module: str) -> bool:
    with suppress(ModuleNotFoundError):  # the parent is missing, or no package
        return find_spec(module) is not None
    return False


def _names_in(text: bytes) -> set[str] | None:
    """Return the names that a module may define; None if the source does not show them."""
    if _DYNAMIC.search(text.decode("utf-8", "replace")):
        return None
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names: set[str] = set()
    for node in ast.walk(tree):  # names inside functions too: a superfluous name does no harm
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.alias(name="*"):
                return None
            case ast.alias(name=name, asname=asname):
                names.add(asname or name.partition(".")[0])
    return names


def _first_word(text: str) -> str:
    """Return the program that a shell would run first; "" if the text does not show it.

    >>> _first_word("OMP_NUM_THREADS=1 ./run.sh | tee log"), _first_word("$HOME/x")
    ('./run.sh', '')
    """
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return ""
    for word in words:
        if re.match(r"\w+=", word):
            continue
        return word if _FIRST_WORD.fullmatch(word) else ""
    return ""
