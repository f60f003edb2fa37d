"""One sentence for everyone who waits: what it needs, who has it, what would free it."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.scheduler.fit import AgentSlots, Holder


def explain(slots: int, agents: Sequence[AgentSlots]) -> str:
    """Return why a gang of `slots` ranks waits, given the agents as they are now."""
    need = f"needs {_count(slots, 'slot')}"
    if not agents:
        return f"{need}; no agent is connected yet"
    largest = max(agents, key=lambda agent: agent.total)
    if largest.total < slots:
        return f"{need}; the largest agent, {largest.id}, has {largest.total}: it cannot run now"
    # The agent that is nearest to having enough.
    agent = max((a for a in agents if a.total >= slots), key=lambda a: len(a.free))
    free = f"{len(agent.free)} of {agent.total} {'is' if len(agent.free) == 1 else 'are'} free"
    held = "; ".join(_hold(holder) for holder in agent.holders)
    return f"{need}; {free}; {held}; it starts when {_remedy(slots, agent)}"


def _hold(holder: Holder) -> str:
    leaving = " and is leaving" if holder.is_leaving else ""
    # By how many trials, not by which: they come and go, and who waits need not hear of each.
    num = len(holder.trial_ids)
    who = f"trial {holder.trial_ids[0]}" if num == 1 else f"{num} trials"
    return (
        f"experiment {holder.experiment_id} “{holder.experiment_name}” ({who}) "
        f"holds {holder.slots}{leaving}"
    )


def _remedy(slots: int, agent: AgentSlots) -> str:
    missing = slots - len(agent.free)
    enough = [holder for holder in agent.holders if holder.slots >= missing]
    if leaving := [holder for holder in enough if holder.is_leaving]:
        return f"{_names(leaving)} has left"
    if enough:
        return f"{_names(enough)} ends or is paused"
    return f"{missing} of these slots are given back"


def _names(holders: Sequence[Holder]) -> str:
    return " or ".join(f"experiment {holder.experiment_id}" for holder in holders)


def find_impossibility(slots: int, agents: Sequence[AgentSlots]) -> str | None:
    """Return why a gang of `slots` ranks can never run on these agents, or None if it can."""
    if not agents:
        return None
    largest = max(agents, key=lambda agent: agent.total)
    if largest.total >= slots:
        return None
    values = ", ".join(str(n) for n in range(1, min(largest.total, 16) + 1))
    more = ", …" if largest.total > 16 else ""
    return (
        f"resources.slots_per_trial: got {slots}, but {largest.id} has "
        f"{_count(largest.total, largest.kind + ' slot')}; values that can run: {values}{more}"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
