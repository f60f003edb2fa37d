"""`--preview`, `--estimate` and `--local`, which submit nothing, and `det_jupyter.preview`."""

from __future__ import annotations

import argparse
import importlib
import inspect
import random
import shlex
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from IPython.core.getipython import get_ipython

from det_jupyter.client.calls import explains_arguments
from det_jupyter.client.requests import make_request
from det_jupyter.client.submitting.drafts import Draft, make_draft, preview_draft
from det_jupyter.config import YamlDocument, parse_part
from det_jupyter.contract.messages import PreviewRequest, PreviewView
from det_jupyter.contract.schema.hyperparameters import sample_hparams
from det_jupyter.contract.values.entrypoints import (
    Captured,
    Command,
    Imported,
    Program,
    try_parse_entrypoint,
)
from det_jupyter.errors import Problem
from det_jupyter.front.notebook.capture.capture import find_entrypoint_traps
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.slots_and_queue import Displayed
from det_jupyter.front.notebook.submit.caller import Caller, namespace_of
from det_jupyter.front.notebook.submit.checks import find_class_problems
from det_jupyter.front.notebook.submit.contexts import SCRIPTS
from det_jupyter.front.notebook.submit.submitting import (
    caller_of,
    prepare_request,
    print_notices,
    read_draft,
)
from det_jupyter.front.verbs.search_preview import (
    preview_with_estimates,
    render_page,
    render_text,
)


@explains_arguments
def preview(
    config: Mapping[str, Any] | str,
    *,
    template: str | None = None,
    seconds_per_batch: float | None = None,
    estimate: bool = False,
) -> Displayed[PreviewView]:
    """Return what a search would train: trials per rung, total training, hours on these slots.

    Args:
        config: The configuration, or its YAML.
        template: Name of a template with defaults for it.
        seconds_per_batch: Duration of a batch; by default that of earlier trials of this class.
        estimate: Train some batches of the class that `entrypoint` names, and add the memory and
            time that trials need, as `%%det_experiment --estimate` does.

    Raises:
        ConfigError: Everything that is wrong with the configuration.
        NotFound: The template does not exist.
        CaptureError, RankFailed: With `estimate`: the code cannot be sent; the first trial fails.
    """
    document = parse_part(config) if isinstance(config, str) else dict(config)
    if estimate:
        shell = get_ipython()
        draft = make_draft(connection.client, YamlDocument(document=document), template)
        caller = Caller(namespace=namespace_of(shell), shell=shell, is_call=True)
        return displayed_preview(_estimated(draft, caller, seconds_per_batch), time.time())
    request = make_request(
        PreviewRequest, config=document, template=template, seconds_per_batch=seconds_per_batch
    )
    return displayed_preview(connection.client().preview(request), time.time())


def preview_cell(cell: str, options: argparse.Namespace, shell: Any) -> Displayed[PreviewView]:
    """Return what the search of a cell would train; print notices about probable mistakes.

    With `--estimate` also what memory its trials need, for which some batches are trained.

    Raises:
        ConfigError: Everything that is wrong with the configuration, with the cell's lines.
        CaptureError: With `--estimate`: everything that cannot be sent to the ranks.
    """
    draft = read_draft(cell, options)
    if options.estimate:
        view = _estimated(draft, caller_of(options, shell), options.seconds_per_batch)
    else:
        view = preview_draft(connection.client(), draft, options.seconds_per_batch)
    entrypoint = str(draft.merged().get("entrypoint"))
    for notice in view.notices + find_entrypoint_traps(entrypoint, shell.user_ns, shell):
        print(f"Note: {notice}")
    return displayed_preview(view, time.time())


def _estimated(draft: Draft, caller: Caller, seconds_per_batch: float | None) -> PreviewView:
    client = connection.client()
    prepared, request = prepare_request(draft, caller)
    return preview_with_estimates(client, draft, prepared.config, request, seconds_per_batch)


def displayed_preview(view: PreviewView, at: float) -> Displayed[PreviewView]:
    """Return a preview for display: as a table, in a notebook with a chart."""
    return Displayed(view, partial(render_text, at=at), partial(render_page, at=at))


def run_local(cell: str, options: argparse.Namespace, shell: Any) -> Any:
    """Train a few batches of one trial of the experiment in this kernel and return the trial.

    Hyperparameters that are ranges are drawn. Nothing is submitted; breakpoints and `%debug` work
    as in any cell.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the entrypoint.
    """
    __tracebackhide__ = True  # IPython: the cell, and then the user's own code
    draft = read_draft(cell, options)
    config, problems = draft.parse(default_seed=int(time.time()) % 2**31)
    meaning = try_parse_entrypoint(draft.merged().get("entrypoint"))
    if isinstance(meaning, Captured):
        hparams = draft.merged().get("hyperparameters")
        names = hparams if isinstance(hparams, dict) else ()
        problems += find_class_problems(meaning.name, shell.user_ns, names)
    elif meaning is not None:
        problems.append(Problem("entrypoint", _another_way(meaning)))
    if problems or config is None or not isinstance(meaning, Captured):
        raise draft.located(problems)
    entrypoint = shell.user_ns[meaning.name]
    print_notices(draft, config)
    hparams = sample_hparams(config.hyperparameters, random.Random(0))
    if not isinstance(entrypoint, type):
        print(f"{meaning.name} is a function: {_call_of(entrypoint, hparams)}")
        return None
    # By name: only here the notebook needs the training library, which the class has imported.
    library = importlib.import_module("det_jupyter.pytorch")
    return library.try_out(entrypoint, config, hparams, batches=options.local)


def _another_way(entrypoint: Imported | Program | Command) -> str:
    """Return why --local cannot run the entrypoint, and how to run it."""
    if isinstance(entrypoint, Imported):
        top = entrypoint.name.partition(".")[0]
        is_script = f"{entrypoint.module.replace('.', '/')}.py" in SCRIPTS
        how = (
            "run the script's code in a cell without %%det_script"
            if is_script
            else f"import it, `from {entrypoint.module} import {top}`"
        )
        return f"--local tries classes of this notebook; {how}, and write `entrypoint: {top}`"
    if isinstance(entrypoint, Program):
        is_module = ["-m"] if entrypoint.is_module else []
        line = shlex.join(["python3", *is_module, entrypoint.target, *entrypoint.args])
    elif entrypoint.argv[:2] == ("sh", "-c"):
        line = entrypoint.argv[2]
    else:
        line = shlex.join(entrypoint.argv)
    return f"--local cannot run a command in this kernel; run it beside it: `!{line}`"


def _call_of(function: Any, hparams: Mapping[str, Any]) -> str:
    """Return the code that calls a function in this kernel as ranks do."""
    given = {"core_context": "context", "context": "context", "info": "None", "hparams": hparams}
    values = {name: repr(value) for name, value in hparams.items()} | given
    taken = [name for name in inspect.signature(function).parameters if name in values]
    call = f"{function.__name__}({', '.join(f'{name}={values[name]}' for name in taken)})"
    if not {"core_context", "context"} & set(taken):
        return f"call it, {call}"
    return f"call it, `with det_jupyter.core.init() as context: {call}`"
