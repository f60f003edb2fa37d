"""Which kind of reason it is that a request waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from det_jupyter.scheduler.model import AgentSlots
from det_jupyter.scheduler.reasons.devices import disabled_only, occupied_only
from det_jupyter.scheduler.reasons.situation import Situation

Cause = Literal[
    "slots", "turn", "max_slots", "occupied", "disabled", "no_agent", "agent_gone", "impossible"
]


def cause_of(situation: Situation) -> Cause:
    """Return why a request waits."""
    if not situation.is_possible():
        return _why_impossible(situation)
    allowance, need = situation.allowance, situation.request.slots
    if need and allowance is not None and allowance < need:
        return "max_slots"
    return "turn" if situation.in_the_way or not situation.is_complete else "slots"


def _why_impossible(situation: Situation) -> Cause:
    survey = situation.survey
    if not situation.survey.rooms and not survey.gone:
        return "no_agent"
    enabled, freed = _agents(situation, enable=True), _agents(situation, free=True)
    if situation.is_possible_with(enabled):
        return "disabled"
    if situation.is_possible_with(freed):
        return "occupied"
    if situation.is_possible_with(survey.gone):
        return "agent_gone"
    everything = [*_agents(situation, enable=True, free=True), *survey.gone]
    if situation.is_possible_with(everything):
        # Several of these at once; named is the one that takes longest to put right.
        return "agent_gone" if survey.gone else "occupied"
    return "impossible"


def _agents(situation: Situation, *, enable: bool = False, free: bool = False) -> list[AgentSlots]:
    """Return the connected agents with more of their slots given out."""
    agents = []
    for agent_id, withheld in situation.survey.withheld.items():
        if agent_id not in situation.survey.rooms:
            continue
        agent = situation.survey.rooms[agent_id].agent
        more = {*agent.slots}
        if enable and free:
            more |= {*withheld.disabled, *withheld.occupied}
        elif enable:
            more |= {*disabled_only(withheld)}
        else:
            more |= {*occupied_only(withheld)}
        is_open = agent.is_open or (enable and bool(withheld.disabled))
        agents.append(replace(agent, slots=tuple(sorted(more)), is_open=is_open))
    return agents


def all_agents(situation: Situation) -> list[AgentSlots]:
    """Return every agent of the pool as it could be, those gone included."""
    whole = {agent.id: agent for agent in _agents(situation, enable=True, free=True)}
    here = [whole.get(room.agent.id, room.agent) for room in situation.survey.rooms.values()]
    return [*here, *(a for a in situation.survey.gone if a.id not in situation.survey.rooms)]
