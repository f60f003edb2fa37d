"""Why a pool cannot run a request as it is, and what would let it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import chain, combinations, islice
from typing import Literal

from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.elsewhere import ask_slots, other_pool, starts_anew
from det_jupyter.scheduler.reasons.possible import nearest_values, values_that_fit
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.whatif import Change
from det_jupyter.scheduler.reasons.words import listed, shown
from det_jupyter.wire import Remedy

_MOST = 4

Cause = Literal[
    "slots", "turn", "max_slots", "occupied", "disabled", "no_agent", "agent_gone", "impossible"
]
_WITHHELD: tuple[Cause, ...] = ("disabled", "occupied", "agent_gone")  # quickly put right first


def why_impossible(situation: Situation) -> tuple[Cause, ...]:
    """Return why a pool cannot run the request: the least that would all have to be put right."""
    if not situation.survey.rooms and not situation.survey.gone:
        return ("no_agent",)
    for num in range(1, len(_WITHHELD) + 1):
        for causes in combinations(_WITHHELD, num):
            if situation.is_possible_with(_put_right(situation, causes)):
                return causes
    return ("impossible",)


def _put_right(situation: Situation, causes: Collection[Cause]) -> list[AgentSlots]:
    """Return the agents that offer more if these causes are put right."""
    agents, rooms = [], situation.survey.rooms
    enable, free = "disabled" in causes, "occupied" in causes
    for agent_id, withheld in situation.survey.withheld.items():
        if agent_id in rooms:
            left = {*(() if enable else withheld.disabled), *(() if free else withheld.occupied)}
            more = {*withheld.disabled, *withheld.occupied} - left
            agent = rooms[agent_id].agent
            slots = tuple(sorted({*agent.slots, *more}))
            is_open = agent.is_open or (enable and bool(withheld.disabled))
            agents.append(replace(agent, slots=slots, is_open=is_open))
    return [*agents, *situation.survey.gone] if "agent_gone" in causes else agents


def all_agents(situation: Situation) -> list[AgentSlots]:
    """Return every agent of the pool as it could be, those gone included."""
    rooms = situation.survey.rooms
    whole = {agent.id: agent for agent in _put_right(situation, _WITHHELD[:2])}
    here = [whole.get(room.agent.id, room.agent) for room in rooms.values()]
    return [*here, *(agent for agent in situation.survey.gone if agent.id not in rooms)]


def make_possible(situation: Situation, cause: Cause) -> list[Remedy]:
    """Return what would start the request, or would at least let it wait for its turn."""
    remedies: Iterator[Remedy]
    if cause in ("disabled", "occupied"):
        remedies = chain(_devices(situation), other_pool(situation))
    elif cause == "agent_gone":
        remedies = chain(_agents(situation), other_pool(situation))
    elif cause == "no_agent":
        start = Remedy(verb="add_agent", text="start an agent, or reconnect one")
        remedies = chain([start], other_pool(situation))
    else:
        remedies = chain(_again(situation), other_pool(situation), _values(situation))
    return list(islice(remedies, _MOST))


def _devices(situation: Situation) -> Iterator[Remedy]:
    at_once = list(device_remedies(situation))
    verbs = {remedy.verb for remedy in at_once}
    yield from at_once
    for remedy in device_remedies(situation, situation.is_possible_with):
        if remedy.verb not in verbs:
            yield remedy.model_copy(update={"text": f"{remedy.text}; {_THEN}"})


_THEN = "then it waits for its turn"


def _agents(situation: Situation) -> Iterator[Remedy]:
    gone = situation.survey.gone
    for agent in gone:
        if situation.is_possible_with([agent]):
            effect = "" if situation.starts(Change(agents=(agent,))) else f"; {_THEN}"
            yield Remedy(
                verb="add_agent",
                target=[agent.id],
                text=f"reconnect agent {shown(agent.id)}{effect}",
            )
            return
    if situation.is_possible_with(gone):
        names = listed([shown(agent.id) for agent in gone])
        effect = "" if situation.starts(Change(agents=tuple(gone))) else f"; {_THEN}"
        yield Remedy(
            verb="add_agent",
            target=[agent.id for agent in gone],
            text=f"reconnect agents {names}{effect}",
        )


def is_kept_away(situation: Situation) -> bool:
    """Return whether only agents that the trial avoids could run it."""
    freely = situation.request.shape._replace(blocked=frozenset())
    return not situation.is_possible() and situation.survey.capacity.can_run(freely)


def _again(situation: Situation) -> Iterator[Remedy]:
    """Yield how a trial comes back to agents that a log policy has it avoid."""
    if is_kept_away(situation):
        yield Remedy(
            verb="kill_and_continue",
            target=[situation.request.group],
            text=f"kill its experiment and continue it: it may run there again; {_THEN}",
        )


def _values(situation: Situation) -> Iterator[Remedy]:
    for value in values_to_ask(situation):
        effect = (
            "which starts at once" if starts_anew(situation, value) else f"which can run; {_THEN}"
        )
        yield ask_slots(situation, value, effect)


def values_to_ask(situation: Situation) -> list[int]:
    """Return the nearest sizes that the pool could run, those gone and withheld counted."""
    request = situation.request
    values = values_that_fit(
        [agent for agent in all_agents(situation) if agent.id not in request.blocked],
        situation.survey.pool.rules,
        request.is_single_agent,
    )
    return nearest_values(request.slots, values)
