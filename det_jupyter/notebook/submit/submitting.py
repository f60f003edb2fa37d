"""From a draft to a submitted experiment: check everything, capture, post."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import ChainMap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from det_jupyter.blobs import BlobStore
from det_jupyter.client import Client
from det_jupyter.client.checks import find_open_storage, find_slot_problems
from det_jupyter.client.drafts import Draft, below_magic, with_template
from det_jupyter.client.environment import find_unset, take_along
from det_jupyter.config import (
    ExperimentConfig,
    notices,
    read_yaml,
)
from det_jupyter.errors import CaptureError, ConfigError, MasterUnreachable
from det_jupyter.notebook.capture.capture import capture
from det_jupyter.notebook.handles import connection, experiments
from det_jupyter.notebook.handles.experiments import NotebookExperiment
from det_jupyter.notebook.submit.checks import (
    find_batch_size_problems,
    find_class_problems,
    find_metric_problems,
)
from det_jupyter.wire import Capsule, CreateExperiment
from det_jupyter.words import count, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The process that submits, and what it allows.

    Args:
        namespace: The globals of the notebook or script: the very dict, not a copy of it.
        shell: Knows the cells of a notebook; None in a script.
        given: The class or function by its name, if it was given as an object.
        queue_anyway: Submit it though no pool can run it now.
        allow_large: Send more than 1 GiB.
    """

    namespace: Mapping[str, Any]
    shell: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    queue_anyway: bool = False
    allow_large: bool = False

    @property
    def names(self) -> Mapping[str, Any]:
        """What an entrypoint may name."""
        return ChainMap(dict(self.given), dict(self.namespace)) if self.given else self.namespace


def submit_cell(cell: str, options: argparse.Namespace, shell: Any) -> NotebookExperiment:
    """Submit the experiment that the cell describes, as `submit_draft` does."""
    return submit_draft(read_draft(cell, options), _caller_of(options, shell))


def submit_draft(draft: Draft, caller: Caller) -> NotebookExperiment:
    """Submit an experiment and return its handle.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the entrypoint, each line
            with the line of the text it is about.
        CaptureError: Everything that cannot travel to the ranks.
    """
    _, capsule = _prepare(draft, caller)
    request = CreateExperiment(
        config=draft.document,
        template=draft.template_name,
        capsule=capsule,
        python=sys.executable,
        cwd=str(_folder()),
        notebook=_notebook_path(caller),
        queue_anyway=caller.queue_anyway,
    )
    try:
        view = connection.client().create(request)
    except ConfigError as error:
        raise draft.located(error.problems) from None
    print_notices(draft)
    if caller.given:  # the handle need not be shown, and its view says the same
        for notice in capsule.notices:
            print(f"Note: {notice}")
    return experiments.experiment_of(view)


def dry_run(cell: str, options: argparse.Namespace, shell: Any) -> None:
    """Check everything as `submit` does and print what would travel; submit nothing."""
    draft = read_draft(cell, options)
    config, capsule = _prepare(draft, _caller_of(options, shell), is_dry=True)
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
    document = _with_options(reading.document, options)
    return with_template(reading, document, template_named, options.template, storage_of_master)


def template_named(name: str) -> dict[str, Any]:
    """Return what is in a template."""
    return connection.client().template(name).config


def storage_of_master() -> str:
    """Return the master's folder for checkpoints that cannot go where they should."""
    return connection.client().session.info.checkpoint_storage


def print_notices(draft: Draft) -> None:
    """Print what of the configuration has no effect, and where it trusts every user."""
    merged = draft.merged()
    for notice in draft.remarks + notices(merged) + find_unset(merged) + find_open_storage(merged):
        print(f"Note: {notice}")


def _caller_of(options: argparse.Namespace, shell: Any) -> Caller:
    return Caller(
        namespace=shell.user_ns,
        shell=shell,
        queue_anyway=options.queue_anyway,
        allow_large=options.allow_large,
    )


def _prepare(
    draft: Draft, caller: Caller, *, is_dry: bool = False
) -> tuple[ExperimentConfig, Capsule]:
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    # The entrypoint is checked even if the configuration is wrong: all problems at once.
    merged = draft.merged()
    entrypoint = merged.get("entrypoint")
    if isinstance(entrypoint, str) and entrypoint.isidentifier():
        own_problems = find_class_problems(entrypoint, caller.names)
        if config is not None and not own_problems:
            problems += find_metric_problems(config, caller.names)
        if isinstance(caller.names.get(entrypoint), type):
            own_problems += find_batch_size_problems(merged)
        problems += [problem for problem in own_problems if problem not in problems]
    # A submission without problems is checked by the master itself.
    if problems or is_dry:
        with suppress(MasterUnreachable):
            problems += find_slot_problems(
                merged, connection.client(), queue_anyway=caller.queue_anyway
            )
    if problems or config is None:
        raise draft.located(problems)
    blobs = BlobStore(Path(connection.client().session.info.data_dir) / "blobs")
    capsule = capture(
        str(config.entrypoint),
        caller.namespace,
        given=caller.given.get(str(config.entrypoint)),
        blobs=blobs,
        cwd=_folder(),
        shell=caller.shell,
        allow_large=caller.allow_large,
    )
    return config, take_along(capsule, config.to_document(), blobs)


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


def _notebook_path(caller: Caller) -> str | None:
    """Return the path of the script, or the notebook's if the front end gives it.

    JupyterLab and VS Code do.
    """
    if caller.shell is None:
        script = os.path.abspath(caller.namespace.get("__file__") or "")
        return printable(script) if os.path.isfile(script) else None
    path = os.environ.get("JPY_SESSION_NAME") or caller.namespace.get("__vsc_ipynb_file__")
    return printable(str(path)) if path else None
