"""Starters of agents: the protocol, the local starter, and the table of starters."""

from collections.abc import Callable, Mapping

from det_jupyter.engine.contract import Engine
from det_jupyter.engine.local import LocalEngine

# A new starter is one file beside local.py, and one line here; master/__main__.py chooses.
ENGINES: Mapping[str, Callable[[], Engine]] = {"local": LocalEngine}

__all__ = ["ENGINES", "Engine", "LocalEngine"]
