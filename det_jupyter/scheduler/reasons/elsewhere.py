"""What would start a request as another one: of fewer slots, or in another pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.whatif import Change, WhatIf
from det_jupyter.scheduler.reasons.words import shown
from det_jupyter.wire import Remedy

_POOLS = 8
_LAST = 10**9  # the number of an experiment that comes after all others


def fewer_slots(situation: Situation) -> Iterator[Remedy]:
    """Find the largest divisor that fits: a batch that n slots share, they can share too."""
    need = situation.request.slots
    for value in range(need // 2, 0, -1):
        if need % value == 0 and starts_anew(situation, value):
            yield ask_slots(situation, value, "which starts at once")
            return


def starts_anew(situation: Situation, value: int) -> bool:
    """Return whether the experiment, killed and submitted with another size, starts at once.

    Only one that holds no slots is worth killing.
    """
    own = situation.group
    if situation.survey.pool.held(own.id):
        return False
    anew = replace(own, id=_LAST, position=float(_LAST))
    smaller = replace(
        situation.request, group=_LAST, slots=value, blocked=frozenset(), promised=()
    )
    killed, comes = Change(goes=(own.id,)), Change(groups=(anew,), requests=(smaller,))
    outcome = situation.survey.whatif.after(killed, comes)
    return smaller.id in outcome.started and smaller.id not in outcome.asked


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
    """Yield another pool where the request would start at once."""
    pool, own, facts = situation.survey.pool, situation.group, situation.survey.facts
    comes = Change(
        groups=(own,),
        requests=tuple(
            replace(other, promised=())
            for other in situation.survey.queue
            if other.group == own.id
        ),
    )
    if pool.held(own.id):
        return
    for name, other in list(facts.other_pools().items())[:_POOLS]:
        if situation.request.id in WhatIf(other, facts).after(comes).started:
            yield Remedy(
                verb="set",
                target=[own.id],
                values={"pool": name},
                text=f"move its experiment to pool {shown(name)}, where there is room",
            )
            return
