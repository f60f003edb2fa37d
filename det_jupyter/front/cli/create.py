"""`det experiment create`: submits a configuration and a folder as an experiment.

Messages that Determined's command prints have the same words here, for scripts that parse them.
"""

from __future__ import annotations

import importlib
import os
import random
import shlex
import subprocess
import sys
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import yaml

from det_jupyter.client.submitting.drafts import read_file
from det_jupyter.client.submitting.submission import Prepared, prepare, request_of, submit
from det_jupyter.config import ExperimentConfig, merge
from det_jupyter.contract.messages import Archive
from det_jupyter.contract.schema.hyperparameters import sample_hparams
from det_jupyter.contract.values.entrypoints import (
    Captured,
    Command,
    Imported,
    Program,
    parse_entrypoint,
)
from det_jupyter.errors import ConfigError, Problem, UsageError
from det_jupyter.front.cli.following import follow
from det_jupyter.front.verbs.disk_notes import room_notes
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.search_preview import preview_with_estimates, render_text
from det_jupyter.front.verbs.yaml_input import read_overrides


def create(call: Call) -> int:
    """Submit an experiment; return the exit status."""
    given = call.options
    if given.local and not given.test_mode:
        raise UsageError(f"{given.words}: --local needs --test-mode: it trains one batch, here")
    prepared = prepare_line(call)
    for notice in prepared.notices:
        print(f"Note: {notice}", file=sys.stderr)
    if given.estimate:
        return _estimate(call, prepared)
    if given.test_mode:
        print("Experiment configuration validation succeeded! 🎉")
        return _test(call, prepared)
    number = _submit(call, prepared)
    if given.paused:
        print(f"It is paused; `det e activate {number}` lets it run.", file=sys.stderr)
    return follow(call.client.watching, number) if given.follow else 0


def prepare_line(call: Call) -> Prepared:
    """Return the request to submit.

    The file `-` is the call's text, in a shell its standard input.

    Raises:
        ConfigError: All problems of the line, the file and the folder.
    """
    given = call.options
    file = Path(given.config_file)
    changes: dict[str, Any] = {}
    problems: list[Problem] = []
    try:
        changes = read_overrides(given.overrides, None)
    except ConfigError as error:
        problems += error.problems
        for each in given.overrides:  # else keys that valid ones set are reported as missing
            with suppress(ConfigError):
                changes = merge(changes, read_overrides([each], None))
    if given.title is not None:
        changes["name"] = given.title
    try:
        prepared = prepare(
            call.client,
            _read_stdin(call) if given.config_file == "-" else read_file(file),
            context=given.model_def,
            includes=given.include,
            file="stdin" if given.config_file == "-" else file,
            template=given.template,
            changes=changes,
            checkpoint_storage=given.checkpoint_storage,
            is_paused=given.paused,
            queue_anyway=given.queue_anyway,
            follow_links=given.follow_links,
        )
    except ConfigError as error:
        raise ConfigError(problems + error.problems) from None
    if problems:
        raise ConfigError(problems)
    return prepared


def _read_stdin(call: Call) -> str:
    return sys.stdin.read() if call.text is None else call.text


def _submit(call: Call, prepared: Prepared) -> int:
    """Submit an experiment; return its id."""
    if prepared.plan is not None:
        print(f"Preparing files to send to master... {prepared.plan}", flush=True)
    experiment = submit(call.client, prepared)
    print(f"Created experiment {experiment.id}", flush=True)
    for note in room_notes(call.client, experiment.id, call.reader):
        print(f"Note: {note}", flush=True)
    return experiment.id


def _estimate(call: Call, prepared: Prepared) -> int:
    """Print what trials need, and what the search would train; return the exit status."""
    client = call.client
    request = request_of(client, prepared)
    with redirect_stdout(sys.stderr):  # its progress
        view = preview_with_estimates(client, prepared.draft, prepared.config, request)
    print(render_text(view, time.time()))
    return 0


def _test(call: Call, prepared: Prepared) -> int:
    """Train and validate one batch, in this process or as an experiment that is archived after it.

    Return the exit status.
    """
    given = call.options
    if given.local:
        status = run_locally(prepared.config, Path(given.model_def or "."))
    else:
        document = one_batch_config(prepared.draft.merged(), prepared.config)
        small = prepare(
            call.client,
            yaml.safe_dump(document),
            context=given.model_def,
            includes=given.include,
            file=given.config_file,
            queue_anyway=given.queue_anyway,
            follow_links=given.follow_links,
            is_quiet=True,
        )
        number = _submit(call, small)
        status = follow(call.client.watching, number)
        if status in (0, 1):  # followed to its end, not interrupted
            call.client.change(Archive(experiment_id=number))
    if status == 0:
        print("Model definition test succeeded! 🎉")
    return status


def one_batch_config(document: dict[str, Any], config: ExperimentConfig) -> dict[str, Any]:
    """Return a configuration that trains and validates one batch of one trial.

    `document` is the configuration as the user wrote it, `config` the same with all defaults.
    """
    searcher = config.to_document()["searcher"]
    kept = {key: searcher[key] for key in ("metric", "smaller_is_better")}
    storage = document.get("checkpoint_storage") or {}
    if not isinstance(storage, dict):
        raise ConfigError([f"checkpoint_storage: got {storage!r:.60}, expected a section"])
    saves = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 0}
    return document | {
        "description": f"[test-mode] {config.description or config.name}",
        "scheduling_unit": 1,
        "min_validation_period": {"batches": 1},
        "checkpoint_storage": storage | saves,
        "searcher": {"name": "single", **kept, "max_length": {"batches": 1}},
        "max_restarts": 0,
    }


def run_locally(config: ExperimentConfig, folder: Path) -> int:
    """Train one batch of a trial class, or run the script or command; return the exit status."""
    match parse_entrypoint(config.entrypoint):
        case Captured(name):
            raise ConfigError([f"entrypoint: got {name}, a name; expected module:{name}"])
        case Imported(module=module, name=name):
            return _train_one_batch(config, folder, module, name)
        case Program(target=target, is_module=is_module, args=args):
            words = ["-m", target] if is_module else [target]
            return subprocess.call([sys.executable, *words, *args], cwd=folder)
        case Command(argv):
            return subprocess.call(argv, cwd=folder)


def _train_one_batch(config: ExperimentConfig, folder: Path, module: str, name: str) -> int:
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, type):
        line = f"from {module} import {name}; {name}()"
        raise ConfigError(
            [f"entrypoint: {name} is a function: `python -c {shlex.quote(line)}` "
             "in its folder runs it without a master"]
        )  # fmt: skip
    # By name: this module does not import torch; the class just did.
    library = importlib.import_module("det_jupyter.pytorch")
    hparams = sample_hparams(config.hyperparameters, random.Random(0))
    library.try_out(found, config, hparams, batches=1)
    return 0
