"""Search: which trials there are, how far each trains, and when it is over. Pure."""

from det_jupyter.searcher.method import (
    Action,
    AskPruner,
    AskSampler,
    Close,
    ConsultingMethod,
    Create,
    ExitReason,
    SearchMethod,
    Shutdown,
    TrainTo,
)
from det_jupyter.searcher.search import Search

__all__ = [
    "Action",
    "AskPruner",
    "AskSampler",
    "Close",
    "ConsultingMethod",
    "Create",
    "ExitReason",
    "Search",
    "SearchMethod",
    "Shutdown",
    "TrainTo",
]
