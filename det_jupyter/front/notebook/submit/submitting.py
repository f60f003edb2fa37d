"""Submission from a notebook or script: checks, capture, request."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.submitting.code_checks import find_code_problems
from det_jupyter.client.submitting.drafts import Draft, below_magic, make_draft
from det_jupyter.client.submitting.submission import (
    Prepared,
    find_notices,
    find_slot_problems,
    live_notice,
    request_of,
    with_context,
)
from det_jupyter.config import ExperimentConfig, read_yaml
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule, CreateExperiment
from det_jupyter.contract.trial.context_dir import ContextPlan
from det_jupyter.contract.trial.plain_trainers import describe_plain
from det_jupyter.contract.values.entrypoints import (
    Captured,
    Entrypoint,
    try_parse_entrypoint,
)
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.sizes import sizes_of
from det_jupyter.contract.values.text import count
from det_jupyter.contract.values.variables import assigned_variables
from det_jupyter.errors import ConfigError, MasterUnreachable, Problem
from det_jupyter.front.notebook.capture.capture import capture
from det_jupyter.front.notebook.handles import connection, experiment_handles
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.submit.caller import Caller, notebook_path, present_folder
from det_jupyter.front.notebook.submit.checks import (
    find_batch_size_problems,
    find_class_problems,
    find_hparam_problems,
    find_metric_problems,
    find_plain,
)
from det_jupyter.front.notebook.submit.contexts import list_files, plan_notebook_context
from det_jupyter.front.verbs.disk_notes import room_notes


def submit_cell(cell: str, options: argparse.Namespace, shell: Any) -> NotebookExperiment:
    return submit_draft(read_draft(cell, options), caller_of(options, shell))


def submit_draft(draft: Draft, caller: Caller) -> NotebookExperiment:
    """Submit an experiment and return its handle.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the entrypoint, with the
            lines of the text.
        CaptureError: Everything that cannot be sent to the ranks.
    """
    prepared, request = prepare_request(draft, caller)
    try:
        view = connection.client().create(request)
    except ConfigError as error:
        raise draft.located(error.problems) from None
    room = room_notes(connection.client(), view.id, NOTEBOOK)
    print_notices(draft, prepared.config, prepared.notices + room)
    if caller.is_call:  # otherwise the displayed view shows them
        for notice in _notices_of(request.capsule):
            print(f"Note: {notice}")
    return experiment_handles.experiment_of(view)


def dry_run(cell: str, options: argparse.Namespace, shell: Any) -> None:
    """Check everything as a submission does, and print what would be sent; submit nothing."""
    draft = read_draft(cell, options)
    prepared, request = prepare_request(draft, caller_of(options, shell), is_dry=True)
    config, capsule = prepared.config, request.capsule
    print(f"“{config.name}” is ready {_to_run(config, connection.client())}.")
    if capsule.payload or prepared.plan is not None:
        print("It takes with it:")
    for item in capsule.captured:
        where = f"from {item.cell}" if item.cell else ""
        print(f"  {item.name:24} {item.type:20} {item.size_bytes:>12,} bytes  {where}".rstrip())
    for module in capsule.modules:
        print(f"  {module}")
    if prepared.plan is not None:
        for line in list_files(prepared.plan):
            print(f"  {line}")
    print_notices(draft, config, _notices_of(capsule) + prepared.notices)


def _notices_of(capsule: Capsule) -> list[str]:
    plain, entrypoint = capsule.plain_trainer, capsule.entrypoint
    return [*capsule.notices, *([describe_plain(plain, entrypoint)] if plain else [])]


def _to_run(config: ExperimentConfig, client: Client) -> str:
    """Return the end of the dry run's first line: its slots, or why it would only queue."""
    resources = config.resources
    number = resources.least_slots
    problem = client.find_impossibility(
        number, pool=resources.resource_pool or "", is_single_agent=resources.is_single_node
    )
    if problem is not None:  # with --queue-anyway, otherwise it was refused
        return f"to queue, though it cannot run now: {problem}"
    sizes = sizes_of(config.to_document()).for_batch(config.hyperparameters)
    if sizes.is_elastic:
        return f"to run on {sizes} slots, as they are free"
    return f"to run on {count(number, 'slot')}" if number else "to run without slots"


