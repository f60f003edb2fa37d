"""A reason in one sentence: what is needed; what is there; who has it; what would start it."""

from __future__ import annotations

from collections.abc import Sequence

from det_jupyter.scheduler.reasons.clauses import (
    Story,
    be,
    free_of,
    what_is_free,
    what_starts_it,
    when,
    who_holds,
)
from det_jupyter.scheduler.reasons.devices import (
    disabled_only,
    held_on,
    occupied_only,
    stranger,
    strangers,
)
from det_jupyter.scheduler.reasons.never import all_agents, is_kept_away, values_to_ask
from det_jupyter.scheduler.reasons.possible import describe_agents, values_that_fit
from det_jupyter.scheduler.reasons.words import experiments, listed, numbers, shown
from det_jupyter.words import count


def tell(story: Story) -> str:
    """Return the sentence."""
    clauses = {
        "slots": _slots,
        "turn": _turn,
        "max_slots": _max_slots,
        "occupied": _withheld_now,
        "disabled": _withheld_now,
        "agent_gone": _withheld_now,
        "no_agent": _no_agent,
        "impossible": _impossible,
    }[story.causes[-1]](story)
    return "; ".join([f"needs {_need(story)}", *(clause for clause in clauses if clause)])


def _need(story: Story) -> str:
    request = story.situation.request
    if request.slots == 0:
        return "a place for a trial without slots"
    need = count(request.slots, "slot")
    if not story.situation.is_possible():
        return need
    if story.situation.spans_agents:
        sizes = {room.size for room in story.situation.nearest}
        whole = f"{count(len(story.situation.nearest), 'whole agent')} of {sizes.pop()}"
        return f"{need}, {whole}" if not sizes else f"{need} of whole agents"
    if len(story.situation.survey.rooms) > 1 and request.slots > 1:
        return f"{need} on one agent"
    return need


def _slots(story: Story) -> Sequence[str]:
    return what_is_free(story), who_holds(story), _withheld(story), what_starts_it(story)


def _withheld(story: Story) -> str:
    """Mention slots that are not given out, on the nearest agent that has any."""
    situation = story.situation
    if situation.request.slots == 0:
        return ""
    for room in story.situation.nearest:
        if parts := _kept_from_use(story, room.agent.id):
            return " and ".join(parts)
    # An agent may be too small only because of them.
    smaller = [
        room
        for room in situation.allowed
        if 0 < room.size < situation.request.slots or (not room.size and not room.used)
    ]
    for room in sorted(smaller, key=lambda room: -room.free):
        if parts := _kept_from_use(story, room.agent.id):
            agent = shown(room.agent.id)
            return f"of agent {agent} {free_of([room])}, {' and '.join(parts)}"
    return ""


def _kept_from_use(story: Story, agent_id: str) -> list[str]:
    withheld = story.situation.survey.withheld.get(agent_id)
    parts = []
    if withheld and (disabled := disabled_only(withheld)):
        parts.append(f"{len(disabled)} more {be(len(disabled))} disabled")
    if withheld and (occupied := occupied_only(withheld)):
        users = {p.pid: p for slot in occupied for p in withheld.occupied[slot]}
        first = stranger(next(iter(users.values())), story.situation.survey.facts.now)
        rest, num = len(users) - 1, len(occupied)
        more = f" and {rest} more {'process' if rest == 1 else 'processes'}" if rest else ""
        parts.append(f"{num} more {be(num)} used by {first}{more}")
    return parts


def _turn(story: Story) -> Sequence[str]:
    situation = story.situation
    who, are = _ahead(story)
    if situation.fits():
        free = free_of(situation.allowed) if situation.request.slots else "there is room"
        return f"{free}, but kept for {who}, which {are} ahead of it", _after(story)
    return what_is_free(story), f"{who} {are} ahead of it", _who_else(story), _after(story)


def _ahead(story: Story) -> tuple[str, str]:
    """Return who is ahead, and the verb for so many."""
    situation, pool = story.situation, story.situation.survey.pool
    if not situation.is_complete:
        num = pool.position(situation.request.id)
        return count(num, "trial"), be(num)
    others = [other for other in situation.in_the_way if other.group != situation.request.group]
    mates = len(story.situation.in_the_way) - len(others)
    parts = []
    if len(others) == 1:
        facts, other = situation.survey.facts, others[0]
        trial, name = facts.trial_of(other.id), shown(facts.title_of(other.group).name)
        parts.append(f"experiment {other.group} “{name}” (trial {trial}, needs {other.slots})")
    elif others:
        groups = list(dict.fromkeys(other.group for other in others))
        parts.append(f"{len(others)} trials ({experiments(groups)})")
    if mates:
        parts.append(f"{count(mates, 'trial')} of its own experiment")
    return " and ".join(parts), be(len(others) + mates)


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
    situation, them = story.situation, "them"
    if story.reliefs:
        return what_starts_it(story, is_named=False)
    if len(situation.in_the_way) == 1 and situation.is_complete:
        group = situation.in_the_way[0].group
        them = "that one" if group == situation.request.group else f"experiment {group}"
    return f"starts after {them}{when(story)}"


