"""What would let a pool run a request that it cannot run as it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from det_jupyter.scheduler.possible import nearest_values, values_that_fit
from det_jupyter.scheduler.reasons.causes import Cause, all_agents
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.remedies import ask_slots
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.whatif import with_agents
from det_jupyter.scheduler.reasons_words import listed, shown
from det_jupyter.wire import Remedy

_MOST = 4


def make_possible(situation: Situation, cause: Cause) -> list[Remedy]:
    """Return what would start the request, or would at least let it wait for its turn."""
    remedies: Iterator[Remedy]
    if cause in ("disabled", "occupied"):
        remedies = _devices(situation)
    elif cause == "agent_gone":
        remedies = _agents(situation)
    elif cause == "no_agent":
        remedies = iter([Remedy(kind="add_agent", sentence="start an agent, or reconnect one")])
    else:
        remedies = _values(situation)
    return list(islice(remedies, _MOST))


def _devices(situation: Situation) -> Iterator[Remedy]:
    at_once = list(device_remedies(situation))
    kinds = {remedy.kind for remedy in at_once}
    yield from at_once
    for remedy in device_remedies(situation, Situation.is_possible):
        if remedy.kind not in kinds:
            yield remedy.model_copy(update={"sentence": f"{remedy.sentence}; {_THEN}"})


_THEN = "then it waits for its turn"


def _agents(situation: Situation) -> Iterator[Remedy]:
    gone = situation.survey.gone
    for agent in gone:
        then = with_agents(situation, [agent])
        if then.is_possible():
            effect = "" if then.starts() else f"; {_THEN}"
            yield Remedy(
                kind="add_agent",
                sentence=f"reconnect agent {shown(agent.id)}{effect}",
                agent_id=agent.id,
            )
            return
    then = with_agents(situation, gone)
    if then.is_possible():
        names = listed([shown(agent.id) for agent in gone])
        effect = "" if then.starts() else f"; {_THEN}"
        yield Remedy(kind="add_agent", sentence=f"reconnect agents {names}{effect}")


def _values(situation: Situation) -> Iterator[Remedy]:
    for value in values_to_ask(situation):
        then = replace(situation, request=replace(situation.request, slots=value))
        yield ask_slots(value, "starts at once" if then.starts() else "can run")


def values_to_ask(situation: Situation) -> list[int]:
    """Return the nearest sizes that the pool could run, those gone and withheld counted."""
    request = situation.request
    values = values_that_fit(
        [agent for agent in all_agents(situation) if agent.id not in request.blocked],
        situation.survey.pool.rules,
        request.is_single_agent,
    )
    return nearest_values(request.slots, values)
