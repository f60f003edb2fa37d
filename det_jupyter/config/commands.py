"""How long a command trains: as its script says; the configuration need not.

Determined's files of 0.38 give no `max_length`: there no search says how long to train. A command
trains as long as it likes here too; a length is needed only by one that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from det_jupyter.entrypoints import Command, Program, parse_entrypoint
from det_jupyter.lengths import UNITS

_LENGTH = {"batches": 1}  # as Determined's tutorial has it for scripts that ignore their length
_FULL_LENGTH = ("single", "random", "grid")
_HALVING = ("async_halving", "adaptive_asha")


def with_length(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with a length for a command that is given none."""
    if not _lacks_length(document):
        return dict(document)
    return {**document, "searcher": {**document["searcher"], "max_length": _LENGTH}}


def find_no_length(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield a notice if a command is given no length, as `path: sentence.`"""
    if _lacks_length(document):
        yield (
            "searcher.max_length: not given: the command trains as long as it likes; one that "
            "asks for its length (searcher.operations) gets 1 batch, and needs max_length."
        )


def _lacks_length(document: Mapping[str, Any]) -> bool:
    searcher = document.get("searcher")
    if not isinstance(searcher, Mapping) or searcher.get("max_length") is not None:
        return False
    if searcher.get("name") in _HALVING:
        is_open = searcher.get("max_time") and searcher.get("time_metric") not in (None, *UNITS)
    else:
        is_open = searcher.get("name") in _FULL_LENGTH
    return bool(is_open) and _is_command(document.get("entrypoint"))


def _is_command(entrypoint: Any) -> bool:
    words = entrypoint if isinstance(entrypoint, list) else [entrypoint]
    if not words or not all(isinstance(word, str) for word in words):
        return False
    try:
        return isinstance(parse_entrypoint(entrypoint), Program | Command)
    except ValueError:
        return False
