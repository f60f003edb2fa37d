"""Loads a captured trial, in a rank or in a notebook.

notebook/capture/ makes capsules. The pickle stream calls `notebook_globals`, `rebuild_*` and
`fill_cached` by name, so these names are a part of the format.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import linecache
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import lru_cache, update_wrapper
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.paths import write_private
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.context_dir import context_files
from det_jupyter.errors import ProtocolMismatch

_STATES_FILE = ".unpacked"  # in a folder of unpacked modules: size and time of each file
_OUR_MODULE = re.compile(r"(module|named) 'det_jupyter\b")  # in the message of a failed import
_notebook: ContextVar[dict[str, Any]] = ContextVar("notebook")


def load_capsule(
    capsule: Capsule, blobs: BlobStore, code_dir: Path, *, as_main: bool = True
) -> Any:
    """Return the captured class or function that `capsule.entrypoint` names.

    Arrays and tensors are copy-on-write mappings of the blobs: processes share their memory until
    they write to it.

    Args:
        code_dir: Folder for its local modules, which capsules with the same modules may share. A
            file that was changed there is written again.
        as_main: True in a rank: the captured names become `__main__`, and captured modules take
            precedence over others of their names. False in a notebook: `__main__` is unchanged,
            and other modules of these names take precedence.

    Raises:
        ProtocolMismatch: The stream refers to a module or name that this version of det_jupyter
            does not have.
    """
    if not capsule.payload:
        raise ValueError(f"{capsule.entrypoint} is not in the capsule, but in a module")
    _unpack_modules(capsule, blobs, code_dir, as_main=as_main)
    for filename, cell in _sources(capsule, blobs).items():
        # In a notebook an existing file takes precedence, even if it has changed since.
        if as_main or not os.path.exists(filename):
            _register_source(filename, cell["source"])
    main = ModuleType("__main__")
    if as_main:
        sys.modules["__main__"] = main
    token = _notebook.set(vars(main))
    try:
        # Each buffer is a mapping of its own, even of the same blob: two equal arrays of the
        # notebook must not become one.
        buffers = [blobs.map(digest) for digest in capsule.buffers]
        trial, names = pickle.loads(blobs.map(capsule.payload), buffers=buffers)
    except (AttributeError, ModuleNotFoundError) as error:
        if _OUR_MODULE.search(str(error)) is None:
            raise
        raise ProtocolMismatch(
            f"{capsule.entrypoint} was captured with another version of det_jupyter ({error}); "
            "run its cells again and submit it anew"
        ) from error
    finally:
        _notebook.reset(token)
    vars(main).update(names)
    return trial


def blobs_of(capsule: Capsule) -> set[str]:
    """Return the digests of the blobs that are needed to load the capsule."""
    context = capsule.context.blob if capsule.context is not None else ""
    found = {capsule.payload, capsule.sources, context, *capsule.buffers}
    return {digest for digest in found | set(capsule.modules.values()) if digest}


def private_blobs_of(capsule: Capsule) -> set[str]:
    """Return the digests of blobs that runs need and that checkpoints must not contain."""
    return {capsule.environment} if capsule.environment is not None else set()


def code_key(capsule: Capsule) -> str:
    """Return the name of the folder for its modules: equal for capsules with equal modules."""
    modules = json.dumps(sorted(capsule.modules.items()))
    return hashlib.sha256(modules.encode()).hexdigest()


def code_of(capsule: Capsule, blobs: BlobStore) -> dict[str, str]:
    """Return the source of a capsule: cells by label ("Cell In[5]"), other files by path."""
    cells = {cell["label"]: cell["source"] for cell in _sources(capsule, blobs).values()}
    modules = {
        name: blobs.read(digest).decode("utf-8", "replace")
        for name, digest in sorted(capsule.modules.items())
    }
    context = {} if capsule.context is None else context_files(capsule.context, blobs)
    return {**cells, **context, **modules}


def cell_labels(capsule: Capsule, blobs: BlobStore) -> dict[str, str]:
    """Return the labels of the captured cells, such as "Cell In[5]", by file name."""
    return {filename: cell["label"] for filename, cell in _sources(capsule, blobs).items()}


def cell_sources(capsule: Capsule, blobs: BlobStore) -> dict[str, str]:
    """Return the source of the captured cells, by file name."""
    return {filename: cell["source"] for filename, cell in _sources(capsule, blobs).items()}


def _sources(capsule: Capsule, blobs: BlobStore) -> dict[str, dict[str, str]]:
    sources: dict[str, dict[str, str]] = json.loads(blobs.read(capsule.sources))
    return sources


def _register_source(filename: str, source: str) -> None:
    # linecache.checkcache, which `traceback` calls, keeps entries with a modification time of
    # None.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)


def _unpack_modules(capsule: Capsule, blobs: BlobStore, code_dir: Path, *, as_main: bool) -> None:
    if not capsule.modules:
        return
    if not _are_unpacked(capsule.modules, code_dir):
        for name, digest in capsule.modules.items():
            _write_module(code_dir, PurePosixPath(name), blobs.read(digest))
        states = json.dumps(_states(capsule.modules, code_dir)).encode()
        write_private(code_dir / _STATES_FILE, states)
    folder = os.path.abspath(code_dir)
    if as_main:
        sys.path.insert(0, folder)
    elif folder not in sys.path:
        sys.path.append(folder)
    importlib.invalidate_caches()
    if as_main:
        _unload_modules({PurePosixPath(name).parts[0] for name in capsule.modules}, folder)


def _are_unpacked(names: Iterable[str], code_dir: Path) -> bool:
    """Return whether the files are unchanged since they were written, by size and time.

    A comparison with the blobs would take [m] 50 ms for a package of 250 files, in every rank.
    """
    try:
        stored = json.loads((code_dir / _STATES_FILE).read_bytes())
        return bool(stored == _states(names, code_dir))
    except (OSError, ValueError):  # a file is missing, or nothing was unpacked yet
        return False


def _states(names: Iterable[str], code_dir: Path) -> dict[str, list[int]]:
    """Return size and modification time of each file."""
    found = {name: os.stat(f"{code_dir}/{name}") for name in names}
    return {name: [state.st_size, state.st_mtime_ns] for name, state in found.items()}


def _write_module(code_dir: Path, name: PurePosixPath, content: bytes) -> None:
    if name.is_absolute() or ".." in name.parts:
        raise ValueError(f"capsule: module file {name} would lie outside of {code_dir}")
    path = code_dir / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() == content:
        return
    write_private(path, content)  # atomic, as ranks write the same files at the same time


def _unload_modules(files: set[str], folder: str) -> None:
    """Remove modules of other folders that have the names of captured ones from sys.modules."""
    tops = {file.partition(".")[0] for file in files}
    inside = folder + os.sep
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in tops:
            file = getattr(module, "__file__", None) or ""
            if not file.startswith(inside):
                del sys.modules[name]


def notebook_globals() -> dict[str, Any]:
    """Return the globals that all captured functions share. Called while a stream is loaded."""
    return _notebook.get()


class NotebookGlobals:
    """Replaces, in a stream, the globals that all captured functions share."""

    def __reduce__(self) -> tuple[Callable[[], dict[str, Any]], tuple[()]]:
        return notebook_globals, ()


def rebuild_storage(buffer: Any) -> Any:
    """Return a torch storage over the memory of `buffer`."""
    import torch

    if len(buffer) == 0:  # torch.frombuffer refuses empty buffers
        return torch.UntypedStorage(0)
    return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()


def rebuild_tensor(
    storage: Any,
    dtype: Any,
    offset: int,
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
) -> Any:
    """Return a tensor that is a view of `storage`."""
    import torch

    tensor = torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, stride)
    return tensor.requires_grad_(requires_grad)


def rebuild_typed_storage(storage: Any, dtype: Any) -> Any:
    """Return a typed view of `storage`, which torch's own reductions expect."""
    import torch

    return torch.storage.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def rebuild_cached(make: Callable[..., Any], args: tuple[Any, ...], parameters: Any) -> Any:
    """Return a `functools.lru_cache` wrapper; `fill_cached` completes the function inside."""
    return lru_cache(**parameters)(make(*args))


def fill_cached(cached: Any, state: tuple[Callable[[Any, Any], object], Any]) -> None:
    """Set the state of the function inside the wrapper that `rebuild_cached` made."""
    fill, function_state = state
    fill(cached.__wrapped__, function_state)
    update_wrapper(cached, cached.__wrapped__)
