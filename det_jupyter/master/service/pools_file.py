"""`pools.yaml` in the data folder: read when the master starts, written when pools are set.

The file is the source: after editing it by hand, restart the master; pools that are set through
the master are written to it. A wrong file changes nothing; the log and `status` say why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml

from det_jupyter.config.pools import PoolsFile, parse_pools
from det_jupyter.config.yaml_text import parse_yaml
from det_jupyter.contract.host import paths
from det_jupyter.errors import ConfigError, Problem


def read_pools() -> PoolsFile | None:
    """Return what the file says; None if there is none.

    Raises:
        ConfigError: All that is wrong with it.
    """
    path = paths.pools_file()
    if not path.exists():
        return None
    try:
        return parse_pools(parse_yaml(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Problem(str(path), f"cannot be read: {error}")) from None
    except ConfigError as error:
        raise ConfigError([replace(each, source=str(path)) for each in error.problems]) from None


def write_pools(pools: list[dict[str, Any]], before: PoolsFile | None) -> None:
    """Keep these pools in the file; simulated agents that it named before stay in it."""
    document: dict[str, Any] = {"pools": pools}
    if before is not None and before.agents:
        document["agents"] = [agent.model_dump(mode="json") for agent in before.agents]
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    paths.write_private(paths.pools_file(), text)


def simulated_agents() -> list[str]:
    """Return the agents that the file wants in place of this computer's, as `left=cpu:8`."""
    try:
        found = read_pools()
    except ConfigError:
        return []  # told when the master has read it
    return [f"{agent.id}={agent.slots}" for agent in found.agents] if found else []
