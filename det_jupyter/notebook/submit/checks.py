"""Checks of a submission that the notebook makes before it asks the master."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

from det_jupyter.calls import find_function_problem
from det_jupyter.client import Client
from det_jupyter.config import ExperimentConfig, find_missing_batch_size
from det_jupyter.config.storages import folder_of
from det_jupyter.notebook.capture.entrypoints import find_entrypoint_problem
from det_jupyter.system.ownership import find_open


def find_slot_problems(
    document: dict[str, Any], client: Client, *, queue_anyway: bool = False
) -> list[str]:
    """Return a problem if there is no such pool, or if it can never run that many slots.

    With `queue_anyway` the latter is none.
    """
    resources = document.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    slots, name = resources.get("slots_per_trial", 1), resources.get("resource_pool")
    known = [pool.name for pool in client.pools()]
    if isinstance(name, str) and name and name not in known:
        return [f"resources.resource_pool: got {name!r}, expected one of {', '.join(known)}"]
    # A value of the wrong kind is reported already.
    if queue_anyway or type(slots) is not int or slots < 0 or not isinstance(name, str | None):
        return []
    problem = client.find_impossibility(
        slots, pool=name or "", is_single_agent=resources.get("is_single_node") is True
    )
    return [] if problem is None else [problem]


def find_class_problems(entrypoint: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the trial class or function, as far as its source shows."""
    library = sys.modules.get("det_jupyter.pytorch")  # loaded, if the class derives from it
    base = library.PyTorchTrial if library is not None else object
    if problem := find_entrypoint_problem(entrypoint, namespace, base):
        return [problem]
    value = namespace[entrypoint]
    if isinstance(value, FunctionType):
        problem = find_function_problem(value)
        return [f"entrypoint: {entrypoint} {problem}"] if problem else []
    if library is None or not issubclass(value, library.PyTorchTrial):
        return [
            f"entrypoint: {entrypoint} does not derive from PyTorchTrial; "
            f"write `class {entrypoint}(PyTorchTrial)` (from det_jupyter.pytorch), "
            "or name a function, which every rank then calls"
        ]
    found = library.check_trial_class(value) + library.check_constructor(value)
    return [f"entrypoint: {problem}" for problem in found]


def find_batch_size_problems(document: dict[str, Any]) -> list[str]:
    """Return a problem if a trial class is to train without a batch size that it needs.

    It is no part of the configuration's own checks: a function needs none.
    """
    resources, hparams = document.get("resources"), document.get("hyperparameters")
    slots = resources.get("slots_per_trial") if isinstance(resources, dict) else None
    is_given = isinstance(hparams, dict) and hparams.get("global_batch_size") is not None
    if type(slots) is int and slots > 1 and isinstance(hparams or {}, dict) and not is_given:
        where = "hyperparameters.global_batch_size"
        return [f"{where}: missing; give the batch size of all slots together"]
    return find_missing_batch_size(document)


def find_metric_problems(config: ExperimentConfig, namespace: Mapping[str, Any]) -> list[str]:
    """Return a problem if the class's source shows that it never reports the searcher's metric.

    A function need not report any: then there is nothing to judge it by, and it runs all the same.
    """
    trial_class = namespace.get(str(config.entrypoint))
    if not isinstance(trial_class, type):
        return []
    library = sys.modules["det_jupyter.pytorch"]
    problems: list[str] = library.check_searcher_metric(trial_class, config.searcher.metric)
    return problems


def find_open_storage(document: Mapping[str, Any]) -> list[str]:
    """Return a notice about a checkpoint folder that every user can change (docs/security.md)."""
    folder = folder_of(document.get("checkpoint_storage") or {})
    if folder is None:
        return []
    real = Path(folder).expanduser().resolve()
    place = find_open(*(path for path in (real, *real.parents) if path.is_dir()))
    if place is None:
        return []
    return [
        f"checkpoint_storage: every user of this computer can replace what is in {place}, and "
        "who replaces a checkpoint there can run code as you; if that is not wanted: "
        f"chmod o-w {place}"
    ]
