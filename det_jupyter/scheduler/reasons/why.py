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
from det_jupyter.scheduler.reasons.causes import cause_of
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
    situation = situation_of(gathered or survey(pool, facts), request_id)
    cause = cause_of(situation)
    if situation.is_possible():
        found = reliefs(situation)
        expected, why_unknown = expect_start(situation)
        remedies = find_remedies(situation, found)
        rooms = situation.nearest
    else:
        found, expected, why_unknown = [], None, "it cannot run as things are"
        remedies = make_possible(situation, cause)
        rooms = draining(situation)
    story = Story(
        situation=situation,
        cause=cause,
        reliefs=tuple(found),
        holders=tuple(holders_on(situation, rooms, found)),
        expected=expected,
    )
    return Reason(
        trial_id=facts.trial_of(request_id),
        cause=cause,
        sentence=tell(story),
        pool=facts.pool_name,
        slots=situation.request.slots,
        free=sum(room.free for room in situation.allowed),
        total=sum(room.size for room in situation.allowed),
        holders=list(story.holders),
        processes=strangers(situation)[:_NAMED],
        position=situation.position,
        ahead=list(dict.fromkeys(other.group for other in situation.in_the_way))[:_NAMED],
        remedies=remedies,
        expected=expected,
        why_unknown=why_unknown,
    )
