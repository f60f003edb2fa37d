"""Starters of agents: the protocol, the local starter, and the bridges to clusters."""

from collections.abc import Callable, Mapping

from det_jupyter.engine.contract import Engine
from det_jupyter.engine.local import LocalEngine

# Programs that start agents on the nodes of a cluster (messages/clusters.py), by engine.
BRIDGES: Mapping[str, str] = {"ray": "det_jupyter.engine.ray"}

# A new starter is one file beside local.py, and one line here; master/__main__.py chooses.
ENGINES: Mapping[str, Callable[[], Engine]] = {"local": LocalEngine}

__all__ = ["BRIDGES", "ENGINES", "Engine", "LocalEngine"]
