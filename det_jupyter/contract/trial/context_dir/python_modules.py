"""Python modules at the top of a context directory, and their syntax errors."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from importlib.machinery import BuiltinImporter, FrozenImporter


def modules_among(names: Iterable[str]) -> dict[str, str]:
    """Return the top-level modules of a context by name, each with its file or folder.

    >>> modules_among(["a.py", "b/__init__.py", "c/d.py", "e-f.py", "a/__init__.py"])
    {'a': 'a/', 'b': 'b/'}
    """
    found: dict[str, str] = {}
    for name in names:
        top, _, rest = name.partition("/")
        module = top if rest == "__init__.py" else top.removesuffix(".py")
        if rest not in ("", "__init__.py") or name == module or not module.isidentifier():
            continue
        if module in ("__init__", "__main__"):
            continue
        if rest or module not in found:  # a package takes precedence, as in Python
            found[module] = f"{top}/" if rest else top
    return found


def is_builtin_or_frozen(module: str) -> bool:
    """Return whether Python imports its own module of this name, whatever sys.path contains.

    >>> is_builtin_or_frozen("sys"), is_builtin_or_frozen("os"), is_builtin_or_frozen("random")
    (True, True, False)
    """
    return BuiltinImporter.find_spec(module) is not None or (
        FrozenImporter.find_spec(module) is not None
    )


def parse_module(text: bytes | str) -> ast.Module:
    """Parse Python and suppress warnings about it, which ranks show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def find_syntax_error(text: bytes | str, name: str) -> str:
    """Return an error message if a file of this text cannot be parsed; "" if it can."""
    try:
        parse_module(text)
    except SyntaxError as error:
        return describe_syntax_error(error, name)
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{name} cannot be read: {error}"
    return ""


def describe_syntax_error(error: SyntaxError, name: str) -> str:
    """Format an error: file and line, and the line itself with a mark below.

    >>> try: compile("x = (1", "train.py", "exec")
    ... except SyntaxError as error: print(describe_syntax_error(error, "train.py"))
    train.py, line 1: '(' was never closed
        x = (1
            ^
    """
    lines = [f"{name}, line {error.lineno}: {error.msg}"]
    if error.text:
        text = error.text.rstrip("\n")
        bare = text.lstrip()
        lines.append(f"    {bare}")
        if error.offset and error.offset > 0:
            indent = max(0, error.offset - 1 - (len(text) - len(bare)))
            lines.append(f"    {' ' * indent}^")
    return "\n".join(lines)
