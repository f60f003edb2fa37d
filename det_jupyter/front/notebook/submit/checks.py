"""Checks of a notebook's classes and functions before submission."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from types import FunctionType
from typing import Any

from det_jupyter.config import ExperimentConfig, find_missing_batch_size
from det_jupyter.config.migrate import migrate
from det_jupyter.contract.trial.plain_trainers import find_plain_trainer
from det_jupyter.contract.trial.rank_arguments import find_function_problem
from det_jupyter.contract.trial.source import Function, function_of, method_of
from det_jupyter.contract.trial.source_needs import find_batch_size_reader, find_passed_on
from det_jupyter.errors import Problem
from det_jupyter.front.notebook.capture.capture import find_entrypoint_problem


def find_class_problems(
    entrypoint: str, namespace: Mapping[str, Any], hparams: Collection[str] = ()
) -> list[Problem]:
    """Return the problems of a trial class or function that its source shows.

    Args:
        entrypoint: Its name.
        namespace: The notebook's globals.
        hparams: Names of the hyperparameters.
    """
    library = sys.modules.get("det_jupyter.pytorch")  # loaded, if the class derives from it
    base = library.PyTorchTrial if library is not None else object
    if problem := find_entrypoint_problem(entrypoint, namespace, base):
        return [problem]
    value = namespace[entrypoint]
    if isinstance(value, FunctionType):
        said = find_function_problem(value, hparams)
        return [Problem("entrypoint", f"{entrypoint} {said}")] if said else []
    if library is None or not issubclass(value, library.PyTorchTrial):
        return [
            Problem(
                "entrypoint",
                f"{entrypoint} does not derive from PyTorchTrial; "
                f"write `class {entrypoint}(PyTorchTrial)` (from det_jupyter.pytorch), "
                "or name a function, which every rank then calls",
            )
        ]
    found = library.check_trial_class(value) + library.check_constructor(value)
    return [Problem("entrypoint", problem) for problem in found]


def find_batch_size_problems(
    document: Mapping[str, Any], trial_class: type = object
) -> list[Problem]:
    """Return a problem if the configuration lacks a batch size that a trial class needs.

    This is not one of the configuration's own checks, because a function needs no batch size.
    """
    document = migrate(document).document
    # The document need not be valid: the problems of a draft are reported together.
    resources, hparams = document.get("resources"), document.get("hyperparameters")
    slots = resources.get("slots_per_trial") if isinstance(resources, dict) else None
    key = "slots_per_trial"
    if isinstance(slots, dict):
        slots, key = slots.get("max"), f"{key}.max"
    is_given = isinstance(hparams, dict) and hparams.get("global_batch_size") is not None
    if type(slots) is int and slots > 1 and isinstance(hparams or {}, dict) and not is_given:
        where = "hyperparameters.global_batch_size"
        asker = f"resources.{key}: {slots}"
        return [Problem.missing(where, f"; give the batch size of all slots together ({asker})")]
    reader = find_batch_size_reader(lambda name: _own_method(trial_class, name))
    return find_missing_batch_size(document, f"{trial_class.__name__}.{reader}" if reader else "")


def _own_method(trial_class: type, name: str) -> Function | None:
    """Return the user's method of this name, parsed; None if it is ours or has no source."""
    module = getattr(getattr(trial_class, name, None), "__module__", None) or ""
    return None if module.startswith("det_jupyter.") else method_of(trial_class, name)


def find_hparam_problems(config: ExperimentConfig, namespace: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of hyperparameters that a function passes to TrainingArguments.

    TrainingArguments has no arguments of these names. Only hyperparameters that each run passes,
    by the function's source, are checked: it may read or remove others itself.
    """
    library = sys.modules.get("det_jupyter.integrations.training_arguments")
    function = namespace.get(str(config.entrypoint))
    if library is None or not isinstance(function, FunctionType):
        return []  # without the library loaded, its arguments are unknown here
    parsed, code = function_of(function), function.__code__
    if parsed is None or parsed.decorator_list or hasattr(function, "__wrapped__"):
        return []  # a wrapper may take some out
    names: dict[str, Any] = {**function.__globals__}
    own = code.co_varnames + code.co_cellvars + code.co_freevars
    names |= dict.fromkeys(own)  # local names are never the helper
    found = find_passed_on(parsed, lambda name: names.get(name) is library.training_arguments)
    if found is None:
        return []
    given = config.hyperparameters.keys() - found.without
    problems: list[Problem] = library.find_name_problems(given, found.fixed)
    return problems


def find_plain(entrypoint: str, namespace: Mapping[str, Any]) -> str:
    """Return the trainer that a function calls without DetCallback, if its source shows it."""
    function = namespace.get(entrypoint)
    parsed = function_of(function)
    if parsed is None or not isinstance(function, FunctionType):
        return ""
    if parsed.decorator_list or hasattr(function, "__wrapped__"):
        return ""  # a wrapper may add the callback
    enclosing = dict.fromkeys(function.__code__.co_freevars)
    return find_plain_trainer(parsed, {**function.__globals__, **enclosing})


def find_metric_problems(config: ExperimentConfig, namespace: Mapping[str, Any]) -> list[Problem]:
    """Return a problem if the class's source shows that it never reports the searcher's metric.

    Functions are not checked: they need not report any metric.
    """
    trial_class = namespace.get(str(config.entrypoint))
    if not isinstance(trial_class, type):
        return []
    library = sys.modules["det_jupyter.pytorch"]
    problems: list[Problem] = library.check_searcher_metric(trial_class, config.searcher.metric)
    return problems
