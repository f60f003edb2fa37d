"""`det_jupyter.submit`: submission from Python, such as in a loop or a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any

from IPython.core.getipython import get_ipython

from det_jupyter.client.calls import explains_arguments
from det_jupyter.client.submitting.drafts import make_draft, read_file
from det_jupyter.config import YamlDocument, read_yaml, try_changes
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.submit.caller import Caller, namespace_of
from det_jupyter.front.notebook.submit.submitting import submit_draft


@explains_arguments
def submit(
    trial: type | FunctionType | str | Sequence[str] | None,
    config: Mapping[str, Any] | str | Path,
    /,
    *,
    context: str | Path | None = None,
    include: Sequence[str | Path] = (),
    follow_links: bool = False,
    queue_anyway: bool = False,
    allow_large: bool = False,
    **overrides: Any,
) -> NotebookExperiment:
    """Submit an experiment, as `%%det_experiment` does, and return its handle at once.

    Also in a script: its classes and functions are sent to the ranks like those of a notebook;
    the script itself is not run there.

        for lr in (0.1, 0.03, 0.01):
            det_jupyter.submit(Trial, config, slots=2, **{"hyperparameters.lr": lr})

    Args:
        trial: The trial class, or a function that each rank calls; or a value of `entrypoint`:
            "model_def:MyTrial", "python3 train.py --epochs 3", a list of words. It replaces the
            configuration's `entrypoint`. None: the configuration has one.
        config: The configuration as a dict or YAML, or its file: a Path, or text that ends in
            .yaml or .yml.
        context: The context directory, a copy of which is the ranks' working directory.
        include: Files and folders to add to that copy, under their own names.
        follow_links: Send the targets of links that lead out of the context directory.
        queue_anyway: Submit it even if no pool can run it at present.
        allow_large: Send more than 1 GiB to the ranks.
        overrides: Changes of the configuration: any of its keys (`name`, `hyperparameters`,
            `template`), `slots` for `resources.slots_per_trial`, and keys with dots in a dict:
            `**{"searcher.max_length.epochs": 3}`. A dict `config` may have such keys, too.

    Raises:
        ConfigError: Everything that is wrong with the configuration or the trial.
        CaptureError: Everything that cannot be sent to the ranks.
    """
    return submit_call(
        trial,
        config,
        [],
        context=context,
        include=include,
        follow_links=follow_links,
        queue_anyway=queue_anyway,
        allow_large=allow_large,
        **overrides,
    )


def submit_call(
    trial: Any,
    config: Any,
    problems: list[Problem],
    /,
    *,
    context: str | Path | None = None,
    include: Sequence[str | Path] = (),
    follow_links: bool = False,
    queue_anyway: bool = False,
    allow_large: bool = False,
    **overrides: Any,
) -> NotebookExperiment:
    """Submit an experiment as `submit` does.

    Args:
        problems: Problems with the call that are known already; others are raised with them.
    """
    name = None if trial is None else _entrypoint_of(trial, problems)
    changes, found = try_changes(overrides)
    problems += found
    reading, where = _read_config(config, problems)
    changed = [changes, {"entrypoint": name}] if name else [changes]
    shell = get_ipython()
    caller = Caller(
        namespace=namespace_of(shell),
        shell=shell,
        given={str(name): trial} if name and isinstance(trial, type | FunctionType) else {},
        is_call=True,
        queue_anyway=queue_anyway,
        allow_large=allow_large,
        context=context,
        include=(include,) if isinstance(include, str | Path) else tuple(include),
        follow_links=follow_links,
    )
    try:
        return submit_draft(make_draft(connection.client, reading, changes=changed), caller)
    except ConfigError as error:
        # The problem of a trial without a name is in the list already.
        is_named = name != ""
        found = [
            p for p in error.problems if is_named or p.path != "entrypoint" or not p.is_missing
        ]
        raise ConfigError([replace(problem, source=where) for problem in found]) from None


def _entrypoint_of(trial: Any, problems: list[Problem]) -> str | list[str]:
    if isinstance(trial, str):
        return trial
    if isinstance(trial, list | tuple) and all(isinstance(word, str) for word in trial):
        return list(trial)
    name = trial.__name__ if isinstance(trial, (type, FunctionType)) else ""
    if not name.isidentifier():
        problems.append(
            Problem(
                "entrypoint",
                f"got {trial!r:.60}, expected a class or a function with a name, or text",
            )
        )
        return ""
    return name


def _read_config(config: Any, problems: list[Problem]) -> tuple[YamlDocument, str]:
    """Read the configuration; return it and the file that its problems name, or "".

    `problems` are added to the reading, or to the ConfigError if it cannot be read.
    """
    if isinstance(config, Mapping):
        document, found = try_changes(config)
        return YamlDocument(document=document, problems=[*problems, *found]), ""
    where = ""
    try:
        if not isinstance(config, str | Path):
            needed = "expected a dict, YAML, or the path of a file with YAML"
            raise ConfigError(Problem("config", f"got {config!r:.60}, {needed}"))
        text = str(config)
        if isinstance(config, Path) or text.endswith((".yaml", ".yml")):
            text, where = read_file(Path(config)), str(config)
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    reading = read_yaml(text)
    return replace(reading, problems=reading.problems + problems), where
