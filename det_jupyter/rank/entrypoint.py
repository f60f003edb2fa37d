"""Loads the class or function of an entrypoint: from the capsule, or from a module."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Collection
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import load_capsule
from det_jupyter.contract.trial.context_dir.python_modules import (
    describe_syntax_error,
    is_builtin_or_frozen,
    modules_among,
)
from det_jupyter.contract.trial.rank_arguments import find_function_problem
from det_jupyter.contract.values.entrypoints import Captured, Imported
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError

MOST_NAMES = 12  # names listed in a message


def load_entrypoint(
    capsule: Capsule,
    blobs: BlobStore,
    code_dir: Path,
    work_dir: Path,
    entrypoint: Captured | Imported,
    hparams: Collection[str] = (),
) -> Any:
    """Return the class or function that each rank trains or calls.

    Args:
        work_dir: The folder that ranks work in; its modules take precedence over others.
        hparams: Names of the hyperparameters.

    Raises:
        ConfigError: There is no such module or name, it cannot be loaded, or it is not a class or
            function that ranks can use.
    """
    if isinstance(entrypoint, Captured):
        if capsule.context is not None:
            put_first(work_dir)
        return load_capsule(capsule, blobs, code_dir)
    put_first(work_dir)
    sys.modules["__main__"] = ModuleType("__main__")  # the user's `__main__` instead of ours
    return find_in_module(entrypoint, work_dir, hparams)


def put_first(folder: Path) -> None:
    """Put a folder, then those of PYTHONPATH, at the front of `sys.path`, as Python does.

    Modules of the standard library that the fork server has imported, and that the folder has too,
    are removed from `sys.modules`: a fresh Python would import them from the folder.

    Raises:
        ConfigError: A module in the folder has the name of an installed package that is in use.
    """
    # This process was forked: the configuration's PYTHONPATH is not in its sys.path yet.
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    first = list(dict.fromkeys([str(folder), *map(os.path.abspath, given)]))
    sys.path[:] = first + [each for each in sys.path if each not in first]
    importlib.invalidate_caches()
    inside = os.path.join(folder, "")
    taken = []
    for top, file in sorted(_modules_in(folder).items()):
        loaded = sys.modules.get(top)
        origin = getattr(loaded, "__file__", None) or ""
        if loaded is None or origin.startswith(inside) or is_builtin_or_frozen(top):
            continue
        if top in sys.stdlib_module_names:
            for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
                del sys.modules[name]
        else:
            taken.append(f"{file} would take the place of the installed {top}, which ranks need")
    if taken:
        raise ConfigError([f"context: {each}; rename it" for each in taken])


def _modules_in(folder: Path) -> dict[str, str]:
    names = []
    for each in os.scandir(folder):
        is_package = os.path.isfile(os.path.join(each.path, "__init__.py"))
        names.append(f"{each.name}/__init__.py" if is_package else each.name)
    return modules_among(names)


def find_in_module(entrypoint: Imported, folder: Path, hparams: Collection[str] = ()) -> Any:
    """Import the module, and return the entrypoint's class or function in it.

    Errors that the module itself raises are not converted.

    Raises:
        ConfigError: As load_entrypoint does.
    """
    module = _import(entrypoint.module, folder)
    value: Any = module
    for part in entrypoint.name.split("."):
        owner = value
        value = getattr(owner, part, owner)
        if value is owner:
            raise ConfigError(_no_such_name(entrypoint, owner, part))
    if isinstance(value, FunctionType):
        if problem := find_function_problem(value, hparams):
            raise ConfigError(f"entrypoint: {entrypoint.name} {problem}")
    elif not isinstance(value, type):
        raise ConfigError(
            f"entrypoint: {entrypoint.name} of {_file_of(module)} is of type "
            f"{type(value).__name__}, expected a class or a function"
        )
    return value


def _import(name: str, folder: Path) -> ModuleType:
    top = name.partition(".")[0]
    here = _modules_in(folder)
    if top in here and is_builtin_or_frozen(top):
        raise ConfigError(
            f"entrypoint: the module {top} is Python's own, and {here[top]} cannot take its "
            "place; rename it"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # raised by an import in the user's module
        raise ConfigError(_no_such_module(name, error.name, folder)) from None
    except SyntaxError as error:
        if error.filename is None or not error.filename.startswith(os.path.join(folder, "")):
            raise
        where = describe_syntax_error(error, os.path.relpath(error.filename, folder))
        raise ConfigError(f"entrypoint: {where}") from None


def _no_such_module(name: str, missing: str, folder: Path) -> str:
    parent = missing.rpartition(".")[0]
    where = folder / parent.replace(".", "/")
    if parent and not where.is_dir():
        return f"entrypoint: there is no module {missing}: {parent} is no package"
    found = sorted(_modules_in(where)) if where.is_dir() else []
    prefix = f"{parent}." if parent else ""
    near = get_close_matches(missing.rpartition(".")[2], found, 1)
    hint = f"; did you mean {prefix}{near[0]}?" if near else ""
    has = listed([f"{prefix}{each}" for each in found], most=MOST_NAMES) or "none"
    return (
        f"entrypoint: there is no module {missing} in the folder that ranks work in, nor an "
        f"installed one{hint} (modules there: {has})"
    )


def _no_such_name(entrypoint: Imported, owner: Any, part: str) -> str:
    own = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    made = (
        [
            name
            for name, value in vars(owner).items()
            if isinstance(value, type | FunctionType) and value.__module__ == own
        ]
        if hasattr(owner, "__dict__")
        else []
    )
    near = get_close_matches(part, made, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    has = listed(made, most=MOST_NAMES) or "none"
    place = _file_of(owner) if isinstance(owner, ModuleType) else owner.__name__
    return f"entrypoint: {place} has no {part}{hint} (classes and functions there: {has})"


def _file_of(module: ModuleType) -> str:
    return os.path.basename(getattr(module, "__file__", None) or module.__name__)
