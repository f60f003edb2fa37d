"""What would start a request as another one: of fewer slots, or in another pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.reasons.possible import Capacity
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Line, room_of
from det_jupyter.scheduler.reasons.words import shown
from det_jupyter.wire import Remedy

_AGENTS = 64  # of another pool that are looked at
_POOLS = 8


def fewer_slots(situation: Situation) -> Iterator[Remedy]:
    """Find the largest divisor that fits: a batch that n slots share, they can share too."""
    need = situation.request.slots
    for value in range(need // 2, 0, -1):
        if need % value == 0 and starts_anew(situation, value):
            yield ask_slots(situation, value, "which starts at once")
            return


def starts_anew(situation: Situation, value: int) -> bool:
    """Return whether the experiment, killed and submitted with another size, starts at once.

    Between the two all others that wait have their turn. Only one that holds no slots is worth
    killing.
    """
    survey, own = situation.survey, situation.group
    if survey.pool.held(own.id) or not survey.is_whole_queue:
        return False
    if own.max_slots is not None and own.max_slots < value:
        return False
    then = replace(
        situation,
        request=replace(situation.request, slots=value, blocked=frozenset()),
        ahead=Line(other for other in survey.queue if other.group != own.id),
        is_complete=True,
        allowance=None,
        looked_at=None,
    )
    return then.starts()


def ask_slots(situation: Situation, value: int, effect: str) -> Remedy:
    """Return the advice to submit it again with another number of slots."""
    return Remedy(
        verb="kill_and_submit",
        target=[situation.request.group],
        values={"slots_per_trial": value},
        text=(
            f"instead: kill it and submit it again with resources.slots_per_trial {value}, "
            f"{effect}"
        ),
    )


def other_pool(situation: Situation) -> Iterator[Remedy]:
    """Yield another pool where nobody waits and the request would start at once."""
    for name, pool in list(situation.survey.facts.other_pools().items())[:_POOLS]:
        if _starts_in(situation, pool):
            yield Remedy(
                verb="set",
                target=[situation.request.group],
                values={"pool": name},
                text=f"move its experiment to pool {shown(name)}, where there is room",
            )
            return


def _starts_in(situation: Situation, pool: Pool) -> bool:
    if pool.num_waiting or not pool.agents:
        return False
    agents = list(pool.agents.values())[:_AGENTS]
    own, most = situation.request.group, situation.group.max_slots
    mates = Line(mate for mate in situation.ahead.requests if mate.group == own)
    then = replace(
        situation,
        survey=replace(situation.survey, pool=pool),
        rooms={agent.id: room_of(pool, agent) for agent in agents},
        capacity=Capacity(pool.agents.values(), pool.rules),
        ahead=mates,
        allowance=None if most is None else most - pool.held(own),
        looked_at=None,
    )
    return then.starts()
