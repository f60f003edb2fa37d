"""Captures a trial or function of a notebook: survey, refusals, packing into a capsule.

Nothing is written before the survey has found that everything can be sent, and how large it is.
"""

from __future__ import annotations

import json
import linecache
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, CapturedName
from det_jupyter.contract.trial.rank_arguments import find_function_problem
from det_jupyter.contract.values.text import size
from det_jupyter.errors import CaptureError, ConfigError, DetError, Problem
from det_jupyter.front.notebook.capture.cells import Cells
from det_jupyter.front.notebook.capture.modules import (
    LocalFiles,
    find_local_modules,
    find_packages,
    imports_of,
)
from det_jupyter.front.notebook.capture.pickling import PackPickler, pack
from det_jupyter.front.notebook.capture.survey import Culprit, Survey, find_culprits, survey_trial
from det_jupyter.front.notebook.capture.traps import find_code_traps

_LARGE_BYTES = 2**30
_SHELL_NAMES = ("In", "Out")


def capture(
    entrypoint: str,
    namespace: Mapping[str, Any],
    *,
    blobs: BlobStore,
    cwd: Path,
    given: Any = None,
    shell: InteractiveShell | None = None,
    allow_large: bool = False,
) -> Capsule:
    """Capture `entrypoint`, with everything that it refers to, from a notebook or script.

    Args:
        entrypoint: Name of the trial's class, or of a function.
        namespace: The notebook's globals: the dict itself (`shell.user_ns`), not a copy.
        given: The class or function, if it may differ from the value of the name.
        blobs: Stores the parts of the capsule.
        cwd: The notebook's folder; modules below it are included.
        shell: Has the sources of cells; without it, `namespace["In"]` is used.
        allow_large: Accept more than 1 GiB.

    Raises:
        ConfigError: The class or function does not exist.
        CaptureError: Objects cannot be sent (one line for each), or are too large.
        DetError: The disk is full.
    """
    if given is None:
        if problem := find_entrypoint_problem(entrypoint, namespace):
            raise ConfigError(problem)
        given = namespace[entrypoint]
    cells = Cells.of(namespace, shell)
    survey = survey_trial(entrypoint, given, namespace, _own_names(shell))
    problems = [
        _describe(culprit, name, survey, entrypoint, cells)
        for name in survey.failures
        for culprit in find_culprits(survey, name)
    ]
    if problems:
        raise CaptureError(problems)
    if not allow_large:
        _check_size(survey, entrypoint, cells)
    stream, packed = _pack(entrypoint, survey, blobs)
    sources = _find_sources(packed.code_files, cells, str(cwd))
    local = find_local_modules(
        packed.modules, (cell["source"] for cell in sources.values()), str(cwd)
    )
    return Capsule(
        entrypoint=entrypoint,
        payload=blobs.put(stream),
        buffers=packed.buffers,
        sources=blobs.put(json.dumps(sources, sort_keys=True).encode()),
        modules={name: blobs.put(Path(file).read_bytes()) for name, file in local.files.items()},
        captured=_list_captured(survey, cells),
        packages={
            "Python": platform.python_version(),
            # Those of all cells: the data that is captured was made by some of them, too.
            **find_packages(local.imports | imports_of(cells.sources), local.files),
        },
        notices=[
            *find_code_traps(given, survey.functions),
            *(
                f"{name}: its tensors on {device} were copied to the CPU; move them to the rank's "
                "device in the trial"
                for name, device in survey.devices.items()
            ),
            *_source_notices(given, entrypoint),
            *local.notices,
        ],
    )


def find_entrypoint_problem(
    entrypoint: str, namespace: Mapping[str, Any], base: type = object
) -> Problem | None:
    """Return a problem if the entrypoint is no class or function of the notebook.

    The message lists the notebook's functions, and its classes that derive from `base`.
    """
    if entrypoint not in namespace:
        here = [name for name, value in namespace.items() if _is_made_here(value, namespace, base)]
        known = "classes and functions defined here: " + ", ".join(here)
        known = known if here else "it defines no class or function yet"
        text = f"{entrypoint!r} is not defined in this notebook; run the cell that defines it"
        return Problem("entrypoint", f"{text} ({known})")
    value = namespace[entrypoint]
    if not isinstance(value, (type, FunctionType)):
        kind = type(value).__name__
        text = f"{entrypoint!r} is of type {kind}, expected a class or a function"
        return Problem("entrypoint", text)
    return None


