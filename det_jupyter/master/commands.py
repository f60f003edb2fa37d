"""What the machine wants done: commands, each with the number of the event that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from det_jupyter.wire import AgentCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ToAgent:
    """A command for an agent. It may be repeated, and is lost if the agent does not listen."""

    agent_id: str
    command: AgentCommand
    cause: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncateMetrics:
    """What the trial reported after `steps_completed` is void: it starts again from there."""

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


Command = ToAgent | TruncateMetrics | ConsultSampler
