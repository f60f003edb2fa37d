"""Checks that a trial which is paused and killed ends as if nothing had happened.

The experiment's own code and configuration are submitted twice with the same seed: once straight,
once with interruptions at batches known beforehand. The two last checkpoints are compared bit by
bit, in a process of the ranks' interpreter: this module, like all handles, imports no torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from det_jupyter.client.client import Client
from det_jupyter.client.verification import Verification
from det_jupyter.config import merge_variables
from det_jupyter.errors import (
    CheckpointError,
    ConfigError,
    Conflict,
    DetError,
    NotFound,
    RankFailed,
    WaitTimeout,
)
from det_jupyter.wire import (
    MAX_LINES,
    CheckpointView,
    CreateExperiment,
    ExperimentView,
    LogQuery,
    State,
    TrialView,
)

_VARIABLE = "DET_JUPYTER_INTERRUPT"  # pytorch/training/interruptions.py
_COMPARE = "det_jupyter.pytorch.checkpoints.compare"
_END_S = 30.0  # for a killed experiment to end, and for a deletion
_POLL_S = 0.1


class Watched(Protocol):
    """What is needed of a handle on an experiment."""

    id: int

    @property
    def view(self) -> ExperimentView:
        """Everything the master knows of it."""

    def wait(self, timeout: float | None = None, *, on_tick: Callable[[Any], None]) -> Any:
        """Block until it has ended; raise if it ended with an error."""

    def kill(self) -> None:
        """End it now."""

    def delete(self) -> None:
        """Delete it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trying:
    """What to try: which trial, how far, interrupted where."""

    hparams: dict[str, Any]
    max_length: dict[str, int]
    interruptions: tuple[tuple[str, int], ...]


def plan_trying(
    view: ExperimentView,
    trial: TrialView,
    *,
    batches: int | None,
    pause_at: int | None,
    kill_at: int | None,
) -> Trying:
    """Return what to try.

    Raises:
        ConfigError: It cannot be tried so.
    """
    _check_class(view)
    max_length = {"batches": batches} if batches else view.config["searcher"].get("max_length")
    end = batches or (max_length or {}).get("batches") or trial.steps_completed
    if not max_length or not end:
        raise ConfigError(
            ["verify_resume: how many batches the trial has is not known yet; give batches=…"]
        )
    if pause_at is None and kill_at is None:
        pause_at, kill_at = max(1, end // 3), max(2, 2 * end // 3)
    given = {"pause": pause_at, "kill": kill_at}
    planned = [(kind, steps) for kind, steps in given.items() if steps is not None]
    problems = [
        f"verify_resume: got {kind}_at {steps}, expected a batch from 1 to {end - 1}"
        for kind, steps in planned
        if not 1 <= steps < end
    ]
    if pause_at == kill_at:
        problems.append("verify_resume: pause_at and kill_at are the same batch; give two")
    if problems:
        raise ConfigError(problems)
    by_batch = tuple(sorted(planned, key=lambda item: item[1]))
    return Trying(hparams=trial.hparams, max_length=max_length, interruptions=by_batch)


def _check_class(view: ExperimentView) -> None:
    """Refuse a function: it has its own loop, which cannot be interrupted at a batch."""
    name = view.capsule.entrypoint
    kind = next((item.type for item in view.capsule.captured if item.name == name), "class")
    if kind != "class":
        raise ConfigError(
            [
                f"verify_resume: the entrypoint {name} is a {kind}, expected a PyTorchTrial "
                "class: only its training can be interrupted at a batch. Put what the function "
                "trains into a class, or pause() and activate() the experiment yourself"
            ]
        )


def request_for(view: ExperimentView, trying: Trying, *, interrupted: bool) -> CreateExperiment:
    """Return the request for one of the two experiments."""
    config = view.config
    searcher = config["searcher"]
    kept = ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")
    environment = config.get("environment") or {}
    variables = environment.get("environment_variables") or []
    if interrupted:
        plan = " ".join(f"{kind}@{steps}" for kind, steps in trying.interruptions)
        variables = merge_variables(variables, [f"{_VARIABLE}={plan}"])
    policy = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}
    changed = {
        "name": f"{view.name}: {'interrupted' if interrupted else 'straight'}",
        "hyperparameters": trying.hparams,
        "searcher": {
            "name": "single",
            "max_length": trying.max_length,
            **{key: searcher[key] for key in kept if searcher.get(key) is not None},
        },
        "environment": {**environment, "environment_variables": variables},
        "checkpoint_storage": {**(config.get("checkpoint_storage") or {}), **policy},
        "max_restarts": max(1, config["max_restarts"]),
    }
    return CreateExperiment(
        config=config | changed,
        capsule=view.capsule,
        python=view.python,
        cwd=view.cwd,
        notebook=view.notebook,
        parent_id=view.id,
    )


