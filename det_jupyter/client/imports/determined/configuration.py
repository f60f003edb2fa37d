"""The configuration of an experiment of Determined, without the keys that cannot be taken over."""

from __future__ import annotations

import copy
from typing import Any

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.errors import ConfigError, Problem

_STAND_IN = "imported"  # the entrypoint of an experiment that has none
_ROUNDS = 5  # what was left out may bring up other problems, but not for long


def parse_found(
    config: dict[str, Any], labels: list[str], steps_completed: int
) -> tuple[ExperimentConfig, list[str]]:
    """Return the parsed configuration, and the problems for which values were left out.

    Of a search that does not exist here, the metric remains: the experiment can be compared.

    Args:
        config: As Determined has stored it.
        labels: Labels to add.
        steps_completed: The most batches that a trial has trained.

    Raises:
        ConfigError: It cannot be parsed without the values that are wrong in it, either.
    """
    document = copy.deepcopy(config)
    left_out: list[str] = []
    for name in ("searcher", "environment", "checkpoint_storage"):
        if not isinstance(document.get(name) or {}, dict):
            kind = type(document.pop(name)).__name__  # the value may have a password
            left_out.append(f"left out: {name}: got a {kind}, expected a section")
    if not document.get("entrypoint") or not isinstance(document["entrypoint"], str | list):
        document["entrypoint"] = _STAND_IN
    given = document.get("labels")
    own = given if isinstance(given, list | dict) else []
    document["labels"] = [*(each for each in own if isinstance(each, str)), *labels]
    searcher = document.get("searcher") or {}
    stand_in = {
        "name": "single",
        "metric": searcher.get("metric") or "validation_loss",
        "smaller_is_better": searcher.get("smaller_is_better", True),
        "max_length": {"batches": max(1, steps_completed)},
    }
    for key in ("source_trial_id", "source_checkpoint_uuid"):  # numbers of another master
        searcher.pop(key, None)
    (document.get("environment") or {}).pop("registry_auth", None)  # has a password
    document.pop("integrations", None)  # may have a token
    _name_account(document.get("checkpoint_storage") or {})
    for _ in range(_ROUNDS):
        try:
            return parse_config(document, default_seed=0), left_out
        except ConfigError as error:
            wrong = error
        for problem in wrong.problems:
            if _leave_out(document, problem, stand_in):
                left_out.append(f"left out: {problem}")
    raise wrong


def _name_account(storage: dict[str, Any]) -> None:
    """Give a storage of Azure the address of the account that its connection string names."""
    parts = str(storage.get("connection_string") or "").split(";")
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    if (account := named.get("AccountName")) and not storage.get("account_url"):
        suffix = named.get("EndpointSuffix", "core.windows.net")
        storage["account_url"] = f"https://{account}.blob.{suffix}"


def _leave_out(document: dict[str, Any], problem: Problem, stand_in: dict[str, Any]) -> bool:
    """Remove the value that a problem is about, or the section that is useless without it.

    Returns whether anything was in it.
    """
    section, _, inner = problem.path.partition(".")
    if section == "searcher" and (inner == "name" or problem.is_missing):
        document["searcher"] = stand_in
        return True
    if section == "checkpoint_storage" and (inner == "type" or problem.is_missing):
        return bool(document.pop("checkpoint_storage", None))
    *outer, key = problem.path.split(".")
    for name in outer:
        found = document.get(name)
        document = found if isinstance(found, dict) else {}
    return bool(document.pop(key, None))
