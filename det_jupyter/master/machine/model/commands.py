"""Commands of the machine. The `cause` of each is the number of the event that led to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from det_jupyter.contract.messages import AgentCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAgent:
    """Send a command to an agent. It may be repeated; it is lost if the agent is not connected."""

    agent_id: str
    command: AgentCommand
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateMetrics:
    """Delete a trial's stored metrics after `steps_completed`: `run` restarts from that step."""

    experiment_id: int
    trial_id: int
    run: int
    steps_completed: int
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsultSampler:
    """Query the experiment's sampler or pruner about the trial with this index.

    The answer is an event: HparamsSampled or TrialJudged.
    """

    experiment_id: int
    index: int
    question: Literal["sample", "judge"]
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoints:
    """Delete files of checkpoints; the outcome is the event CheckpointsDeleted.

    Args:
        experiment_id: The experiment that they belong to.
        location: The storage that contains all of them; None: det_jupyter's own.
        paths: Where each checkpoint is stored, by uuid.
        globs: Patterns of the files to delete; none: all files.
        is_former: Whether the checkpoints were moved from there.
        copies: Where they are now, by uuid, if they were moved: they are deleted only if the same
            files are there.
        cause: Number of the event that led to the command.
    """

    experiment_id: int
    location: str | None
    paths: Mapping[str, str]
    globs: Sequence[str] = ()
    is_former: bool = False
    copies: Mapping[str, str] = field(default_factory=dict)
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteExperiment:
    """Delete all stored data of an experiment; the outcome is the event ExperimentDeleted.

    Args:
        experiment_id: The experiment.
        trial_ids: Its trials.
        location: The storage that contains its checkpoints; None: det_jupyter's own.
        paths: Where each checkpoint that may still exist is stored, by uuid.
        elsewhere: The storage of those that are in another one, by uuid.
        cause: Number of the event that led to the command.
    """

    experiment_id: int
    trial_ids: Sequence[int]
    location: str | None
    paths: Mapping[str, str]
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    cause: int


Deletion = DeleteCheckpoints | DeleteExperiment
Command = ToAgent | TruncateMetrics | ConsultSampler | Deletion