def verify(
    client: Client,
    view: ExperimentView,
    trying: Trying,
    handle_of: Callable[[int], Watched],
    *,
    timeout_s: float | None,
    keep: bool,
) -> Verification:
    """Run both experiments and compare how they end; see Experiment.verify_resume."""
    requests = [request_for(view, trying, interrupted=flag) for flag in (False, True)]
    both: list[Watched] = []
    try:
        both += [handle_of(client.create(request).id) for request in requests]
        verification = _run(client, view, trying, both, timeout_s)
    except BaseException as error:  # an interrupt from the keyboard too
        for experiment in both:
            experiment.kill()
        if not keep:
            _remove(client, both)
            if isinstance(error, RankFailed):
                told = f"{error.args[0]} (and is deleted; keep=True keeps it)"
                error.args = (told,)
        raise
    if verification.is_identical and not keep:
        _remove(client, both)
    return verification


def _run(
    client: Client,
    view: ExperimentView,
    trying: Trying,
    both: Sequence[Watched],
    timeout_s: float | None,
) -> Verification:
    progress = _Progress(both)
    try:
        for experiment in both:
            experiment.wait(timeout_s, on_tick=lambda _: progress.show())
    finally:
        progress.close()
    straight, interrupted = both
    _check_interrupted(client, interrupted.view, trying)
    ends = [_last_checkpoint(client, experiment.id) for experiment in both]
    found = _compare(view.python, *(Path(end.path) for end in ends))
    return Verification(
        interruptions=trying.interruptions,
        steps_completed=ends[0].steps_completed,
        tensors=found["tensors"],
        differences=tuple((d["name"], d["problem"]) for d in found["differences"]),
        straight_id=straight.id,
        interrupted_id=interrupted.id,
    )


def _remove(client: Client, experiments: Sequence[Watched]) -> None:
    """Delete the experiments, and wait until they are gone.

    What cannot be deleted is reported and stays: the result of the check must not be hidden.
    """
    try:
        for experiment in experiments:
            _wait_for_state(client, experiment.id, lambda state: state.is_terminal)
            experiment.delete()
        for experiment in experiments:
            _wait_for_state(client, experiment.id, lambda state: state is State.DELETE_FAILED)
    except DetError as error:
        sys.stderr.write(f"verify_resume: its runs are not all deleted: {error}\n")


def _wait_for_state(client: Client, experiment_id: int, is_it: Callable[[State], bool]) -> None:
    """Wait until the experiment is in such a state, or is no more."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        try:
            if is_it(client.experiment(experiment_id).state):
                return
        except NotFound:
            return
        time.sleep(_POLL_S)
    raise WaitTimeout(f"experiment {experiment_id} is still there after {_END_S:g} s")


class _Progress:
    """One line that is written over, about both experiments."""

    def __init__(self, both: Sequence[Watched]) -> None:
        self._both = both
        self._shown = ""

    def show(self) -> None:
        straight, interrupted = (experiment.view.progress for experiment in self._both)
        line = f"straight {straight:4.0%}, interrupted {interrupted:4.0%}"
        if line != self._shown:
            self._shown = line
            sys.stdout.write(f"\r{line}")
            sys.stdout.flush()

    def close(self) -> None:
        if self._shown:
            sys.stdout.write("\r" + " " * len(self._shown) + "\r")
            sys.stdout.flush()


def _check_interrupted(client: Client, view: ExperimentView, trying: Trying) -> None:
    """Check in the logs of the ranks that the planned interruptions have happened."""
    lines = client.logs(view.trials[0].id, LogQuery(tail=MAX_LINES)).lines
    told = [line.text.strip() for line in lines if line.text.startswith(f"{_VARIABLE}: ")]
    planned = [f"{_VARIABLE}: {kind}@{steps}" for kind, steps in trying.interruptions]
    if told != planned:
        raise Conflict(
            f"verify_resume: experiment {view.id} was not interrupted as planned: "
            f"got {told or 'nothing'}, expected {planned}"
        )


def _last_checkpoint(client: Client, experiment_id: int) -> CheckpointView:
    kept = [c for c in client.checkpoints(experiment_id) if c.state == "COMPLETED"]
    if not kept:
        raise CheckpointError(f"verify_resume: experiment {experiment_id} left no checkpoint")
    return max(kept, key=lambda c: (c.steps_completed, c.created_at))


def _compare(python: str, one: Path, other: Path) -> dict[str, Any]:
    interpreter = python if os.access(python, os.X_OK) else sys.executable
    argv = [interpreter, "-P", "-m", _COMPARE, str(one), str(other), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:  # nothing: it could not read one of them, or not even start
        raise CheckpointError(f"verify_resume: comparing failed: {done.stderr.strip()}") from None
    return found
