"""Log policies: a line that a rank prints decides whether, and where, its trial is retried.

    cancel_retries    if the run fails, its trial ends in ERROR at once, without restarts
    exclude_node      later runs of the trial avoid the agent of the rank that printed the line

Lines are not matched against policies without an action, such as the built-in ones, nor against
policies with only a name, which are disabled. A line matches if it contains the pattern.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from det_jupyter.config import ExperimentConfig
from det_jupyter.master.machine.model.allocations import Allocation

Action = Literal["cancel_retries", "exclude_node"]


@dataclass(frozen=True, slots=True)
class ActingPolicy:
    """A policy that has an action."""

    pattern: str
    action: Action
    name: str | None = None


def policies_of(settings: ExperimentConfig) -> tuple[ActingPolicy, ...]:
    """Return the log policies of a configuration that have an action."""
    return tuple(
        ActingPolicy(entry.pattern, entry.action, entry.name)
        for entry in settings.log_policies or ()
        if entry.pattern is not None and entry.action is not None
    )


def is_applied(allocation: Allocation, action: Action, rank: int) -> bool:
    """Return whether the action was applied already, so that further matches have no effect."""
    if action == "cancel_retries":
        return allocation.is_hopeless
    return agent_of(allocation, rank) in allocation.excludes


def agent_of(allocation: Allocation, rank: int) -> str | None:
    """Return the agent that a rank runs on; None if it is unknown."""
    if rank < len(allocation.agent_ids):
        return allocation.agent_ids[rank]
    return allocation.agent_id


def policy_label(settings: ExperimentConfig, pattern: str) -> str:
    """Return a label for messages: the name of the policy with this pattern, or the pattern."""
    for policy in policies_of(settings):
        if policy.pattern == pattern and policy.name:
            return f"log policy {policy.name!r}"
    return f"log policy {pattern!r}"
