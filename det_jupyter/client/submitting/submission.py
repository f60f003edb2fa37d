"""Submits an experiment from a configuration and a folder, without a notebook: `det e create`."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.handles.experiment import Experiment
from det_jupyter.client.submitting.code_checks import (
    find_batch_size_method,
    find_code_problems,
)
from det_jupyter.client.submitting.context_notices import find_context_notices
from det_jupyter.client.submitting.drafts import Draft, make_draft
from det_jupyter.client.submitting.environment import (
    find_unset,
    with_environment,
)
from det_jupyter.config import ExperimentConfig, find_missing_batch_size, notices, read_yaml
from det_jupyter.config.migrate import migrate
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.ownership import find_world_writable
from det_jupyter.contract.messages import Capsule, CreateExperiment
from det_jupyter.contract.trial.context_dir import ContextPlan, pack_context, plan_context
from det_jupyter.contract.values.entrypoints import entrypoint_text, try_parse_entrypoint
from det_jupyter.contract.values.text import printable
from det_jupyter.contract.values.variables import assigned_variables
from det_jupyter.errors import CaptureError, ConfigError, Problem
from det_jupyter.storage import folder_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checked experiment, ready to be submitted; nothing was sent yet.

    Args:
        config: Its effective configuration, except for a seed that the master draws.
        plan: The context directory (`plan.files` is sizes by path); None if there is none.
        notices: For the user to read.
        draft: The configuration as it was written.
        options: Arguments of `CreateExperiment`.
        where: The file that problems are reported for; "" if the text is from no file.
    """

    config: ExperimentConfig
    plan: ContextPlan | None
    notices: list[str]
    draft: Draft
    options: dict[str, Any]
    where: str = ""


def prepare(
    client: Client,
    text: str,
    *,
    context: Path | str | None = None,
    includes: Sequence[Path | str] = (),
    file: Path | str | None = None,
    template: str | None = None,
    changes: Mapping[str, Any] | None = None,
    checkpoint_storage: str | None = None,
    is_paused: bool = False,
    queue_anyway: bool = False,
    follow_links: bool = False,
    is_quiet: bool = False,
) -> Prepared:
    """Check everything about an experiment; send nothing.

    Args:
        text: The configuration, as YAML.
        context: The context directory, a copy of which is the ranks' working directory; None: they
            work in the present folder itself.
        includes: Files and folders to add to the context, under their own names.
        file: The file that `text` is from: problems begin with its name, and lists show it.
        template: Name of a template with defaults for the configuration.
        changes: Override the configuration (`verbs.yaml_input.read_overrides` parses them).
        checkpoint_storage: The folder for checkpoints; overrides the configuration.
        follow_links: Send the targets of links that lead out of the context.
        is_quiet: Send no notification when it ends.

    Raises:
        ConfigError: All problems of text, template, configuration, context and code; those of the
            text have their lines.
    """
    folder = _folder(context)
    draft = make_draft(
        lambda: client, read_yaml(text), template, [changes] if changes else [], checkpoint_storage
    )
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    plan = None
    if context is not None or includes:
        plan = plan_context(context, include=includes, follow_links=follow_links)
    merged = draft.merged()
    meaning = try_parse_entrypoint(merged.get("entrypoint"))
    if meaning is not None and (plan is None or plan.entries):
        variables = assigned_variables(merged)
        problems += find_code_problems(meaning, plan, Path(folder), variables)
        if method := find_batch_size_method(meaning, plan, Path(folder)):
            problems += find_missing_batch_size(migrate(merged).document, method)
    where = "" if file is None else str(file)
    notebook = None
    if file is not None and os.path.isfile(file):
        notebook = printable(os.path.abspath(file))
    around = [] if plan is None else plan.problems
    if problems or around or config is None:
        problems += find_slot_problems(merged, client, queue_anyway=queue_anyway)
        raise ConfigError([*_located(draft, problems, where).problems, *around])
    of_files = [live_notice(folder, "name the folder to have")]
    if plan is not None:
        of_files = find_context_notices(plan, config.entrypoint)
    return Prepared(
        config=config,
        plan=plan,
        notices=find_notices(draft, config) + of_files,
        draft=draft,
        options={
            "python": sys.executable,
            "cwd": folder,
            "notebook": notebook,
            "is_paused": is_paused,
            "queue_anyway": queue_anyway,
            "is_quiet": is_quiet,
        },
        where=where,
    )


