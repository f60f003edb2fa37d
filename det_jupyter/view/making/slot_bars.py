"""Makes the bars of agents and their slots, for views and the sidebar. Pure.

A view has a limited number of agents and slots: those that the experiment uses are drawn first,
and the rest is counted. The words are also those of `det` (front/verbs/cluster_text.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from det_jupyter.contract.messages import (
    AgentStatus,
    DeviceProcess,
    PoolStatus,
    SlotStatus,
)
from det_jupyter.contract.messages.device_faults import RESET
from det_jupyter.contract.values.text import count, experiment_title, short_time, shortened, size
from det_jupyter.view.making.experiment_facts import slot_label
from det_jupyter.view.model.slots_and_queue import AgentBar, PoolSlots, Slot

MAX_AGENTS = 16
MAX_BARS = 128
MAX_BARS_OF_AGENT = 64
MAX_PROCESSES = 3
_STATE_WORDS = {
    "used": "used",
    "leaving": "leaving",
    "occupied": "occupied by others",
    "lost": "lost",
    "disabled": "disabled",
    "free": "free",
}
_POLICIES = {"priority": "by priority", "fair_share": "fair share", "round_robin": "round robin"}


def build_pools(pools: Sequence[PoolStatus], own_id: int, now: float) -> list[PoolSlots]:
    """Return the bars of all pools; those of experiment `own_id` are marked."""
    drawn = _drawn_agents(pools, own_id)
    return [_pool(pool, drawn, own_id, now) for pool in pools]


def counts_line(agents: Sequence[AgentStatus], noun: str = "slot") -> str:
    """Return the number of slots, in total and by state: `8 slots: 6 used, 2 free`."""
    states: Counter[str] = Counter()
    for agent in agents:
        states.update(slot.state if agent.connected else "gone" for slot in agent.slots)
    if not states:
        return "no slots"
    words = {**_STATE_WORDS, "gone": "not connected"}
    parts = [f"{states[state]:,} {word}" for state, word in words.items() if states[state]]
    return f"{count(states.total(), noun)}: {', '.join(parts)}"


def _drawn_agents(pools: Sequence[PoolStatus], own_id: int) -> set[str]:
    """Return the ids of the agents whose slots are drawn one by one."""
    agents = [agent for pool in pools for agent in pool.agents]
    agents.sort(key=lambda agent: all(slot.experiment_id != own_id for slot in agent.slots))
    drawn: set[str] = set()
    num_bars = 0
    for agent in agents[:MAX_AGENTS]:
        num_bars += min(len(agent.slots), MAX_BARS_OF_AGENT)
        if drawn and num_bars > MAX_BARS:
            break
        drawn.add(agent.id)
    return drawn


def _pool(pool: PoolStatus, drawn: set[str], own_id: int, now: float) -> PoolSlots:
    folded = [agent for agent in pool.agents if agent.id not in drawn]
    more = f"{count(len(folded), 'more agent')} with {counts_line(folded)}" if folded else ""
    return PoolSlots(
        name=shortened(pool.name),
        rules=rules_of(pool),
        counts=counts_line(pool.agents),
        agents=[
            build_agent(agent, own_id, now, most=MAX_BARS_OF_AGENT)
            for agent in pool.agents
            if agent.id in drawn
        ],
        more=more,
    )


def rules_of(pool: PoolStatus) -> str:
    """Return the scheduling policy of a pool: `by priority, with preemption`."""
    parts = [_POLICIES[pool.policy]]
    if pool.preemption and pool.policy != "round_robin":
        parts.append("with preemption")
    if pool.share_devices:
        parts.append("shares devices with others")
    return ", ".join(parts)


def build_agent(agent: AgentStatus, own_id: int, now: float, most: int | None = None) -> AgentBar:
    """Return an agent with at most `most` slots; those of experiment `own_id` are marked."""
    own_first = sorted(agent.slots, key=lambda slot: slot.experiment_id != own_id)
    ids = {slot.slot.id for slot in own_first[:most]}
    folded = [] if most is None else own_first[most:]
    rest = agent.model_copy(update={"slots": folded})
    return AgentBar(
        id=agent.id,
        hostname=shortened(agent.hostname),
        pool=shortened(agent.pool),
        is_connected=agent.connected,
        note=note_of(agent, now),
        facts=_agent_facts(agent),
        slots=[_slot(agent, one, own_id, now) for one in agent.slots if one.slot.id in ids],
        more=f"and {counts_line([rest], 'more slot')}" if folded else "",
    )


def _agent_facts(agent: AgentStatus) -> list[str]:
    facts = [
        agent.id,
        f"computer {agent.hostname}" if agent.hostname else "",
        f"address {agent.address}" if agent.address else "",
        *(f"{name} {version}" for name, version in sorted(agent.versions.items()) if version),
    ]
    return [shortened(fact) for fact in facts if fact]


def note_of(agent: AgentStatus, now: float) -> str:
    """Return the unusual facts of an agent, such as "not connected"; "" if there are none."""
    state = agent.state(now)
    parts = [] if state == "connected" else [state]
    if agent.hostname and agent.hostname != agent.id:
        parts.append(f"on {shortened(agent.hostname)}")
    if agent.num_left_slots:
        parts.append(f"had {count(agent.num_left_slots, 'slot')}")
    elif not agent.slots:
        parts.append("no slots")
    if agent.num_aux:
        parts.append(f"{count(agent.num_aux, 'trial')} without slots")
    return "; ".join(filter(None, (", ".join(parts), agent.problem)))


def _slot(agent: AgentStatus, slot: SlotStatus, own_id: int, now: float) -> Slot:
    is_own = slot.experiment_id == own_id
    is_gone = not agent.connected and slot.experiment_id is None
    more = ["its agent is not connected"] if is_gone else facts_of(slot, now, is_own=is_own)
    device = shortened(slot_label(slot.slot))
    memory = [f"{size(slot.slot.memory_bytes)} of memory"] if slot.slot.memory_bytes else []
    return Slot(
        id=slot.slot.id,
        device=device,
        state="disabled" if is_gone else slot.state,
        is_own=is_own,
        who="not connected" if is_gone else _occupant(slot, is_own=is_own),
        facts=[f"slot {slot.slot.id}", device, *memory, *more],
        experiment_id=slot.experiment_id,
        trial_id=slot.trial_id,
        rank=slot.rank,
    )


def _occupant(slot: SlotStatus, *, is_own: bool) -> str:
    if slot.state == "occupied" and slot.processes:
        return _program(slot.processes[0])
    if slot.state == "occupied":
        return "another process"
    if slot.experiment_id is None:
        return slot.state
    if is_own:
        return "this experiment"
    return shortened(slot.experiment_name) or f"experiment {slot.experiment_id}"


def _program(process: DeviceProcess) -> str:
    """Return a name for a process: its notebook, or its program without the folder."""
    if process.notebook:
        return shortened(process.notebook)
    program, _, rest = process.command.partition(" ")
    return shortened(f"{program.rpartition('/')[2]} {rest}".strip()) or f"pid {process.pid}"


def facts_of(
    slot: SlotStatus, now: float, *, is_own: bool = False, last_rank: int | None = None
) -> list[str]:
    """Return the state of a slot, what runs on it, and since when, each in a few words.

    For a group of slots with ranks of one gang, `slot` is the first, `last_rank` is on the last.
    """
    facts = [_state(slot)]
    if slot.experiment_id is not None:
        whose = experiment_title(slot.experiment_id, slot.experiment_name)
        facts.append(f"{whose} (this one)" if is_own else whose)
    if slot.trial_id is not None:
        rank = "" if slot.rank is None else f", rank {slot.rank}"
        if last_rank not in (None, slot.rank):
            rank = f", ranks {slot.rank}-{last_rank}"
        facts.append(f"trial {slot.trial_id}{rank}")
    if slot.priority is not None:
        facts.append(f"priority {slot.priority}")
    if slot.since is not None:
        facts.append(f"since {short_time(slot.since, now)}")
    facts += [_process(process, now) for process in slot.processes[:MAX_PROCESSES]]
    if (hidden := len(slot.processes) - MAX_PROCESSES) > 0:
        facts.append(f"and {hidden} more")
    if slot.lost is not None:  # the last fact is drawn beside the state
        facts.append(f"{slot.lost.sentence(now)}; {RESET}")
    return facts


def _state(slot: SlotStatus) -> str:
    words = {"used": "in use", "leaving": "asked to leave", "occupied": "used by another process"}
    word = words.get(slot.state, slot.state)
    if slot.state == "occupied" and slot.processes and slot.processes[0].claim:
        is_held = slot.processes[0].claim == "held"
        word = "used by another master" if is_held else "kept for another master, which is next"
    return f"{word}, disabled when its trial is over" if slot.is_draining else word


def _process(process: DeviceProcess, now: float) -> str:
    parts = [f"pid {process.pid}"] if process.pid and not process.claim else []
    parts += [f"of {shortened(process.user)}"] if process.user and not process.claim else []
    what = "Jupyter kernel" if process.kernel_id else shortened(process.command)
    parts += [what] if what else []
    parts += [f"notebook {shortened(process.notebook)}"] if process.notebook else []
    parts += [f"{size(process.memory_bytes)} used"] if process.memory_bytes else []
    if process.since is not None:
        verb = "since" if process.claim == "held" else "waits since"
        parts.append(f"{verb} {short_time(process.since, now)}")
    if process.idle_since is not None:
        parts.append(f"idle since {short_time(process.idle_since, now)}")
    return ", ".join(parts)
