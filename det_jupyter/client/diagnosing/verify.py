"""Checks that a trial which is paused and killed ends with the same state as one that is not.

The experiment's own code and configuration are submitted twice with the same seed: once
uninterrupted ("straight"), once with interruptions at given batches. The two last checkpoints are
compared bit by bit in a process of the ranks' interpreter: handles import no torch. Every number
that the two have reported is compared, too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.diagnosing.derived import (
    ProgressLine,
    TemporaryExperiment,
    check_class,
    derive,
    remove,
)
from det_jupyter.contract.messages import (
    MAX_LINES,
    CheckpointView,
    CreateExperiment,
    Curve,
    ExperimentView,
    LogQuery,
    PoolStatus,
    TrialView,
)
from det_jupyter.contract.values.text import count
from det_jupyter.errors import CheckpointError, ConfigError, Conflict, RankFailed
from det_jupyter.storage import reading

_VARIABLE = "DET_JUPYTER_INTERRUPT"  # pytorch/training/interruptions.py
_PLACE = re.compile(rf"{_VARIABLE}: run \d+ on (.+)")
_COMPARE = "det_jupyter.pytorch.checkpoints.compare"
_VERB = "verify_resume"
_ONLY_CLASSES = (
    "only its training can be interrupted at a batch. Put what it trains into a class, "
    "or pause() and activate() the experiment yourself"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """Hyperparameters, length, interruptions as (kind, batch), and the number of agents."""

    hparams: dict[str, Any]
    max_length: dict[str, int]
    interruptions: tuple[tuple[str, int], ...]
    machines: int = 1


def plan_verify(
    view: ExperimentView,
    trial: TrialView,
    *,
    batches: int | None,
    pause_at: int | None,
    kill_at: int | None,
    machines: int = 1,
    pools: Sequence[PoolStatus] = (),
) -> VerifyPlan:
    """Return the plan; the arguments are those of `Experiment.verify_resume`.

    Args:
        pools: The master's pools; only needed if `machines` is not 1.

    Raises:
        ConfigError: The entrypoint is no class, or arguments are wrong; one line for each.
    """
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
    if not 1 <= machines <= 1 + len(planned):
        problems.append(
            f"verify_resume: got machines={machines}, expected 1 to {1 + len(planned)}: after "
            "each interruption it can continue on another one"
        )
    elif machines > 1 and (problem := _find_missing_agents(view, machines, pools)):
        problems.append(problem)
    if problems:
        raise ConfigError(problems)
    by_batch = tuple(sorted(planned, key=lambda item: item[1]))
    return VerifyPlan(
        hparams=trial.hparams,
        max_length=max_length,
        interruptions=by_batch,
        machines=machines,
    )


def _find_missing_agents(view: ExperimentView, machines: int, pools: Sequence[PoolStatus]) -> str:
    """Return why the trial cannot be on that many agents in turn; "" if it can."""
    slots = view.slots_per_trial
    agents = [agent for pool in pools if pool.name == view.pool for agent in pool.agents]
    sizes = sorted(
        (sum(s.state != "disabled" for s in agent.slots) for agent in agents if agent.connected),
        reverse=True,
    )
    if any(size >= slots for size in sizes):
        can_run = sum(size >= slots for size in sizes) >= machines
    else:  # on several agents at once: each interruption excludes the one of rank 0
        can_run = sum(sizes[machines - 1 :]) >= slots
    if can_run:
        return ""
    has = ", ".join(f"{agent.id} ({len(agent.slots)} slots)" for agent in agents) or "none"
    return (
        f"verify_resume: machines={machines} needs so many agents on which {slots} slots are "
        f"possible in turn; pool {view.pool} has: {has}"
    )


def request_for(view: ExperimentView, plan: VerifyPlan, *, interrupted: bool) -> CreateExperiment:
    """Return the request for one of the two experiments."""
    entries = [f"{kind}@{steps}" for kind, steps in plan.interruptions]
    orders = " ".join(entries)
    policy = {"save_experiment_best": 0, "save_trial_best": 0, "save_trial_latest": 1}
    changes = {
        "name": f"{view.name}: {'interrupted' if interrupted else 'straight'}",
        "checkpoint_storage": {**(view.config.get("checkpoint_storage") or {}), **policy},
        "max_restarts": max(1, view.config["max_restarts"]),
    }
    if interrupted and plan.machines > 1:
        lines = "|".join(entries[: plan.machines - 1])
        leaving = {"pattern": rf"^{_VARIABLE}: ({lines})\b", "action": "exclude_node"}
        changes["log_policies"] = [*(view.config.get("log_policies") or []), leaving]
    return derive(
        view,
        changes,
        hparams=plan.hparams,
        max_length=plan.max_length,
        variables=[f"{_VARIABLE}={orders}"] if interrupted else [],
    )


def verify(
    client: Client,
    view: ExperimentView,
    plan: VerifyPlan,
    handle_of: Callable[[int], TemporaryExperiment],
    *,
    timeout_s: float | None,
    keep: bool,
) -> Verification:
    """Run both experiments and compare how they end; see Experiment.verify_resume."""
    requests = [request_for(view, plan, interrupted=flag) for flag in (False, True)]
    both: list[TemporaryExperiment] = []
    try:
        both += [handle_of(client.create(request).id) for request in requests]
        verification = _run(client, view, plan, both, timeout_s)
    except BaseException as error:  # an interrupt from the keyboard too
        for experiment in both:
            experiment.kill()
        if not keep:
            remove(client, both, _VERB)
            if isinstance(error, RankFailed):
                error.args = (f"{error.args[0]} (and is deleted; keep=True keeps it)",)
        raise
    if verification.is_identical and not keep:
        remove(client, both, _VERB)
    return verification


def _run(
    client: Client,
    view: ExperimentView,
    plan: VerifyPlan,
    both: Sequence[TemporaryExperiment],
    timeout_s: float | None,
) -> Verification:
    line = ProgressLine()

    def show(_: object) -> None:
        straight, interrupted = (experiment.view.progress for experiment in both)
        line.show(f"straight {straight:4.0%}, interrupted {interrupted:4.0%}")

    try:
        for experiment in both:
            experiment.wait(timeout_s, on_tick=show)
    finally:
        line.close()
    straight, interrupted = both
    agents = _check_interrupted(client, interrupted.view, plan)
    ends = [_last_checkpoint(client, experiment.id) for experiment in both]
    found = _compare(view.python, ends[0].path, ends[1].path)
    curves = [client.curves(experiment.id) for experiment in both]
    number, differing = compare_curves(*curves)
    notices = [
        text
        for experiment in both
        for trial in client.experiment(experiment.id).trials
        for text in trial.notices
        if "is in no checkpoint" in text  # pytorch/checkpoints/unsaved.py
    ]
    return Verification(
        interruptions=plan.interruptions,
        steps_completed=ends[0].steps_completed,
        tensors=found["tensors"],
        numbers=number,
        differences=(*((d["name"], d["problem"]) for d in found["differences"]), *differing),
        unsaved=tuple(dict.fromkeys(notices)),
        straight_id=straight.id,
        interrupted_id=interrupted.id,
        agents=agents,
    )


def _check_interrupted(client: Client, view: ExperimentView, plan: VerifyPlan) -> tuple[str, ...]:
    """Return the agent of each run.

    Raises:
        Conflict: The logs of the ranks do not show the planned interruptions and machines.
    """
    lines = client.logs(view.trials[0].id, LogQuery(tail=MAX_LINES)).lines
    ours = [line.text.strip() for line in lines if line.text.startswith(f"{_VARIABLE}: ")]
    agents = tuple(found[1] for line in ours if (found := _PLACE.fullmatch(line)))
    logged = [line for line in ours if not _PLACE.fullmatch(line)]
    planned = [f"{_VARIABLE}: {kind}@{steps}" for kind, steps in plan.interruptions]
    if logged != planned:
        raise Conflict(
            f"verify_resume: experiment {view.id} was not interrupted as planned: "
            f"got {logged or 'nothing'}, expected {planned}"
        )
    if len(set(agents)) < plan.machines:
        raise Conflict(
            f"verify_resume: experiment {view.id} was not on {plan.machines} machines: its runs "
            f"were on {', '.join(agents) or 'none'}"
        )
    return agents


def _last_checkpoint(client: Client, experiment_id: int) -> CheckpointView:
    kept = [c for c in client.checkpoints(experiment_id) if c.state == "COMPLETED"]
    if not kept:
        raise CheckpointError(f"verify_resume: experiment {experiment_id} left no checkpoint")
    return max(kept, key=lambda c: (c.steps_completed, c.created_at))


def _compare(python: str, one: str, other: str) -> dict[str, Any]:
    """Compare two checkpoints, by their paths as recorded, in the experiment's interpreter."""
    interpreter = python if os.access(python, os.X_OK) else sys.executable
    with reading(one) as first, reading(other) as second:
        argv = [interpreter, "-P", "-m", _COMPARE, str(first), str(second), "--json"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    try:
        found: dict[str, Any] = json.loads(done.stdout)
    except ValueError:  # no output: it could not read a checkpoint, or not start
        raise CheckpointError(f"verify_resume: comparing failed: {done.stderr.strip()}") from None
    return found


_BY_TIME = ("tensor_fusion",)  # groups of metrics that depend on how fast a run is


def compare_curves(
    straight: Sequence[Curve], interrupted: Sequence[Curve]
) -> tuple[int, list[tuple[str, str]]]:
    """Compare every number that two trials have reported, by group, name and step.

    Returns:
        How many numbers the first has reported, and name and problem of each metric that differs.
    """
    one, other = (
        {
            f"{curve.group}.{curve.name}": dict(zip(curve.steps, curve.values, strict=True))
            for curve in curves
            if curve.group not in _BY_TIME
        }
        for curves in (straight, interrupted)
    )
    found = []
    for name in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(name, {}), other.get(name, {})
        steps = sorted(mine.keys() | theirs.keys())
        wrong = [step for step in steps if _at(mine, step) != _at(theirs, step)]
        if wrong:
            values = f"{_at(mine, wrong[0])} and {_at(theirs, wrong[0])}"
            problem = f"{len(wrong)} of {count(len(steps), 'reported number')} differ"
            found.append((name, f"{problem}; the first is at batch {wrong[0]}: {values}"))
    return sum(map(len, one.values())), found


def _at(values: Mapping[int, float | None], step: int) -> str:
    """Return the value of a step as text, which can be compared also if it is NaN."""
    return repr(values[step]) if step in values else "nothing"


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
    "code, or a metric, that depends on the time, on the order of a set or of files, or on how "
    "long it has run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of `verify_resume`; prints as text.

    Attributes:
        interruptions: Those of the interrupted run, such as ("pause", 7), in order.
        steps_completed: Number of batches that both trained.
        tensors: Number of compared tensors.
        numbers: Number of compared reported numbers: metrics of training and validation, by batch.
        differences: Name and problem of each, in the checkpoint's order; then those of metrics.
        unsaved: Notices on what changes while the trial trains and is in no checkpoint.
        straight_id, interrupted_id: The experiments, which are deleted if nothing differs.
        agents: The agent of rank 0 in each run of the interrupted experiment.
    """

    interruptions: tuple[tuple[str, int], ...]
    steps_completed: int
    tensors: int
    differences: tuple[tuple[str, str], ...] = field(repr=False)
    straight_id: int
    interrupted_id: int
    agents: tuple[str, ...] = ()
    numbers: int = 0
    unsaved: tuple[str, ...] = ()

    @property
    def is_identical(self) -> bool:
        """Whether the two checkpoints, and all reported numbers, are equal, bit for bit."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.is_identical

    def __repr__(self) -> str:
        return "\n".join(self._lines(lambda text: text))

    def _repr_html_(self) -> str:
        head, *rest = self._lines(escape)
        mark = "✓" if self.is_identical else "✗"
        return f"<div>{mark} <b>{head}</b><pre>{chr(10).join(rest)}</pre></div>"

    def _lines(self, escaped: Callable[[str], str]) -> list[str]:
        what = ", ".join(f"{steps} ({_DONE[kind]})" for kind, steps in self.interruptions)
        where = f", on {', then '.join(self.agents)}" if len(set(self.agents)) > 1 else ""
        after = f"interrupted after batch {what}{where}"
        if self.is_identical:
            what = f"{self.tensors} tensors and {self.numbers} reported numbers"
            end = f"{what} at batch {self.steps_completed}"
            return [escaped(line) for line in (f"identical: {end}, {after}", *self.unsaved)]
        name, problem = self.differences[0]
        lines = [f"differs first in {name}: {problem}"]
        lines.append(
            f"{after}; {len(self.differences)} values differ at batch {self.steps_completed} "
            f"(experiments {self.straight_id} and {self.interrupted_id} are kept)"
        )
        lines += [f"  {name}: {problem}" for name, problem in self.differences[1:_SHOWN]]
        lines.append("What may be the cause:")
        lines += [f"  • {cause}" for cause in (*self.unsaved, *_CAUSES)]
        return [escaped(line) for line in lines]
