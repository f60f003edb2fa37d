"""Search methods: which trials there are, and when a search is over. Pure."""

from det_jupyter.searcher.method import (
    Action,
    Create,
    ExitReason,
    SearchMethod,
    Shutdown,
    Stop,
    make_search_method,
)
from det_jupyter.searcher.single import Single

__all__ = [
    "Action",
    "Create",
    "ExitReason",
    "SearchMethod",
    "Shutdown",
    "Single",
    "Stop",
    "make_search_method",
]
