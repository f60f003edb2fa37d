"""Runs the passes of the scheduler: an experiment that breaks one must not stop the others.

    a pass raises           the pools are made anew from the state, and there is another one
    that raises too         the experiment that it looked at is left out: if the pass works without
                            it, it is at fault, and is given up (giving_up.py)
    and without it, too     the experiment at fault is not known: nothing starts in this pool
                            until something changes there; then it is tried again

A failed pass has changed nothing but the pools, so there is nothing else to undo, and the event
that led to it is handled all the same.
"""

from __future__ import annotations

from det_jupyter.master.machine.core.events import NewsSetAside
from det_jupyter.master.machine.core.pools import Pools
from det_jupyter.master.machine.core.turn import Turn
from det_jupyter.master.machine.rules.giving_up import on_news_set_aside
from det_jupyter.master.machine.rules.placing import carry_out
from det_jupyter.scheduler.model import Decisions
from det_jupyter.words import error_line, printable

_LONGEST_REASON = 300  # characters


def place_waiting(turn: Turn) -> None:
    """Run a pass of every pool that has changed, and carry out what it decides."""
    for name in turn.pools.undecided():
        decisions = _decide(turn, name)
        carry_out(turn, turn.pools[name], decisions)


def _decide(turn: Turn, name: str) -> Decisions:
    is_new = False
    while True:
        try:
            decisions = turn.pools[name].decide(turn.now)
        except MemoryError:
            raise
        except Exception as error:
            turn.failures.append(error)
            culprit = _find_culprit(turn, name) if is_new else None
            turn.pools.redefine()
            what = printable(error_line(error))[:_LONGEST_REASON]
            if culprit is not None:
                what = f"a pass of the scheduler ({what})"
                news = NewsSetAside(experiment_id=culprit, what=what, is_fatal=True)
                on_news_set_aside(turn, news)
            elif is_new:
                turn.pools.stuck[name] = what
                return Decisions()
            is_new = True
        else:
            turn.pools.stuck.pop(name, None)
            return decisions


def _find_culprit(turn: Turn, name: str) -> int | None:
    """Return the experiment that the pass looked at, if one without it works."""
    request_id = turn.pools[name].looked_at
    if not request_id:
        return None
    experiment_id = turn.pools.trial_of(request_id).experiment_id
    pool = Pools(turn.state)[name]
    try:
        for request in pool.waiting():
            if request.group == experiment_id:
                pool.remove(request.id)
        pool.decide(turn.now)
    except MemoryError:
        raise
    except Exception:  # the failure that led here is the one to report
        return None
    return experiment_id
