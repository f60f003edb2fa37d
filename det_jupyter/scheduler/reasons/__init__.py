"""Why a trial waits for slots, and what would start it. Pure."""

from det_jupyter.scheduler.reasons.facts import Facts, Title, Withheld
from det_jupyter.scheduler.reasons.wait import Survey
from det_jupyter.scheduler.reasons.why import why_waiting

__all__ = ["Facts", "Survey", "Title", "Withheld", "why_waiting"]