def _is_made_here(value: Any, namespace: Mapping[str, Any], base: type) -> bool:
    here = namespace.get("__name__", "__main__")
    if not isinstance(value, (type, FunctionType)) or value.__module__ != here:
        return False
    return (
        issubclass(value, base) if isinstance(value, type) else find_function_problem(value) == ""
    )


def find_entrypoint_traps(
    entrypoint: str, namespace: Mapping[str, Any], shell: InteractiveShell | None
) -> list[str]:
    """Return notices about mistakes in the code of an entrypoint; [] if it does not exist."""
    if find_entrypoint_problem(entrypoint, namespace) is not None:
        return []
    value = namespace[entrypoint]
    survey = survey_trial(entrypoint, value, namespace, _own_names(shell))
    return find_code_traps(value, survey.functions)


def _own_names(shell: InteractiveShell | None) -> set[str]:
    return {*_SHELL_NAMES, *(shell.user_ns_hidden if shell is not None else ())}


def _describe(culprit: Culprit, name: str, survey: Survey, entrypoint: str, cells: Cells) -> str:
    user, cell = survey.users[name], cells.maker_of(name)
    origin = f"{culprit.type_name}, from {cell}" if cell else culprit.type_name
    remedy = culprit.refusal.remedy.format(trial=entrypoint)
    if not isinstance(survey.values[entrypoint], type):
        remedy = remedy.replace(f"{entrypoint}.__init__", entrypoint)
    line = (
        f"{culprit.path} ({origin}) cannot travel to the ranks: {culprit.refusal.reason}; {remedy}"
    )
    return f"{line} ({user} uses {name})" if user else line


def _check_size(survey: Survey, entrypoint: str, cells: Cells) -> None:
    total = sum(survey.sizes.values())
    if total <= _LARGE_BYTES:
        return
    largest = sorted(survey.sizes, key=lambda name: -survey.sizes[name])[:3]
    parts = [
        f"{name} ({size(survey.sizes[name])}{f', from {cell}' if cell else ''})"
        for name in largest
        for cell in [cells.maker_of(name)]
    ]
    is_class = isinstance(survey.values[entrypoint], type)
    place = "build_training_data_loader" if is_class else entrypoint
    raise CaptureError(
        f"the trial takes {size(total)} with it: {', '.join(parts)}; load the data in {place} "
        "instead, or pass --allow-large (in Python, allow_large=True)"
    )


def _pack(entrypoint: str, survey: Survey, blobs: BlobStore) -> tuple[bytes, PackPickler]:
    try:
        value, namespace = survey.values[entrypoint], survey.namespace
        # A class defined in a function may differ from the value of its name in the notebook.
        names = [name for name in survey.sizes if namespace.get(name) is survey.values[name]]
        return pack(value, names, namespace, blobs)
    except DetError:
        raise
    except Exception as error:  # each name can be pickled, yet not all of them together
        message = str(error).strip().partition("\n")[0]
        raise CaptureError(
            f"{entrypoint} cannot travel to the ranks: {message} ({type(error).__name__})"
        ) from error


def _find_sources(files: set[str], cells: Cells, cwd: str) -> dict[str, dict[str, str]]:
    """Return label and source of each code file of the user: cells and local files."""
    own = LocalFiles(cwd)
    sources: dict[str, dict[str, str]] = {}
    for file in sorted(files):
        source = "".join(linecache.getlines(file))
        label = cells.label_of(file)
        if label is None and (own.has(file) or not os.path.exists(file)):
            label = own.relative(file) or file
        if source and label is not None:
            sources[file] = {"label": label, "source": source}
    return sources


def _list_captured(survey: Survey, cells: Cells) -> list[CapturedName]:
    captured = [
        CapturedName(
            name=name,
            cell=cells.maker_of(name),
            type="class" if isinstance(value, type) else type(value).__name__,
            size_bytes=num_bytes,
        )
        for name, num_bytes in survey.sizes.items()
        for value in [survey.values[name]]
    ]
    return sorted(captured, key=lambda item: (-item.size_bytes, item.name))


def _source_notices(value: Any, entrypoint: str) -> list[str]:
    """Return a notice if the source cannot be read: code typed at `python`, or piped into it."""
    parts = vars(value).values() if isinstance(value, type) else [value]
    files = {part.__code__.co_filename for part in parts if isinstance(part, FunctionType)}
    if not files or any(linecache.getlines(file) for file in files):
        return []
    return [
        f"{entrypoint}: its source cannot be read (it is in neither a cell nor a file), so "
        "tracebacks have none of its lines; put it into a file"
    ]
