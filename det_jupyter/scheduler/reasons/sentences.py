"""A reason in one sentence: what is needed; what is there; who has it; what would start it."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.scheduler.model import Request
from det_jupyter.scheduler.possible import describe_agents, values_that_fit
from det_jupyter.scheduler.reasons.causes import all_agents
from det_jupyter.scheduler.reasons.clauses import (
    Story,
    be,
    free_of,
    what_is_enough_for_all,
    what_is_free,
    what_starts_it,
    when,
    who_holds,
)
from det_jupyter.scheduler.reasons.devices import disabled_only, occupied_only, stranger
from det_jupyter.scheduler.reasons.never import values_to_ask
from det_jupyter.scheduler.reasons_words import (
    count,
    experiments,
    listed,
    numbers,
    shown,
)
from det_jupyter.wire import DeviceProcess


def tell(story: Story) -> str:
    """Return the sentence."""
    clauses = {
        "slots": _slots,
        "turn": _turn,
        "max_slots": _max_slots,
        "occupied": _occupied,
        "disabled": _disabled,
        "no_agent": _no_agent,
        "agent_gone": _agent_gone,
        "impossible": _impossible,
    }[story.cause](story)
    return "; ".join([f"needs {_need(story)}", *(clause for clause in clauses if clause)])


def _need(story: Story) -> str:
    request = story.situation.request
    if request.slots == 0:
        return "a place for a trial without slots"
    need = count(request.slots, "slot")
    if not story.situation.is_possible():
        return need
    if story.situation.spans_agents:
        sizes = {room.size for room in story.rooms}
        whole = f"{count(len(story.rooms), 'whole agent')} of {sizes.pop()}"
        return f"{need}, {whole}" if not sizes else f"{need} of whole agents"
    if len(story.situation.rooms) > 1 and request.slots > 1:
        return f"{need} on one agent"
    return need


def _slots(story: Story) -> Sequence[str]:
    return what_is_free(story), who_holds(story), _withheld(story), what_starts_it(story)


def _withheld(story: Story) -> str:
    """Mention slots that are not given out, on the nearest agent that has any."""
    parts = []
    for room in story.rooms:
        withheld = story.situation.survey.withheld.get(room.agent.id)
        if withheld is None or story.situation.request.slots == 0:
            continue
        if disabled := disabled_only(withheld):
            parts.append(f"{len(disabled)} more {be(len(disabled))} disabled")
        if occupied := occupied_only(withheld):
            users = {p.pid: p for slot in occupied for p in withheld.occupied[slot]}
            parts.append(_by_strangers(story, len(occupied), list(users.values())))
        if parts:
            break
    return " and ".join(parts)


def _by_strangers(story: Story, num: int, users: Sequence[DeviceProcess]) -> str:
    first = stranger(users[0], story.situation.survey.facts.now)
    rest = len(users) - 1
    more = f" and {rest} more {'process' if rest == 1 else 'processes'}" if rest else ""
    return f"{num} more {be(num)} used by {first}{more}"


def _turn(story: Story) -> Sequence[str]:
    situation = story.situation
    who, are = _ahead(story)
    if situation.fits_alone():
        free = free_of(situation.allowed()) if situation.request.slots else "there is room"
        return f"{free}, but kept for {who}, which {are} ahead of it", _after(story)
    return what_is_free(story), f"{who} {are} ahead of it", _who_else(story), _after(story)


def _ahead(story: Story) -> tuple[str, str]:
    """Return who is ahead, and the verb for so many."""
    situation, pool = story.situation, story.situation.survey.pool
    if not situation.is_complete:
        num = pool.position(situation.request.id)
        return count(num, "trial"), be(num)
    others = [other for other in story.in_the_way if other.group != situation.request.group]
    mates = len(story.in_the_way) - len(others)
    parts = []
    if len(others) == 1:
        parts.append(_one_ahead(story, others[0]))
    elif others:
        groups = list(dict.fromkeys(other.group for other in others))
        parts.append(f"{len(others)} trials ({experiments(groups)})")
    if mates:
        parts.append(f"{count(mates, 'trial')} of its own experiment")
    return " and ".join(parts), be(len(others) + mates)


def _one_ahead(story: Story, other: Request) -> str:
    facts = story.situation.survey.facts
    name = shown(facts.title_of(other.group).name)
    return (
        f"experiment {other.group} “{name}” (trial {facts.trial_of(other.id)}, "
        f"needs {other.slots})"
    )


def _who_else(story: Story) -> str:
    """Name who holds slots; a sentence about those ahead says no more of them."""
    own = story.situation.request.group
    others = [holder.experiment_id for holder in story.holders if holder.experiment_id != own]
    parts = [experiments(others)] if others else []
    if len(others) > 3:
        parts = [f"{len(others)} other experiments"]
    if len(others) < len(story.holders):
        parts.append("its own")
    verb = "holds" if len(story.holders) == 1 else "hold"
    return f"{' and '.join(parts)} {verb} the rest" if parts else ""


def _after(story: Story) -> str:
    if story.reliefs:
        return what_starts_it(story)
    if enough := what_is_enough_for_all(story):
        return f"starts when {enough}{when(story)}"
    return f"starts after {_them(story)}{when(story)}"


def _them(story: Story) -> str:
    return "it" if len(story.in_the_way) == 1 and story.situation.is_complete else "them"


def _max_slots(story: Story) -> Sequence[str]:
    group, pool = story.situation.group, story.situation.survey.pool
    held = pool.held(group.id)
    rule = f"its experiment holds {held} and may hold {group.max_slots} (max_slots)"
    if story.situation.request.slots > (group.max_slots or 0):
        return rule, "can run when max_slots is raised"
    own = [relief for relief in story.reliefs if relief.group_id == group.id]
    enough = "one of its trials ends" if own else "enough of its trials have ended"
    return rule, f"starts when {enough}{when(story)}"


def _occupied(story: Story) -> Sequence[str]:
    agents = [
        (agent_id, withheld)
        for agent_id, withheld in sorted(story.situation.survey.withheld.items())
        if withheld.occupied and agent_id not in story.situation.request.blocked
    ]
    now = story.situation.survey.facts.now
    users: dict[int, DeviceProcess] = {}
    for _, withheld in agents:
        for processes in withheld.occupied.values():
            users.update((process.pid, process) for process in processes)
    num = sum(len(withheld.occupied) for _, withheld in agents)
    total = sum(len(agent.slots) for agent in all_agents(story.situation))
    names = listed([stranger(user, now) for user in users.values()], most=2)
    verb = "uses" if len(users) == 1 else "use"
    where = f" of agent {shown(agents[0][0])}" if len(agents) == 1 else ""
    end = "it ends" if len(users) == 1 else "they end"
    return f"{names} {verb} {num} of {count(total, 'slot')}{where}", f"can run when {end}"


def _given_out(story: Story) -> str:
    given = sum(room.size for room in story.situation.allowed())
    total = sum(len(agent.slots) for agent in all_agents(story.situation))
    return f"{given or 'none'} of {total} {be(given)} given out"


def _disabled(story: Story) -> Sequence[str]:
    parts = [
        f"slot{'s' if len(slots) > 1 else ''} {numbers(slots)} of agent {shown(agent_id)}"
        for agent_id, withheld in sorted(story.situation.survey.withheld.items())
        if (slots := sorted(withheld.disabled)) and agent_id not in story.situation.request.blocked
    ]
    plural = len(parts) > 1 or parts[0].startswith("slots")
    return (
        _given_out(story),
        f"{listed(parts, most=2)} {'are' if plural else 'is'} disabled",
        f"can run when {'enough of them are' if plural else 'it is'} enabled",
    )


def _no_agent(story: Story) -> Sequence[str]:
    pool = shown(story.situation.survey.facts.pool_name)
    return f"no agent of pool {pool} is connected", "starts when one comes that has them"


def _agent_gone(story: Story) -> Sequence[str]:
    gone = story.situation.survey.gone
    names = [f"{shown(agent.id)} with {count(len(agent.slots), 'slot')}" for agent in gone]
    noun, verb, they = (
        ("agent", "is", "it is") if len(gone) == 1 else ("agents", "are", "they are")
    )
    return f"{noun} {listed(names)} {verb} not connected", f"can run when {they} back"


def _impossible(story: Story) -> Sequence[str]:
    situation = story.situation
    agents, request = all_agents(situation), situation.request
    allowed = [agent for agent in agents if agent.id not in request.blocked]
    pool = shown(situation.survey.facts.pool_name)
    avoids, other = "", ""
    if len(allowed) < len(agents):
        blocked = sorted(shown(agent.id) for agent in agents if agent.id in request.blocked)
        avoids = f"it must avoid {'agent' if len(blocked) == 1 else 'agents'} {listed(blocked)}"
        other = " other"
    if not allowed:
        return avoids, f"pool {pool} has no{other} agent"
    if request.slots == 0:
        return avoids, f"no{other} agent of pool {pool} takes trials without slots", "ask for 1"
    values = values_that_fit(allowed, situation.survey.pool.rules, request.is_single_agent)
    near = listed([str(value) for value in values_to_ask(situation)], last="or")
    advice = f"ask for {near} instead of {request.slots}" if near else "add slots"
    on_one = " on one agent" if request.is_single_agent else ""
    return (
        avoids,
        f"pool {pool} has {describe_agents(allowed)}{' besides' if avoids else ''}",
        f"values that can run{on_one}: {numbers(values) or 'none but 0'}",
        advice,
    )
