"""The modules at the top of a context directory, which Python finds before all others."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable
from importlib.machinery import BuiltinImporter, FrozenImporter


def modules_among(names: Iterable[str]) -> dict[str, str]:
    """Return the modules among paths of a context, with the file or folder of each.

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


def is_always_pythons(module: str) -> bool:
    """Return whether Python takes its own module of that name, whatever folder comes first.

    >>> is_always_pythons("sys"), is_always_pythons("os"), is_always_pythons("random")
    (True, True, False)
    """
    return BuiltinImporter.find_spec(module) is not None or (
        FrozenImporter.find_spec(module) is not None
    )


def parse_module(text: bytes | str) -> ast.Module:
    """Parse Python without warnings about it: ranks show those."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def find_syntax_error(text: bytes | str, name: str) -> str:
    """Return why Python cannot read a file; "" if it can."""
    try:
        parse_module(text)
    except SyntaxError as error:
        return describe_syntax_error(error, name)
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{name} cannot be read: {error}"
    return ""


def describe_syntax_error(error: SyntaxError, name: str) -> str:
    """Return file and line, and the line itself with a mark where Python stopped.

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
