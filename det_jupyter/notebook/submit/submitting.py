"""From the text of a cell to a submitted experiment: parse, check everything, capture, post."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_jupyter.blobs import BlobStore
from det_jupyter.client import Client
from det_jupyter.config import (
    ExperimentConfig,
    notices,
    read_yaml,
    take_template,
)
from det_jupyter.errors import CaptureError, ConfigError, MasterUnreachable, NotFound
from det_jupyter.notebook.capture.capture import capture
from det_jupyter.notebook.handles import connection, experiments
from det_jupyter.notebook.handles.experiments import NotebookExperiment
from det_jupyter.notebook.submit.checks import (
    find_batch_size_problems,
    find_class_problems,
    find_metric_problems,
    find_open_storage,
    find_slot_problems,
)
from det_jupyter.notebook.submit.environment import find_unset, take_along
from det_jupyter.verbs.drafts import Draft, below_magic
from det_jupyter.wire import Capsule, CreateExperiment
from det_jupyter.words import count, printable


def submit(cell: str, options: argparse.Namespace, shell: Any) -> NotebookExperiment:
    """Submit the experiment that the cell describes and return its handle.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the entrypoint, each line
            with the line of the cell it is about.
        CaptureError: Everything that cannot travel to the ranks.
    """
    draft, _, capsule = _prepare(cell, options, shell)
    request = CreateExperiment(
        config=draft.document,
        template=draft.template_name,
        capsule=capsule,
        python=sys.executable,
        cwd=str(_folder()),
        notebook=_notebook_path(shell),
        queue_anyway=options.queue_anyway,
    )
    try:
        view = connection.client().create(request)
    except ConfigError as error:
        raise draft.located(error.problems) from None
    print_notices(draft)
    return experiments.experiment_of(view)


def dry_run(cell: str, options: argparse.Namespace, shell: Any) -> None:
    """Check everything as `submit` does and print what would travel; submit nothing."""
    draft, config, capsule = _prepare(cell, options, shell)
    print(f"“{config.name}” is ready {_to_run(config, connection.client())}.")
    print("It takes with it:")
    for item in capsule.captured:
        where = f"from {item.cell}" if item.cell else ""
        print(f"  {item.name:24} {item.type:20} {item.size_bytes:>12,} bytes  {where}".rstrip())
    for module in capsule.modules:
        print(f"  {module}")
    for notice in capsule.notices:
        print(f"Note: {notice}")
    print_notices(draft)


def _to_run(config: ExperimentConfig, client: Client) -> str:
    asked = config.resources
    number = asked.slots_per_trial
    problem = client.find_impossibility(
        number, pool=asked.resource_pool or "", is_single_agent=asked.is_single_node
    )
    if problem is not None:  # else it was refused, but for --queue-anyway
        return f"to queue, though it cannot run now: {problem}"
    return f"to run on {count(number, 'slot')}" if number else "to run without slots"


def read_draft(cell: str, options: argparse.Namespace) -> Draft:
    """Return the configuration that a cell and the options of its magic give.

    Problems with its text are among those that `Draft.parse` returns.
    """
    reading = read_yaml(below_magic(cell))
    name, problems = take_template(reading.document, options.template)
    reading.problems.extend(problems)
    template: dict[str, Any] | None = {}
    try:
        if name is not None:
            template = connection.client().template(name).config
    except NotFound as error:
        template = None
        where = "template" if options.template is None else "--template"
        reading.problems.append(f"{where}: {error}")
    return Draft(
        reading=reading,
        document=_with_options(reading.document, options),
        template_name=name,
        template=template,
    )


def print_notices(draft: Draft) -> None:
    """Print what of the configuration has no effect, and where it trusts every user."""
    merged = draft.merged()
    for notice in notices(merged) + find_unset(merged) + find_open_storage(merged):
        print(f"Note: {notice}")


def _prepare(
    cell: str, options: argparse.Namespace, shell: Any
) -> tuple[Draft, ExperimentConfig, Capsule]:
    draft = read_draft(cell, options)
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    # The entrypoint is checked even if the configuration is wrong: all problems at once.
    merged = draft.merged()
    entrypoint = merged.get("entrypoint")
    if isinstance(entrypoint, str) and entrypoint.isidentifier():
        own_problems = find_class_problems(entrypoint, shell.user_ns)
        if config is not None and not own_problems:
            problems += find_metric_problems(config, shell.user_ns)
        if isinstance(shell.user_ns.get(entrypoint), type):
            own_problems += find_batch_size_problems(merged)
        problems += [problem for problem in own_problems if problem not in problems]
    # A submission without problems is checked by the master itself.
    if problems or options.dry_run:
        with suppress(MasterUnreachable):
            problems += find_slot_problems(
                merged, connection.client(), queue_anyway=options.queue_anyway
            )
    if problems or config is None:
        raise draft.located(problems)
    blobs = BlobStore(Path(connection.client().session.info.data_dir) / "blobs")
    capsule = capture(
        config.entrypoint,
        shell.user_ns,
        blobs=blobs,
        cwd=_folder(),
        shell=shell,
        allow_large=options.allow_large,
    )
    return draft, config, take_along(capsule, config.to_document(), blobs)


def _with_options(document: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Lay the options of the magic's line over the document."""
    if options.name is not None:
        document = document | {"name": options.name}
    if options.slots is not None:
        resources = document.get("resources") or {}
        if isinstance(resources, dict):
            document = document | {"resources": resources | {"slots_per_trial": options.slots}}
    return document


def _folder() -> Path:
    try:
        folder = Path.cwd()
        str(folder).encode()
        return folder
    except UnicodeEncodeError:
        raise CaptureError(
            [
                f"the name of the folder that this notebook runs in is not UTF-8: "
                f"{os.fsencode(folder)!r}; rename it, or os.chdir() into another one"
            ]
        ) from None
    except FileNotFoundError:
        raise CaptureError(
            [
                "the folder that this notebook runs in is not there any more; "
                "os.chdir() into one that is, or restart the kernel"
            ]
        ) from None


def _notebook_path(shell: Any) -> str | None:
    """Return the notebook's path where the front end gives it (JupyterLab, VS Code)."""
    path = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
    return printable(str(path)) if path else None
