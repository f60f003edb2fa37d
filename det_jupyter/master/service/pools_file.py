"""Reads and writes `pools.yaml` in the data folder.

It is read when the master starts, so an edit takes effect after a restart. Pools that are set by
requests are written to it. A file that is not valid has no effect; its problems are in the log and
in `status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml

from det_jupyter.config.pools import PoolsFile, parse_pools
from det_jupyter.config.yaml_text import parse_yaml
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.errors import ConfigError, Problem


def read_pools() -> PoolsFile | None:
    """Return the content of the file; None if it does not exist.

    Raises:
        ConfigError: The file has problems; the error has all of them.
    """
    path = paths.pools_file()
    if not path.exists():
        return None
    try:
        return parse_pools(parse_yaml(read_regular(path).decode()))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(Problem(str(path), f"cannot be read: {why}")) from None
    except ConfigError as error:
        raise ConfigError([replace(each, source=str(path)) for each in error.problems]) from None


def write_pools(pools: list[dict[str, Any]], before: PoolsFile | None) -> None:
    """Write these pools to the file; the rest is kept as in its content `before`."""
    _write(pools, before, before.clusters if before else [])


def write_clusters(
    pools: list[dict[str, Any]], clusters: Sequence[ClusterConfig], before: PoolsFile | None
) -> None:
    """Write these pools and clusters to the file; the rest is kept as in its content `before`."""
    _write(pools, before, clusters)


def _write(
    pools: list[dict[str, Any]], before: PoolsFile | None, clusters: Sequence[ClusterConfig]
) -> None:
    document: dict[str, Any] = {"pools": pools}
    if before is not None and before.agents:
        document["agents"] = [agent.model_dump(mode="json") for agent in before.agents]
    if clusters:
        document["clusters"] = [each.model_dump(exclude_defaults=True) for each in clusters]
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    paths.write_private(paths.pools_file(), text)


def simulated_agents() -> list[str]:
    """Return the simulated agents in the file, each as NAME=cpu:N; none if it is not valid."""
    try:
        found = read_pools()
    except ConfigError:
        return []  # reported when the master reads it
    return [f"{agent.id}={agent.slots}" for agent in found.agents] if found else []
