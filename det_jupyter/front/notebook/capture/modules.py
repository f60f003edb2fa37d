"""Finds the local modules to send with a trial, and the versions of installed ones.

A module is local if its file is neither installed, nor Python's, nor ours. These local modules are
sent: those that are loaded from below the notebook's folder, those that the trial refers to, and
all that these import, also within functions. A package is sent as a whole.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

from det_jupyter.contract.values.text import listed

_CODE_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_MAX_DATA_FILE_BYTES = 2**20
_MAX_DATA_BYTES = 32 * 2**20  # data files of one package
_NOT_SENT = {"__main__", "__mp_main__", "conftest", "det_jupyter"}
_IMPORT = re.compile(r"^([ \t]*)(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
# Distributions whose name differs from their module's; importlib.metadata takes 150 ms to build
# the complete table.
_DISTRIBUTIONS = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}


class LocalFiles:
    """Distinguishes the user's own files from installed ones."""

    def __init__(self, cwd: str) -> None:
        self._folders = _with_resolved([cwd])
        installed = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix]
        installed += sysconfig.get_paths().values()
        # A prefix that contains the notebook's folder (/usr and /usr/home/me) does not count.
        self._installed = tuple(
            folder
            for folder in _with_resolved(installed)
            if not any(own.startswith(folder) for own in self._folders)
        )

    def has(self, file: str) -> bool:
        """Return whether a file or folder is neither installed nor Python's."""
        file = _normal(file) + os.sep
        return (
            os.path.isabs(file)
            and not file.startswith(self._installed)
            and f"{os.sep}site-packages{os.sep}" not in file
            and f"{os.sep}dist-packages{os.sep}" not in file
        )

    def relative(self, file: str) -> str | None:
        """Return a file's path relative to the notebook's folder, None if it is elsewhere."""
        file = _normal(file)
        for folder in self._folders:
            if file.startswith(folder):
                return file.removeprefix(folder)
        return None


@lru_cache(maxsize=2**14)  # called at each capture for every loaded module
def _normal(file: str) -> str:
    return os.path.normpath(file)


def _with_resolved(folders: Iterable[str]) -> tuple[str, ...]:
    """Return each folder as given and with symbolic links resolved, ending in a separator."""
    spelled = {os.path.abspath(f) for f in folders} | {os.path.realpath(f) for f in folders}
    return tuple(sorted(folder.rstrip(os.sep) + os.sep for folder in spelled))


@dataclass(slots=True, kw_only=True)
class LocalModules:
    """Files to send, by path below the import root, and the modules that they import."""

    files: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    notices: list[str] = field(default_factory=list)


def find_local_modules(
    referenced: set[str], cell_sources: Iterable[str], cwd: str
) -> LocalModules:
    """Return the local modules that a trial needs.

    Args:
        referenced: Top-level names of the modules that the pickled trial refers to.
        cell_sources: Sources of its cells, searched for imports inside of functions.
        cwd: The notebook's folder.
    """
    own = LocalFiles(cwd)
    found = LocalModules(imports=set(referenced))
    for source in cell_sources:
        found.imports |= _imported_names(source, only_lazy=True)
    pending = sorted(found.imports | _loaded_below(own))
    seen = set(pending)
    while pending:
        top = pending.pop()
        imported = _collect(top, own, found) if top not in _NOT_SENT else set()
        found.imports |= imported
        pending += sorted(imported - seen)
        seen |= imported
    return found


def _loaded_below(own: LocalFiles) -> set[str]:
    """Return the top-level names of the loaded modules with a file under the notebook's folder."""
    tops = set()
    for name, module in list(sys.modules.items()):
        # Not getattr: that would load lazy modules.
        file = getattr(module, "__dict__", {}).get("__file__")
        if isinstance(file, str) and own.relative(file) is not None and own.has(file):
            tops.add(name.partition(".")[0])
    return tops


