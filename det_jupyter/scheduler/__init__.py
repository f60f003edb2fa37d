"""Who gets which slots, and why the others wait. Pure."""

from det_jupyter.scheduler.explain import explain, find_impossibility
from det_jupyter.scheduler.fit import AgentSlots, Holder, Placement, Request, schedule

__all__ = [
    "AgentSlots",
    "Holder",
    "Placement",
    "Request",
    "explain",
    "find_impossibility",
    "schedule",
]
