"""Commands of the machine, each with the number of the event that caused it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from det_jupyter.contract.messages import AgentCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAgent:
    """A command for an agent. It may be repeated, and is lost if the agent is not connected."""

    agent_id: str
    command: AgentCommand
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateMetrics:
    """Metrics of the trial after `steps_completed` are void: it starts again from there."""

    experiment_id: int
    trial_id: int
    steps_completed: int
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsultSampler:
    """Ask the experiment's sampler or pruner about a trial; its answer comes as an event."""

    experiment_id: int
    index: int
    question: Literal["sample", "judge"]
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoints:
    """Remove the files of these checkpoints; the outcome comes as CheckpointsDeleted.

    Args:
        experiment_id: The experiment.
        location: Of the storage that all of them are in; None: det_jupyter's own.
        paths: Of each of them, by uuid.
        globs: Of the files; none: all.
        cause: Number of the event that caused it.
    """

    experiment_id: int
    location: str | None
    paths: Mapping[str, str]
    globs: Sequence[str] = ()
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExperiment:
    """Remove all that is kept of an experiment; the outcome comes as ExperimentDeleted.

    Args:
        experiment_id: The experiment.
        trial_ids: Its trials.
        location: Of the storage that its checkpoints are in; None: det_jupyter's own.
        paths: Where each checkpoint is that may still be there, by uuid.
        cause: Number of the event that caused it.
    """

    experiment_id: int
    trial_ids: Sequence[int]
    location: str | None
    paths: Mapping[str, str]
    cause: int


Deletion = DeleteCheckpoints | DeleteExperiment
Command = ToAgent | TruncateMetrics | ConsultSampler | Deletion
