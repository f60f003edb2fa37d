"""From the text of a cell to a submitted experiment: parse, check everything, capture, post."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from det_jupyter.blobs import BlobStore
from det_jupyter.config import ExperimentConfig, lines_of_paths, parse_config, parse_yaml
from det_jupyter.errors import CaptureError, ConfigError
from det_jupyter.notebook import handles
from det_jupyter.notebook.capture import capture
from det_jupyter.notebook.handles import NotebookExperiment
from det_jupyter.wire import Capsule, CreateExperiment


def submit(cell: str, options: argparse.Namespace, shell: Any) -> NotebookExperiment:
    """Submit the experiment that the cell describes and return its handle.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the trial class, each line
            with the line of the cell it is about.
        CaptureError: Everything that cannot travel to the ranks.
    """
    document, capsule = _prepare(cell, options, shell)
    request = CreateExperiment(
        config=document,
        capsule=capsule,
        python=sys.executable,
        cwd=os.getcwd(),
        notebook=_notebook_path(shell),
    )
    try:
        view = handles.client().create(request)
    except ConfigError as error:
        raise _located(error.problems, cell) from None
    return handles.experiment_of(view)


def dry_run(cell: str, options: argparse.Namespace, shell: Any) -> None:
    """Check everything as `submit` does and print what would travel; submit nothing."""
    document, capsule = _prepare(cell, options, shell)
    config = parse_config(document, default_seed=0)
    print(f"“{config.name}” is ready to run on {config.resources.slots_per_trial} slot(s).")
    print("It takes with it:")
    for item in capsule.captured:
        where = f"from {item.cell}" if item.cell else ""
        print(f"  {item.name:24} {item.type:20} {item.size_bytes:>12,} bytes  {where}".rstrip())
    for module in capsule.modules:
        print(f"  {module}")
    for notice in capsule.notices:
        print(f"Note: {notice}")


def _prepare(cell: str, options: argparse.Namespace, shell: Any) -> tuple[dict[str, Any], Capsule]:
    document = _with_options(parse_yaml(cell), options)
    problems: list[str] = []
    config: ExperimentConfig | None = None
    try:
        config = parse_config(document, default_seed=int(time.time()) % 2**31)
    except ConfigError as error:
        problems += error.problems
    # The class is looked at even when the configuration is wrong: all problems are told at once.
    entrypoint = document.get("entrypoint")
    if isinstance(entrypoint, str):
        class_problems = find_class_problems(entrypoint, shell.user_ns)
        if config is not None and not class_problems:
            problems += _find_metric_problems(config, shell.user_ns)
        problems += class_problems
    if problems or config is None:
        raise _located(problems, cell)
    client = handles.client()
    capsule = capture(
        config.entrypoint,
        shell.user_ns,
        blobs=BlobStore(Path(client.session.info.data_dir) / "blobs"),
        cwd=Path.cwd(),
        shell=shell,
        allow_large=options.allow_large,
    )
    return document, capsule


def _with_options(document: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Lay the options of the magic's line over the document."""
    if options.name is not None:
        document = document | {"name": options.name}
    if options.slots is not None:
        resources = document.get("resources") or {}
        if isinstance(resources, dict):
            document = document | {"resources": resources | {"slots_per_trial": options.slots}}
    return document


def find_class_problems(entrypoint: str, namespace: dict[str, Any]) -> list[str]:
    """Return what is wrong with the trial class, as far as looking at it tells."""
    library = sys.modules.get("det_jupyter.pytorch")  # loaded, if the class derives from it
    known = _trial_classes(namespace, library)
    if entrypoint not in namespace:
        remedy = f"trial classes here: {', '.join(known)}" if known else "none is defined here yet"
        return [
            f"entrypoint: {entrypoint!r} is not defined in this notebook; "
            f"run the cell that defines it ({remedy})"
        ]
    value = namespace[entrypoint]
    if not isinstance(value, type):
        return [f"entrypoint: {entrypoint!r} is a {type(value).__name__}, expected a class"]
    if library is None or not issubclass(value, library.PyTorchTrial):
        return [
            f"entrypoint: {entrypoint} does not derive from PyTorchTrial; "
            f"write `class {entrypoint}(PyTorchTrial)` (from det_jupyter.pytorch)"
        ]
    return [f"entrypoint: {problem}" for problem in library.check_trial_class(value)]


def _find_metric_problems(config: ExperimentConfig, namespace: dict[str, Any]) -> list[str]:
    """Return a problem if the class's source shows that it never reports the searcher's metric."""
    library = sys.modules["det_jupyter.pytorch"]
    trial_class = namespace[config.entrypoint]
    problems: list[str] = library.check_searcher_metric(trial_class, config.searcher.metric)
    return problems


def _trial_classes(namespace: dict[str, Any], library: Any) -> list[str]:
    if library is None:
        return []
    base = library.PyTorchTrial
    return sorted(
        name
        for name, value in list(namespace.items())
        if isinstance(value, type) and value is not base and issubclass(value, base)
    )


def _located(problems: Iterable[str], cell: str) -> ConfigError:
    """Put before each problem the line of the cell (the magic's is line 1) that it is about."""
    lines = lines_of_paths(cell)
    return ConfigError([_with_line(problem, lines) for problem in problems])


def _with_line(problem: str, lines: dict[str, int]) -> str:
    match = re.match(r"line (\d+): ", problem)
    if match:
        return f"line {int(match[1]) + 1}: {problem[match.end() :]}"
    path = problem.split(":", 1)[0]
    while path and path not in lines:  # a missing key is about the section it is missing from
        path = path.rpartition(".")[0]
    return f"line {lines[path] + 1}: {problem}" if path else problem


def _notebook_path(shell: Any) -> str | None:
    """Return the notebook's path where the front end tells it (JupyterLab, VS Code)."""
    path = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
    return str(path) if path else None


__all__ = ["CaptureError", "dry_run", "find_class_problems", "submit"]