def read_draft(cell: str, options: argparse.Namespace) -> Draft:
    """Return the draft of a cell's configuration with the options of its magic merged in.

    Problems with the text are returned by `Draft.parse`.
    """
    reading = read_yaml(below_magic(cell))
    changes: list[dict[str, Any]] = []
    if options.name is not None:
        changes.append({"name": options.name})
    # What is wrong with the section is reported later.
    if options.slots is not None and isinstance(reading.document.get("resources") or {}, dict):
        changes.append({"resources": {"slots_per_trial": options.slots}})
    return make_draft(
        connection.client, reading, options.template, changes, options.checkpoint_storage
    )


def print_notices(draft: Draft, config: ExperimentConfig, others: Sequence[str] = ()) -> None:
    """Print the notices about a configuration that is valid, and others."""
    for notice in [*others, *find_notices(draft, config, in_notebook=True)]:
        print(f"Note: {notice}")


def caller_of(options: argparse.Namespace, shell: Any) -> Caller:
    return Caller(
        namespace=shell.user_ns,
        shell=shell,
        queue_anyway=options.queue_anyway,
        allow_large=options.allow_large,
        context=options.context,
        include=options.include,
        follow_links=options.follow_links,
    )


def prepare_request(
    draft: Draft, caller: Caller, *, is_dry: bool = False
) -> tuple[Prepared, CreateExperiment]:
    """Check and capture an experiment; return it and the request that submits it.

    Its notices are without those of the configuration.

    Raises:
        ConfigError, CaptureError: As `submit_draft`.
    """
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    # The entrypoint is checked even if the configuration is wrong: all problems at once.
    merged = draft.merged()
    entrypoint = try_parse_entrypoint(merged.get("entrypoint"))
    plan = plan_notebook_context(
        caller.context, caller.include, entrypoint, follow_links=caller.follow_links
    )
    found = _find_code_problems(entrypoint, plan, config, caller, merged)
    problems += [problem for problem in found if problem not in problems]
    # Otherwise the master checks the slots when it gets the request.
    if problems or is_dry:
        with suppress(MasterUnreachable):
            problems += find_slot_problems(
                merged, connection.client(), queue_anyway=caller.queue_anyway
            )
    if problems or config is None:
        raise draft.located(problems)
    client, capsule = connection.client(), None
    # Ranks read files of the present folder, which may change before they start.
    is_live = plan is None and not isinstance(entrypoint, Captured)
    if isinstance(entrypoint, Captured):
        blobs = BlobStore.of(client.session.info.data_dir)
        capsule = _capture(entrypoint.name, caller, plan, blobs)
    prepared = Prepared(
        config=config,
        plan=plan,
        notices=[live_notice(os.getcwd(), "--context . has")] if is_live else [],
        draft=draft,
        options={
            "python": sys.executable,
            "cwd": str(present_folder()),
            "notebook": notebook_path(caller),
            "queue_anyway": caller.queue_anyway,
        },
    )
    return prepared, request_of(client, prepared, capsule)


def _find_code_problems(
    entrypoint: Entrypoint | None,
    plan: ContextPlan | None,
    config: ExperimentConfig | None,
    caller: Caller,
    merged: dict[str, Any],
) -> list[Problem]:
    """Return the problems of context directory and code."""
    problems = [] if plan is None else [Problem("", each) for each in plan.problems]
    if isinstance(entrypoint, Captured):
        hparams = merged.get("hyperparameters")
        names = hparams if isinstance(hparams, dict) else ()
        own = find_class_problems(entrypoint.name, caller.names, names)
        if config is not None and not own:
            own += find_metric_problems(config, caller.names)
            own += find_hparam_problems(config, caller.names)
        if isinstance(trial_class := caller.names.get(entrypoint.name), type):
            own += find_batch_size_problems(merged, trial_class)
        return problems + own
    if entrypoint is None or (plan is not None and not plan.entries):
        return problems
    variables = assigned_variables(merged)
    return problems + find_code_problems(entrypoint, plan, present_folder(), variables)


def _capture(name: str, caller: Caller, plan: ContextPlan | None, blobs: BlobStore) -> Capsule:
    capsule = capture(
        name,
        caller.namespace,
        given=caller.given.get(name),
        blobs=blobs,
        cwd=present_folder(),
        shell=caller.shell,
        allow_large=caller.allow_large,
    )
    added = with_context(plan, blobs, name)
    found = capsule.notices + added.pop("notices", [])
    plain = find_plain(name, caller.names)
    return capsule.model_copy(update={**added, "notices": found, "plain_trainer": plain})