def find_notices(
    draft: Draft, config: ExperimentConfig, *, in_notebook: bool = False
) -> list[str]:
    """Return the notices about a configuration."""
    found = draft.remarks + notices(draft.merged())
    return found + find_unset(config, in_notebook=in_notebook) + find_open_storage(config)


def live_notice(folder: str, remedy: str) -> str:
    """Return the notice that ranks read files of a folder that may change after submission."""
    return (
        f"ranks work in {folder} itself, and read its files when they start; {remedy} them work "
        "in a copy"
    )


def submit(client: Client, prepared: Prepared) -> Experiment:
    """Submit a prepared experiment, and return its handle."""
    try:
        return Experiment(client, client.create(request_of(client, prepared)).id)
    except ConfigError as error:
        raise _located(prepared.draft, error.problems, prepared.where) from None


def request_of(
    client: Client, prepared: Prepared, capsule: Capsule | None = None
) -> CreateExperiment:
    """Store the code of a prepared experiment, and return the request that submits it.

    Args:
        capsule: The captured class or function; None: its code is in files.
    """
    blobs = BlobStore.of(client.session.info.data_dir)
    if capsule is None:
        entrypoint = entrypoint_text(prepared.config.entrypoint)
        capsule = capsule_of(entrypoint, prepared.plan, blobs)
    return CreateExperiment(
        config=prepared.draft.document,
        template=prepared.draft.template_name,
        capsule=with_environment(capsule, prepared.config, blobs),
        **prepared.options,
    )


def capsule_of(entrypoint: str, plan: ContextPlan | None, blobs: BlobStore) -> Capsule:
    """Return the capsule of a module or command, with its context directory as a blob."""
    return Capsule(
        entrypoint=entrypoint,
        sources=blobs.put(json.dumps({}).encode()),
        packages=_packages(),
        **with_context(plan, blobs, entrypoint),
    )


def with_context(plan: ContextPlan | None, blobs: BlobStore, entrypoint: str) -> dict[str, Any]:
    """Store the context directory as a blob, and return the capsule's fields about it."""
    if plan is None:
        return {}
    return {
        "context": pack_context(plan, blobs),
        "notices": [plan.describe(), *find_context_notices(plan, entrypoint)],
    }


def _packages() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("det-jupyter", "torch"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _folder(context: Path | str | None) -> str:
    try:
        return os.path.abspath(os.path.expanduser(os.curdir if context is None else context))
    except FileNotFoundError:
        raise CaptureError(
            ["the folder that this runs in is not there any more; cd into one that is"]
        ) from None


def _located(draft: Draft, problems: Sequence[Problem], where: str) -> ConfigError:
    return ConfigError([replace(each, source=where) for each in draft.located(problems).problems])


def find_slot_problems(
    document: Mapping[str, Any], client: Client, *, queue_anyway: bool = False
) -> list[Problem]:
    """Return a problem if the pool does not exist, or can never run `slots_per_trial` slots.

    With `queue_anyway` the second is not checked.
    """
    document = migrate(document).document
    # The document need not be valid: the problems of a draft are reported together.
    resources = document.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    slots, name = resources.get("slots_per_trial", 1), resources.get("resource_pool")
    slots = slots.get("min", 1) if isinstance(slots, dict) else slots
    known = [pool.name for pool in client.pools()]
    if isinstance(name, str) and name and name not in known:
        return [
            Problem("resources.resource_pool", f"got {name!r}, expected one of {', '.join(known)}")
        ]
    # A value of a wrong type is reported already.
    if queue_anyway or type(slots) is not int or slots < 0 or not isinstance(name, str | None):
        return []
    problem = client.find_impossibility(
        slots, pool=name or "", is_single_agent=resources.get("is_single_node") is True
    )
    return [] if problem is None else [problem]


def find_open_storage(config: ExperimentConfig) -> list[str]:
    """Return a notice if every user may write the checkpoint folder (docs/security.md)."""
    location = config.checkpoint_storage.location
    folder = None if location is None else folder_at(location)
    if folder is None:
        return []
    real = folder.resolve()
    place = find_world_writable(*(path for path in (real, *real.parents) if path.is_dir()))
    if place is None:
        return []
    return [
        f"checkpoint_storage: every user of this computer can replace what is in {place}, and "
        "who replaces a checkpoint there can run code as you; if that is not wanted: "
        f"chmod o-w {place}"
    ]