def _max_slots(story: Story) -> Sequence[str]:
    group, pool = story.situation.group, story.situation.survey.pool
    held = pool.held(group.id)
    rule = f"its experiment holds {held} and may hold {group.max_slots} (max_slots)"
    if story.situation.request.slots > (group.max_slots or 0):
        return rule, "can run when max_slots is raised"
    own = [relief for relief in story.reliefs if relief.group_id == group.id]
    enough = "one of its trials ends" if own else "enough of its trials have ended"
    return rule, f"starts when {enough}{when(story)}"


def _withheld_now(story: Story) -> Sequence[str]:
    """Say what keeps slots from use, and all that has to be put right."""
    tellers = {"disabled": _disabled, "occupied": _occupied, "agent_gone": _agent_gone}
    clauses: list[str] = []
    ends: list[str] = []
    for cause in story.causes:
        *some, end = tellers[cause](story)
        clauses += some
        ends.append(end)
    return *clauses, f"can run when {listed(ends)}"


def _it(story: Story, noun: str, number: int) -> str:
    """Return a pronoun, or the noun where a pronoun could mean several things."""
    if len(story.causes) == 1:
        return "it" if number == 1 else "they"
    return f"the {noun}" if number == 1 else f"the {noun}s"


def _occupied(story: Story) -> Sequence[str]:
    situation, users = story.situation, strangers(story.situation)
    occupied = {name: one.occupied for name, one in situation.withheld if one.occupied}
    whole = [a for a in all_agents(situation) if len(occupied) > 1 or a.id in occupied]
    total = count(sum(len(agent.slots) for agent in whole), "slot")
    names = listed([stranger(user, situation.survey.facts.now) for user in users], most=2)
    where = f" of agent {shown(min(occupied))}" if len(occupied) == 1 else ""
    num = sum(len(slots) for slots in occupied.values())
    is_one = len(users) == 1
    return (
        f"{names} {'uses' if is_one else 'use'} {num} of {total}{where}",
        f"{_it(story, 'program', len(users))} {'ends' if is_one else 'end'}",
    )


def _given_out(story: Story) -> str:
    given = sum(room.size for room in story.situation.allowed)
    total = sum(len(agent.slots) for agent in all_agents(story.situation))
    return f"{given or 'none'} of {count(total, 'slot')} may be given out"


def _disabled(story: Story) -> Sequence[str]:
    situation, rooms = story.situation, story.situation.survey.rooms
    agents = sorted(
        (name, sorted(one.disabled)) for name, one in situation.withheld if one.disabled
    )
    num = sum(len(slots) for _, slots in agents)
    who = _still_there(story)
    still = f"{who} still {'runs' if ' and ' not in who else 'run'} there" if who else ""
    if len(agents) == 1 and who:
        agent_id, slots = agents[0]
        held = len(held_on(situation, agent_id).intersection(slots))
        on = "" if held == num else f" on {held} of them"
        return (
            "" if held == num and not rooms[agent_id].size else _given_out(story),
            f"{count(num, 'slot')} of agent {shown(agent_id)} {be(num)} draining: {still}{on}",
            f"{_it(story, 'slot', num)} {be(num)} enabled",
        )
    parts = [
        f"slot{'s' if len(slots) > 1 else ''} {numbers(slots)} of agent {shown(agent_id)}"
        for agent_id, slots in agents
    ]
    several = "enough of them" if len(story.causes) == 1 else "enough of the slots"
    return (
        _given_out(story),
        f"{listed(parts, most=2)} {be(num)} disabled",
        still,
        f"{_it(story, 'slot', num) if num == 1 else several} {be(num)} enabled",
    )


def _still_there(story: Story) -> str:
    """Name who still runs on slots that are disabled."""
    names = [
        f"experiment {holder.experiment_id} “{shown(holder.experiment_name)}”"
        for holder in story.holders
    ]
    return listed(names, most=2)


def _no_agent(story: Story) -> Sequence[str]:
    pool = shown(story.situation.survey.facts.pool_name)
    return f"no agent of pool {pool} is connected", "starts when one comes that has them"


def _agent_gone(story: Story) -> Sequence[str]:
    gone = story.situation.survey.gone
    num, names = len(gone), [f"{shown(a.id)} with {count(len(a.slots), 'slot')}" for a in gone]
    return (
        f"agent{'s' if num > 1 else ''} {listed(names)} {be(num)} not connected",
        f"{_it(story, 'agent', num)} {be(num)} back",
    )


def _impossible(story: Story) -> Sequence[str]:
    situation = story.situation
    agents, request = all_agents(situation), situation.request
    allowed = [agent for agent in agents if agent.id not in request.blocked]
    pool = shown(situation.survey.facts.pool_name)
    avoids, other = "", ""
    if len(allowed) < len(agents):
        blocked = sorted(shown(agent.id) for agent in agents if agent.id in request.blocked)
        noun = "agent" if len(blocked) == 1 else "agents"
        avoids = f"it avoids {noun} {listed(blocked)} because of a log policy"
        other = " other"
    again = "can run there again after a kill and a continue" if is_kept_away(situation) else ""
    if not allowed:
        return avoids, f"pool {pool} has no{other} agent", again
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
        f"{again}, or {advice}" if again else advice,
    )
