"""Why a trial waits for slots: as data, and in one sentence that people are glad to read.

    needs 4 slots                                              what it asks for
    2 of 8 are free                                            what is there
    experiment 3 “resnet” (trial 7, priority 42, since 14:02,
        notebook eda.ipynb) holds 6                            who has it
    starts when it ends or is paused, about 14:20
        (14:10 to 14:40)                                       what would start it, and when

The sentence names the nearest way out; the data has all of it.
"""

from __future__ import annotations

from det_jupyter.scheduler.deciding.pool import Pool
from det_jupyter.scheduler.reasons.causes import cause_of, who_is_in_the_way
from det_jupyter.scheduler.reasons.clauses import Story
from det_jupyter.scheduler.reasons.facts import Facts
from det_jupyter.scheduler.reasons.forecast import expect_start
from det_jupyter.scheduler.reasons.holders import draining, holders_on, strangers
from det_jupyter.scheduler.reasons.never import make_possible
from det_jupyter.scheduler.reasons.reliefs import reliefs
from det_jupyter.scheduler.reasons.remedies import find_remedies
from det_jupyter.scheduler.reasons.sentences import tell
from det_jupyter.scheduler.reasons.situation import situation_of
from det_jupyter.scheduler.reasons.survey import Survey, survey
from det_jupyter.scheduler.reasons.whatif import cleared, nearest_rooms
from det_jupyter.wire import Reason

_NAMED = 20  # experiments ahead, processes


def why_waiting(
    pool: Pool, request_id: str, facts: Facts, gathered: Survey | None = None
) -> Reason:
    """Return why a request waits; it must be waiting in the pool.

    Args:
        pool: After a pass.
        request_id: Who waits.
        facts: What the pool does not know.
        gathered: `survey(pool, facts)`, if that was made for this version of the pool already.
    """
    gathered = gathered or survey(pool, facts)
    situation = situation_of(gathered, request_id)
    base = cleared(situation)
    nearest = nearest_rooms(base)
    rooms = [situation.rooms[room.agent.id] for room in nearest]
    in_the_way = who_is_in_the_way(situation, rooms)
    cause = cause_of(situation, in_the_way)
    is_never = not situation.is_possible()
    found = [] if is_never else reliefs(base, nearest)
    expected, why_unknown = None, "it cannot run as things are"
    if not is_never:
        expected, why_unknown = expect_start(base, nearest)
    story = Story(
        situation=situation,
        cause=cause,
        rooms=tuple(rooms),
        in_the_way=tuple(in_the_way),
        reliefs=tuple(found),
        holders=tuple(holders_on(situation, draining(situation) if is_never else rooms, found)),
        asked=tuple(base.ended),
        expected=expected,
    )
    remedies = (
        make_possible(situation, cause)
        if is_never
        else find_remedies(situation, base, rooms, found)
    )
    return Reason(
        trial_id=facts.trial_of(request_id),
        cause=cause,
        sentence=tell(story),
        pool=facts.pool_name,
        slots=situation.request.slots,
        free=sum(room.free for room in situation.allowed()),
        total=sum(room.size for room in situation.allowed()),
        holders=list(story.holders),
        processes=strangers(situation)[:_NAMED],
        position=pool.position(request_id),
        ahead=list(dict.fromkeys(other.group for other in in_the_way))[:_NAMED],
        remedies=remedies,
        expected=expected,
        why_unknown=why_unknown,
    )