def _collect(top: str, own: LocalFiles, found: LocalModules) -> set[str]:
    """Add a module's files if it is local, and return the top-level names that they import."""
    origin, folders = _locate(top)
    if not folders and origin is not None and own.has(origin) and os.path.isfile(origin):
        files = {top + os.path.splitext(origin)[1]: origin}
    else:
        files = {
            os.path.join(top, os.path.relpath(file, folder)): file
            for folder in folders
            if own.has(folder)
            for file in _files_below(folder)
        }
        files = _without_bulk(top, files, found.notices, has_data=origin is not None)
    found.files |= {name.replace(os.sep, "/"): file for name, file in files.items()}
    return {
        name
        for file in files.values()
        if file.endswith(".py")
        for name in _names_imported_by(file, os.stat(file).st_mtime_ns)
    }


def _locate(top: str) -> tuple[str | None, list[str]]:
    """Return a module's file and, for a package, its folders."""
    if top in sys.modules:
        contents = getattr(sys.modules[top], "__dict__", {})
        return contents.get("__file__"), [str(path) for path in contents.get("__path__", ())]
    try:
        spec = find_spec(top)
    except (ImportError, AttributeError, ValueError):  # from an import hook
        return None, []
    if spec is None:
        return None, []
    return spec.origin, list(spec.submodule_search_locations or ())


def _files_below(folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        if "pyvenv.cfg" in files:
            folders.clear()
            continue
        skipped = ("__pycache__", "node_modules", "site-packages")
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in skipped)
        for name in sorted(files):
            file = os.path.join(path, name)
            is_wanted = not name.startswith(".") and not name.endswith((".pyc", ".ipynb"))
            if is_wanted and os.path.isfile(file) and os.access(file, os.R_OK):
                yield file


def _without_bulk(
    top: str, files: dict[str, str], notices: list[str], *, has_data: bool
) -> dict[str, str]:
    """Return a package's code and small data files; add a notice about data that are not sent.

    Any folder is a package for Python; without an `__init__.py`, its data are never sent.
    """
    code = {name: file for name, file in files.items() if name.endswith(_CODE_SUFFIXES)}
    if not code or not has_data:
        return code
    sizes = {name: os.path.getsize(file) for name, file in files.items() if name not in code}
    small = {name for name, size in sizes.items() if size <= _MAX_DATA_FILE_BYTES}
    if sum(sizes[name] for name in small) > _MAX_DATA_BYTES:
        small.clear()
    if left := sorted(sizes.keys() - small):
        notices.append(
            f"package {top}: {listed(left, most=1)} did not travel (data files above 1 MiB, or "
            "32 MiB together); give the trial an absolute path instead"
        )
    return code | {name: files[name] for name in small}


@lru_cache(maxsize=2**12)  # cells are run again and again while their packages stay the same
def _names_imported_by(file: str, mtime_ns: int) -> frozenset[str]:
    """Return the top-level names that a file imports; `mtime_ns` is part of the cache's key."""
    with open(file, encoding="utf-8", errors="replace") as opened:
        return frozenset(_imported_names(opened.read()))


def _imported_names(source: str, *, only_lazy: bool = False) -> set[str]:
    """Return the top-level names that a source imports; `only_lazy`: in indented lines only.

    Text that only looks like an import does no harm: no module of that name is found.
    """
    names: set[str] = set()
    for indent, package, modules in _IMPORT.findall(source):
        if indent or not only_lazy:
            names.update(
                part.split()[0].partition(".")[0] for part in modules.split(",") if part.strip()
            )
            names.add(package)
    return names - {""}


def imports_of(sources: Iterable[str]) -> set[str]:
    """Return the top-level names that sources import."""
    return {name for source in sources for name in _imported_names(source)}


def find_packages(imports: Iterable[str], local: Iterable[str]) -> dict[str, str]:
    """Return names and versions of the installed distributions of these modules."""
    tops = set(imports) - {name.partition("/")[0].removesuffix(".py") for name in local}
    versions = {
        distribution: version
        for top in tops - _NOT_SENT - {"cloudpickle"} - sys.stdlib_module_names
        for distribution, version in [_distribution_of(top)]
        if version
    }
    return dict(sorted(versions.items()))


@lru_cache(maxsize=1024)
def _distribution_of(top: str) -> tuple[str, str]:
    name = _DISTRIBUTIONS.get(top, top)
    try:
        return name, metadata.version(name)
    except metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(top), "__version__", "")
        return top, version if isinstance(version, str) else ""
