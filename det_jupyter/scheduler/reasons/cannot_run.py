"""Why a pool cannot run a request as things are, in one sentence; and the remedies.

If a remedy does not start the request at once, its text adds that the request then waits for its
turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from det_jupyter.contract.messages import HolderView, Remedy
from det_jupyter.contract.values.text import count, experiment_title, listed, shortened
from det_jupyter.scheduler.reasons.devices import device_remedies, foreign_processes, held_slots
from det_jupyter.scheduler.reasons.remedies import MOST, ask_slots, other_pool, starts_anew
from det_jupyter.scheduler.reasons.sizes import describe_agents, nearest_values
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.whatif import PoolChange
from det_jupyter.scheduler.reasons.wording import (
    claims_text,
    named,
    noun,
    numbers,
    process_text,
    verb,
)

_THEN = "then it waits for its turn"

Clauses = Sequence[str]  # the last one contains what has to change


def why_cannot_run(wait: WaitingRequest, holders: Sequence[HolderView]) -> str:
    """Return why the pool cannot run a request, and everything that has to change.

    Args:
        wait: The request and its pool.
        holders: The gangs that still hold slots which are disabled.
    """
    slots = count(wait.request.slots, "slot")
    need = slots if wait.request.slots else "a place for a trial without slots"
    clauses = {
        "disabled": _disabled, "occupied": _occupied, "lost": _lost, "agent_gone": _gone,
        "no_agent": _no_agent, "impossible": _impossible,
    }  # fmt: skip
    found = [clauses[cause](wait, holders) for cause in wait.causes]
    facts = [clause for *some, _ in found for clause in some]
    end = listed((end for *_, end in found), most=3)
    if wait.causes[-1] not in ("no_agent", "impossible"):
        end = f"can run when {end}"
    return "; ".join(filter(None, [f"needs {need}", *facts, end]))


def _no_agent(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    pool = shortened(wait.facts.pool_name)
    return f"no agent of pool {pool} is connected", "starts when one comes that has them"


def _gone(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    gone = wait.survey.gone
    names = [f"{shortened(agent.id)} with {count(len(agent.slots), 'slot')}" for agent in gone]
    are = verb(len(gone), "is")
    times = [wait.left_at(agent) for agent in gone]
    if len(set(times)) == 1 and times[0]:
        what = f"{named('agent', names)} left at {times[0]}"
    else:
        since = [f"{name} (left at {at})" if at else name
                 for name, at in zip(names, times, strict=True)]  # fmt: skip
        what = f"{named('agent', since)} {are} not connected"
    return what, f"{_it(wait, 'agent', len(gone))} {are} back"


def _occupied(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    found = foreign_processes(wait)
    users = [one for one in found if not one.claim]
    agents = wait.all_agents()
    claims = [
        text
        for name, one in sorted(wait.withheld.items())
        for text in claims_text(
            one.occupied,
            wait.facts.now,
            own_user=wait.facts.own_user,
            where=f" of agent {shortened(name)}" if len(agents) > 1 else "",
        )
    ]
    if not users:
        if all(one.claim == "next" for one in found):
            return *claims, "it is its turn"
        return *claims, "it ends" if len(claims) == 1 else "they end"
    occupied = {
        name: slots
        for name, one in wait.withheld.items()
        if (slots := [slot for slot, used in one.occupied.items() if not used[0].claim])
    }
    whole = [agent for agent in agents if len(occupied) > 1 or agent.id in occupied]
    total = count(sum(len(agent.slots) for agent in whole), "slot")
    who = listed((process_text(user, wait.facts.now) for user in users), most=2)
    where = f" of agent {shortened(min(occupied))}" if len(occupied) == 1 else ""
    num = sum(map(len, occupied.values()))
    ends = f"{_it(wait, 'program', len(users))} {verb(len(users), 'ends')}"
    return (
        *claims,
        f"{who} {verb(len(users), 'uses')} {num} of {total}{where}",
        "they end" if claims else ends,
    )


def _lost(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    lost = [
        f"{fault.sentence(wait.facts.now, wait.facts.zone)} on agent {shortened(name)}"
        for name, one in sorted(wait.withheld.items())
        for fault in one.lost.values()
    ]
    it, are = _it(wait, "GPU", len(lost)), verb(len(lost), "is")
    return listed(lost, most=2), f"{it} {are} reset, or the computer restarted"


def _disabled(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    disabled = {
        name: sorted(one.disabled) for name, one in sorted(wait.withheld.items()) if one.disabled
    }
    num = sum(map(len, disabled.values()))
    are = verb(num, "is")
    given = sum(seats.size for seats in wait.allowed)
    total = count(sum(len(agent.slots) for agent in wait.all_agents()), "slot")
    given_out = f"{given or 'none'} of {total} may be given out"
    names = [experiment_title(holder.experiment_id, holder.experiment_name) for holder in holders]
    runs = f"{listed(names, most=2)} still {verb(len(names), 'runs')} there" if names else ""
    if len(disabled) == 1 and names:
        [(agent_id, slots)] = disabled.items()
        seats = wait.survey.board.seats[agent_id]
        held = len(held_slots(seats).intersection(slots))
        on = "" if held == num else f" on {held} of them"
        return (
            given_out if held < num or seats.size else "",
            f"{count(num, 'slot')} of agent {shortened(agent_id)} {are} draining: {runs}{on}",
            f"{_it(wait, 'slot', num)} {are} enabled",
        )
    parts = [
        f"{noun(len(slots), 'slot')} {numbers(slots)} of agent {shortened(agent_id)}"
        for agent_id, slots in disabled.items()
    ]
    several = "enough of them" if len(wait.causes) == 1 else "enough of the slots"
    which = _it(wait, "slot", num) if num == 1 else several
    return given_out, f"{listed(parts, most=2)} {are} disabled", runs, f"{which} {are} enabled"


def _it(wait: WaitingRequest, word: str, number: int) -> str:
    """Return a pronoun, or the noun where a pronoun could mean several things."""
    if len(wait.causes) == 1:
        return "it" if number == 1 else "they"
    return f"the {noun(number, word)}"


def _impossible(wait: WaitingRequest, holders: Sequence[HolderView]) -> Clauses:
    request, pool, agents = wait.request, shortened(wait.facts.pool_name), wait.all_agents()
    allowed = [agent for agent in agents if agent.id not in request.blocked]
    blocked = sorted(shortened(agent.id) for agent in agents if agent.id in request.blocked)
    avoids = f"it avoids {named('agent', blocked)} because of a log policy" if blocked else ""
    other = " other" if blocked else ""
    again = "can run there again after a kill and a continue" if wait.is_kept_away else ""
    if not allowed:
        return avoids, f"pool {pool} has no{other} agent", again
    if request.slots == 0:
        return avoids, f"no{other} agent of pool {pool} takes trials without slots", "ask for 1"
    near = listed(nearest_values(request.slots, wait.sizes), most=3, last="or")
    advice = f"ask for {near} instead of {request.slots}" if near else "add slots"
    on_one = " on one agent" if request.is_single_agent else ""
    return (
        avoids,
        f"pool {pool} has {describe_agents(allowed)}{' besides' if avoids else ''}",
        f"values that can run{on_one}: {numbers(wait.sizes) or 'none but 0'}",
        f"{again}, or {advice}" if again else advice,
    )


def make_possible(wait: WaitingRequest) -> list[Remedy]:
    """Return remedies that start the request, or at least let it wait for its turn."""
    cause, last = wait.causes[-1], iter(list[Remedy]())
    if cause == "no_agent":
        first = iter([Remedy(verb="add_agent", text="start an agent, or reconnect one")])
    elif cause == "agent_gone":
        first = _reconnect(wait)
    elif cause == "impossible":
        first, last = _again(wait), _other_sizes(wait)
    else:
        first = _give_out(wait)
    return list(islice(chain(first, other_pool(wait), last), MOST))


def _reconnect(wait: WaitingRequest) -> Iterator[Remedy]:
    gone = wait.survey.gone
    for agents in (*([agent] for agent in gone), gone):
        if wait.is_possible_with(agents):
            effect = "" if wait.starts(PoolChange(agents=tuple(agents))) else f"; {_THEN}"
            names = named("agent", [shortened(agent.id) for agent in agents])
            target: list[int | str] = [agent.id for agent in agents]
            yield Remedy(verb="add_agent", target=target, text=f"reconnect {names}{effect}")
            return


def _again(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield the remedy for a trial that avoids agents because of a log policy."""
    if wait.is_kept_away:
        text = f"kill its experiment and continue it: it may run there again; {_THEN}"
        yield Remedy(verb="kill_and_continue", target=[wait.group.id], text=text)


def _other_sizes(wait: WaitingRequest) -> Iterator[Remedy]:
    for value in nearest_values(wait.request.slots, wait.sizes):
        is_at_once = starts_anew(wait, value)
        effect = "which starts at once" if is_at_once else f"which can run; {_THEN}"
        yield ask_slots(wait, value, effect)


def _give_out(wait: WaitingRequest) -> Iterator[Remedy]:
    at_once = list(device_remedies(wait))
    yield from at_once
    for remedy in device_remedies(wait, wait.is_possible_with):
        if remedy.verb not in {one.verb for one in at_once}:
            yield remedy.model_copy(update={"text": f"{remedy.text}; {_THEN}"})
