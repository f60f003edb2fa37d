"""What `%%det pool set` does: it has the master divide the agents into other pools."""

from __future__ import annotations

import argparse
from pathlib import Path

from IPython.core.error import UsageError

from det_jupyter.client.asking import ask_for
from det_jupyter.config import parse_yaml, read_yaml
from det_jupyter.config.pools import parse_pools
from det_jupyter.errors import ConfigError
from det_jupyter.notebook.handles import handles
from det_jupyter.notebook.handles.templates import read_file
from det_jupyter.notebook.submit.drafts import below_magic, located
from det_jupyter.verbs.cluster_text import pool_line
from det_jupyter.wire import SetPools


def set_pools(options: argparse.Namespace, cell: str | None) -> None:
    """Set the pools of a cell's YAML, or of a file's, and print them."""
    if (cell is None) == (options.file is None):
        raise UsageError("%det pool set: give either a file, or %%det pool set above YAML")
    if cell is not None:
        _set(below_magic(cell))
        return
    path = Path(options.file)
    text = read_file(path)
    try:
        _set(text)
    except ConfigError as error:
        raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None


def _set(text: str) -> None:
    document = parse_yaml(text)
    if "pools" not in document:
        raise ConfigError(["expected the key pools with a list: pools: [{pool_name: default}]"])
    try:
        parse_pools(document)
        request = ask_for(SetPools, pools=document["pools"] or [])
        pools = handles.client().set_pools(request)
    except ConfigError as error:
        raise located(error.problems, read_yaml(text)) from None
    for pool in pools:
        print(pool_line(pool))
    if document.get("agents"):
        print("Note: agents are simulated only by the file pools.yaml, from the next start on.")
