"""Starters of agents: the protocol, the local starter, and the table of starters."""

from det_jupyter.engine.contract import Engine
from det_jupyter.engine.local import LocalEngine

# A new starter is one file beside local.py, and one line here.
ENGINES = {"local": LocalEngine}

__all__ = ["ENGINES", "Engine", "LocalEngine"]
