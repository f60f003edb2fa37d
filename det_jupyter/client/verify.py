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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.derived import Line, Watched, check_class, derive, remove
from det_jupyter.contract.messages import (
    MAX_LINES,
    CheckpointView,
    CreateExperiment,
    ExperimentView,
    LogQuery,
    TrialView,
)
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, RankFailed

_VARIABLE = "DET_JUPYTER_INTERRUPT"  # pytorch/training/interruptions.py
_COMPARE = "det_jupyter.pytorch.checkpoints.compare"
_VERB = "verify_resume"
_ONLY_CLASSES = (
    "only its training can be interrupted at a batch. Put what it trains into a class, "
    "or pause() and activate() the experiment yourself"
)


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
    """Return what to try, or raise all reasons why it cannot be tried so."""
    check_class(view, _VERB, _ONLY_CLASSES)
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


def request_for(view: ExperimentView, trying: Trying, *, interrupted: bool) -> CreateExperiment:
    """Return the request for one of the two experiments."""
    plan = " ".join(f"{kind}@{steps}" for kind, steps in trying.interruptions)
    policy = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}
    changes = {
        "name": f"{view.name}: {'interrupted' if interrupted else 'straight'}",
        "checkpoint_storage": {**(view.config.get("checkpoint_storage") or {}), **policy},
        "max_restarts": max(1, view.config["max_restarts"]),
    }
    return derive(
        view,
        changes,
        hparams=trying.hparams,
        max_length=trying.max_length,
        variables=[f"{_VARIABLE}={plan}"] if interrupted else [],
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
            remove(client, both, _VERB)
            if isinstance(error, RankFailed):
                told = f"{error.args[0]} (and is deleted; keep=True keeps it)"
                error.args = (told,)
        raise
    if verification.is_identical and not keep:
        remove(client, both, _VERB)
    return verification


def _run(
    client: Client,
    view: ExperimentView,
    trying: Trying,
    both: Sequence[Watched],
    timeout_s: float | None,
) -> Verification:
    line = Line()

    def show(_: object) -> None:
        straight, interrupted = (experiment.view.progress for experiment in both)
        line.show(f"straight {straight:4.0%}, interrupted {interrupted:4.0%}")

    try:
        for experiment in both:
            experiment.wait(timeout_s, on_tick=show)
    finally:
        line.close()
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


_DONE = {"pause": "paused", "kill": "killed"}
_SHOWN = 5
_CAUSES = (
    "GPU kernels without a deterministic variant: call torch.use_deterministic_algorithms(True) "
    "in the trial and add CUBLAS_WORKSPACE_CONFIG=:4096:8 to "
    "environment.environment_variables; torch then names the kernel if there is none",
    "a random generator of the trial's own: seed it from context.get_trial_seed() and keep its "
    "state in a callback's state_dict",
    "state that lives outside of models, optimizers, schedulers and callbacks: keep it in a "
    "callback's state_dict",
    "code that depends on the time, on the order of a set or of files, or on how long it has run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came out; prints as a sentence.

    Attributes:
        interruptions: What happened to the interrupted run, such as ("pause", 7), in order.
        steps_completed: Batches that both were trained.
        tensors: How many were compared.
        differences: Name and problem of each, in the checkpoint's order.
        straight_id, interrupted_id: The experiments, which are deleted if all is well.
    """

    interruptions: tuple[tuple[str, int], ...]
    steps_completed: int
    tensors: int
    differences: tuple[tuple[str, str], ...] = field(repr=False)
    straight_id: int
    interrupted_id: int

    @property
    def is_identical(self) -> bool:
        """Whether the interruptions changed nothing, bit for bit."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.is_identical

    def __repr__(self) -> str:
        return "\n".join(self._lines(lambda text: text))

    def _repr_html_(self) -> str:
        head, *rest = self._lines(escape)
        mark = "✓" if self.is_identical else "✗"
        return f"<div>{mark} <b>{head}</b><pre>{chr(10).join(rest)}</pre></div>"

    def _lines(self, shown: Callable[[str], str]) -> list[str]:
        what = ", ".join(f"{steps} ({_DONE[kind]})" for kind, steps in self.interruptions)
        after = f"interrupted after batch {what}"
        if self.is_identical:
            end = f"{self.tensors} tensors at batch {self.steps_completed}"
            return [shown(f"identical: {end}, {after}")]
        name, problem = self.differences[0]
        lines = [f"differs first in {name}: {problem}"]
        lines.append(
            f"{after}; {len(self.differences)} values differ at batch {self.steps_completed} "
            f"(experiments {self.straight_id} and {self.interrupted_id} are kept)"
        )
        lines += [f"  {name}: {problem}" for name, problem in self.differences[1:_SHOWN]]
        lines.append("What may be the cause:")
        lines += [f"  • {cause}" for cause in _CAUSES]
        return [shown(line) for line in lines]
