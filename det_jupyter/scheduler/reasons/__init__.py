"""Why a trial waits for slots, and what would start it. Pure."""

from det_jupyter.scheduler.reasons.facts import Facts, Title, Withheld
from det_jupyter.scheduler.reasons.wait import PoolSurvey
from det_jupyter.scheduler.reasons.why import why_waiting

__all__ = ["Facts", "PoolSurvey", "Title", "Withheld", "why_waiting"]
