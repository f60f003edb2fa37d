"""Log policies: what a rank prints decides whether, and where, its trial is tried again.

    cancel_retries    should the run fail, its trial is over at once: another try would be as bad
    exclude_node      the trial's later runs avoid the agent of the rank that printed it

A policy without an action, as the built-in ones are, follows nothing here, and one that has but a
name was disabled: neither is looked for. A line fits if the pattern is found anywhere in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from det_jupyter.config import ExperimentConfig
from det_jupyter.master.machine.model.state import Allocation

Action = Literal["cancel_retries", "exclude_node"]


@dataclass(frozen=True, slots=True)
class LogPolicy:
    """A policy that has an action."""

    pattern: str
    action: Action
    name: str | None = None


def policies_of(settings: ExperimentConfig) -> tuple[LogPolicy, ...]:
    """Return the log policies of a configuration that have an action."""
    return tuple(
        LogPolicy(entry.pattern, entry.action, entry.name)
        for entry in settings.log_policies or ()
        if entry.pattern is not None and entry.action is not None
    )


def is_settled(allocation: Allocation, action: Action, rank: int) -> bool:
    """Return whether another line that fits would change nothing for this run."""
    if action == "cancel_retries":
        return allocation.is_hopeless
    return agent_of(allocation, rank) in allocation.excludes


def agent_of(allocation: Allocation, rank: int) -> str | None:
    """Return the agent that a rank runs on."""
    if rank < len(allocation.agent_ids):
        return allocation.agent_ids[rank]
    return allocation.agent_id


def describe(settings: ExperimentConfig, pattern: str) -> str:
    """Return what to call the policy with this pattern."""
    for policy in policies_of(settings):
        if policy.pattern == pattern and policy.name:
            return f"log policy {policy.name!r}"
    return f"log policy {pattern!r}"
