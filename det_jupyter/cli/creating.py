"""`det experiment create`: a configuration and a folder become an experiment."""

from __future__ import annotations

from det_jupyter.errors import DetError
from det_jupyter.verbs.grammar import Call


def create(call: Call) -> str:
    """Submit an experiment.

    Raises:
        DetError: Always, for now.
    """
    raise DetError("not yet")
