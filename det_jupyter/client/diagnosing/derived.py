"""Temporary experiments with the code of another one, for `diagnose` and its like."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from det_jupyter.client.client import Client
from det_jupyter.config import merge_variables
from det_jupyter.contract.messages import CreateExperiment, ExperimentView, State, Submission
from det_jupyter.contract.values.entrypoints import Command, Program, parse_entrypoint
from det_jupyter.contract.values.sizes import sizes_of
from det_jupyter.errors import ConfigError, DetError, NotFound, WaitTimeout
from det_jupyter.view import ViewState

_REHEARSAL = "DET_JUPYTER_REHEARSAL"  # pytorch/training/rehearsal.py
_ENDLESS = {"batches": 10**9}
_END_S = 30.0  # time for a killed experiment to end, and for a deletion
_POLL_S = 0.1

_LAUNCHERS = ("det_jupyter.launch.", "determined.launch.")


class TemporaryExperiment(Protocol):
    """The part of a handle on an experiment that the functions here need."""

    id: int

    @property
    def view(self) -> ExperimentView:
        """Everything that the master stores of the experiment."""

    def wait(self, timeout: float | None = None, *, on_tick: Callable[[ViewState], None]) -> State:
        """Block until it has ended; raise if it ended with an error."""

    def kill(self) -> None:
        """End the experiment now."""

    def delete(self, *, ask: bool) -> None:
        """Delete the experiment."""


def check_class(source: Submission, verb: str, why: str) -> None:
    """Raise a ConfigError unless the entrypoint is a PyTorchTrial class, or may be one.

    Functions and commands have training loops of their own. An imported name is accepted, also
    after a launcher's --trial: only the ranks find out whether it is a class.

    Args:
        verb: The method that needs a class.
        why: What it needs the class for, as the end of the message.
    """
    name = source.capsule.entrypoint
    kind = next((item.type for item in source.capsule.captured if item.name == name), "class")
    meaning = parse_entrypoint(name)
    if isinstance(meaning, Program | Command) and not _trains_class(meaning):
        kind = "command"
    if kind != "class":
        raise ConfigError(
            [f"{verb}: the entrypoint {name} is a {kind}, expected a PyTorchTrial class: {why}"]
        )


def _trains_class(meaning: Program | Command) -> bool:
    """Return whether a program is one of our launchers, with a trial class to train."""
    return (
        isinstance(meaning, Program)
        and meaning.target.startswith(_LAUNCHERS)
        and "--trial" in meaning.args
    )


def derive(
    source: Submission,
    changes: dict[str, Any],
    *,
    hparams: dict[str, Any],
    max_length: dict[str, int],
    variables: Sequence[str] = (),
    sources: bool = True,
) -> CreateExperiment:
    """Return the request for an experiment of one trial with the code of another one.

    Args:
        source: An experiment, or the request for one, with a configuration that has all defaults.
        changes: Top-level keys of the configuration that replace the original's.
        variables: `NAME=value`, added to the ranks' environment.
        sources: Start from the same checkpoint as the original, if it has one.
    """
    config = source.config
    searcher = config["searcher"]
    kept = ["metric", "smaller_is_better"]
    kept += ["source_trial_id", "source_checkpoint_uuid"] if sources else []
    environment = config.get("environment") or {}
    given = environment.get("environment_variables") or []
    single = {
        "hyperparameters": hparams,
        "searcher": {
            "name": "single",
            "max_length": max_length,
            **{key: searcher[key] for key in kept if searcher.get(key) is not None},
        },
        "environment": {
            **environment,
            "environment_variables": merge_variables(given, list(variables))
            if variables
            else given,
        },
    }
    document = config | single | changes
    sizes = sizes_of(document)
    if sizes.is_elastic:  # runs are compared, so their number of slots is the same
        document["resources"] = document["resources"] | {"slots_per_trial": sizes.least}
    return CreateExperiment(
        config=document,
        capsule=source.capsule,
        python=source.python,
        cwd=source.cwd,
        notebook=source.notebook,
        parent_id=source.id if isinstance(source, ExperimentView) else None,
        is_quiet=True,
    )


def derive_rehearsal(
    source: Submission,
    verb: str,
    words: str,
    *,
    hparams: dict[str, Any],
    title: str = "",
    resources: Mapping[str, Any] = MappingProxyType({}),
    optimizations: Mapping[str, Any] = MappingProxyType({}),
) -> CreateExperiment:
    """Return the request for a run that measures (pytorch/training/rehearsal.py), saving nothing.

    It has the lowest priority, and the verb as its label. If this process is killed before it has
    deleted the experiment, the master does so.

    Args:
        words: What it measures: the value of the rehearsal's environment variable.
        title: Stands behind the verb in its name.
        resources, optimizations: Changes of these sections.
    """
    config = source.config
    lowest = {"priority": 99, "weight": 0.001, "max_slots": None}
    name, of = config.get("name", ""), ""
    if isinstance(source, ExperimentView):
        name, of = source.name, f"() of experiment {source.id}"
    changes = {
        "name": f"{name}: {verb}{f', {title}' if title else ''}",
        "description": f"{verb}{of} runs it; it measures and saves nothing.",
        "labels": [verb],
        "resources": {**config["resources"], **lowest, **resources},
        "optimizations": {**(config.get("optimizations") or {}), **optimizations},
        "min_validation_period": {"batches": 0},
        "min_checkpoint_period": {"batches": 0},
        "perform_initial_validation": False,
        "checkpoint_policy": "none",
        "on_nan_loss": "warn",
        "max_restarts": 0,
    }
    request = derive(
        source,
        changes,
        hparams=hparams,
        max_length=_ENDLESS,
        variables=[f"{_REHEARSAL}={words}"],
        sources=False,
    )
    return request.model_copy(update={"is_temporary": True})


def remove(client: Client, experiments: Sequence[TemporaryExperiment], verb: str) -> None:
    """Delete the experiments, and wait until they are deleted.

    A failure is printed, not raised: the result of the check must not be lost.
    """
    try:
        for experiment in experiments:
            _wait_for_state(client, experiment.id, lambda state: state.is_terminal)
            experiment.delete(ask=False)
        for experiment in experiments:
            _wait_for_state(client, experiment.id, lambda state: state is State.DELETE_FAILED)
    except DetError as error:
        sys.stderr.write(f"{verb}: its runs are not all deleted: {error}\n")


def _wait_for_state(client: Client, experiment_id: int, is_it: Callable[[State], bool]) -> None:
    """Wait until `is_it` returns True for the experiment's state, or the experiment is deleted."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        try:
            if is_it(client.experiment(experiment_id).state):
                return
        except NotFound:
            return
        time.sleep(_POLL_S)
    raise WaitTimeout(f"experiment {experiment_id} is still there after {_END_S:g} s")


class ProgressLine:
    """A line of output that is rewritten in place."""

    def __init__(self) -> None:
        self._text = ""

    def show(self, text: str) -> None:
        """Replace the line's text."""
        if text != self._text:
            sys.stdout.write(f"\r{text.ljust(len(self._text))}")
            sys.stdout.flush()
            self._text = text

    def close(self) -> None:
        """Erase the line; the cursor stays at its beginning. Idempotent."""
        if self._text:
            sys.stdout.write("\r" + " " * len(self._text) + "\r")
            sys.stdout.flush()
            self._text = ""
