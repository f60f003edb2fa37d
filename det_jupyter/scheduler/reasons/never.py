"""What would let a pool run a request that it cannot run as it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from det_jupyter.scheduler.deciding.order import shape_of
from det_jupyter.scheduler.reasons.causes import Cause, all_agents
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.elsewhere import ask_slots, other_pool, starts_anew
from det_jupyter.scheduler.reasons.possible import nearest_values, values_that_fit
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.whatif import Change
from det_jupyter.scheduler.reasons.words import listed, shown
from det_jupyter.wire import Remedy

_MOST = 4


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
    freely = shape_of(situation.request)._replace(blocked=frozenset())
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
