"""The code that the origin of a checkpoint names: captured in a notebook, or importable."""

from __future__ import annotations

import atexit
import importlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.paths import data_dir as default_data_dir
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import code_key, load_capsule
from det_jupyter.contract.trial.context_dir import unpack_context
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.contract.values.entrypoints import (
    Imported,
    parse_entrypoint,
    try_parse_entrypoint,
)
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import CheckpointError

_contexts: list[str] = []  # the folder of the context that is on sys.path


def find_class(origin: Origin, path: Path, data_dir: Path | None, remedy: str) -> Any:
    """Return the class of an origin. This runs captured code.

    Args:
        path: Folder of the checkpoint.
        data_dir: Folder into which captured local modules are unpacked; None: one that is removed
            when this process ends.
        remedy: What to do if the class is not found, for the message.

    Raises:
        CheckpointError: It cannot be imported or loaded here.
    """
    name, capsule = origin.trial_class, origin.capsule
    module, _, qualname = name.partition(":")
    if "<locals>" in qualname:
        raise CheckpointError(
            f"{path}: its class {qualname} is defined inside of a function, where it cannot be "
            f"found again; define it outside, and for this checkpoint {remedy}"
        )
    if origin.modules is not None:
        return _import_from(origin.modules, name, str(path), remedy)
    if capsule is None:
        return import_class(name, str(path), remedy)
    if not capsule.payload:
        return _find_in_module(name, capsule, _blobs_of(origin, data_dir), path, remedy)
    with _naming_code(capsule, path, remedy):
        captured = _load_captured(capsule, _blobs_of(origin, data_dir), data_dir)
    if isinstance(captured, type):
        return captured
    if module != "__main__":
        return import_class(name, str(path), remedy)
    first, *rest = qualname.split(".")
    names = getattr(captured, "__globals__", {})  # if it is a function that trains
    if first not in names:
        raise CheckpointError(
            f"{path}: {capsule.entrypoint} has been captured without the name of its class "
            f"{first}, which its code does not use; {remedy}"
        )
    return reduce(getattr, rest, names[first])


def names_in_code(
    origin: Origin, path: Path, data_dir: Path | None, remedy: str
) -> dict[str, Any]:
    """Return the globals of a captured function or of the entrypoint's module, by name.

    {} if there is neither. This runs their code; modules that were captured with it can be
    imported afterwards. Args and errors are those of `find_class`.
    """
    capsule = origin.capsule
    if capsule is None:
        return {}
    with _naming_code(capsule, path, remedy):
        if not capsule.payload:
            _unpack(capsule, _blobs_of(origin, data_dir))
            meaning = try_parse_entrypoint(capsule.entrypoint)
            if isinstance(meaning, Imported):
                return dict(vars(importlib.import_module(meaning.module)))
            return {}
        captured = _load_captured(capsule, _blobs_of(origin, data_dir), data_dir)
        return dict(getattr(captured, "__globals__", {}))


def _load_captured(capsule: Capsule, blobs: BlobStore, data_dir: Path | None) -> Any:
    key = code_key(capsule)
    code_dir = data_dir / "code" / key if data_dir else _process_folder(key)
    return load_capsule(capsule, blobs, code_dir, as_main=False)


def _blobs_of(origin: Origin, data_dir: Path | None) -> BlobStore:
    return origin.blobs or BlobStore.of(data_dir or default_data_dir())


@contextmanager
def _naming_code(capsule: Capsule, path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # captured code is run, which may raise anything
        raise CheckpointError(
            f"{path}: the captured code of {capsule.entrypoint} cannot be loaded here "
            f"({error_text(error)}); {remedy}"
        ) from error


def _find_in_module(name: str, capsule: Capsule, blobs: BlobStore, path: Path, remedy: str) -> Any:
    """Import the class from a module of the context directory, or of this environment.

    As with a notebook's modules, modules of this environment take precedence.
    """
    with suppress(ValueError):
        meaning = parse_entrypoint(name)
        name = f"{meaning.module}:{meaning.name}" if isinstance(meaning, Imported) else name
    if name.startswith("__main__:"):  # running it again would train again
        raise CheckpointError(
            f"{path}: its class {name.partition(':')[2]} is in the script of "
            f"`{capsule.entrypoint}`, which only runs as a whole; {remedy}"
        )
    _unpack(capsule, blobs)
    return import_class(name, str(path), remedy)


def _unpack(capsule: Capsule, blobs: BlobStore) -> None:
    """Unpack the context directory, if there is one, so that its modules can be imported."""
    if capsule.context is None:
        return
    folder = _process_folder(capsule.context.blob) / "work"
    unpack_context(capsule.context, blobs, folder)
    if str(folder) not in sys.path:
        _forget_contexts()
        _contexts.append(str(folder))
        sys.path.append(str(folder))
        importlib.invalidate_caches()


def _forget_contexts() -> None:
    """Forget the modules of other contexts, which may have the same names: model_def, as a rule.

    Classes that were imported from them stay valid.
    """
    while _contexts:
        folder = _contexts.pop()
        with suppress(ValueError):
            sys.path.remove(folder)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
                del sys.modules[name]


def _import_from(folder: Path, name: str, where: str, remedy: str) -> Any:
    """Import a class from a folder. Its modules are then forgotten.

    Folders of other checkpoints have modules of the same names: model_def, as a rule.
    """
    own = {file.stem for file in folder.glob("*")}

    def take_modules() -> dict[str, ModuleType]:
        names = [each for each in sys.modules if each.partition(".")[0] in own]
        return {each: sys.modules.pop(each) for each in names}

    others = take_modules()
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        return import_class(name, where, remedy)
    finally:
        sys.path.remove(str(folder))
        take_modules()
        sys.modules.update(others)


def import_class(name: str, where: str, remedy: str) -> Any:
    """Return the class that `name_of_class` named, if it can be imported here.

    Raises:
        CheckpointError: The class cannot be imported here.
    """
    module, _, qualname = name.partition(":")
    try:
        found = importlib.import_module(module)
        return reduce(getattr, qualname.split("."), found)
    except (ImportError, AttributeError) as error:
        if str(getattr(error, "name", None)).partition(".")[0] == "determined":
            remedy = f"pip install det-jupyter-determined, or {remedy}"
        raise CheckpointError(
            f"{where}: its class {name} cannot be imported here ({error}); {remedy}"
        ) from None


@cache
def _process_folder(key: str) -> Path:
    """Create a folder that is removed when this process ends; one for each key."""
    folder = Path(tempfile.mkdtemp(prefix=f"det-code-{key[:8]}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
