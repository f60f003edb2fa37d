"""`python -m tests.fake_bridge CONFIG MASTER`: a bridge to a cluster that does not exist.

The folder of the file that `token_file` names contains the cluster's nodes, in nodes.json (a list
of ClusterNode); orders are appended to orders.jsonl there. Without nodes.json the bridge cannot
connect. A host runs as soon as its start is ordered, and ends as soon as its end is.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from pydantic import TypeAdapter

from det_jupyter.contract.messages import (
    BridgeOrder,
    BridgeReport,
    ClusterNode,
    EndBridge,
    EndHost,
    StartHost,
)
from det_jupyter.contract.schema.clusters import ClusterConfig

_NODES = TypeAdapter(list[ClusterNode])
_ORDER: TypeAdapter[BridgeOrder] = TypeAdapter(BridgeOrder)


def main() -> None:
    """Report every 50 ms, until stdin is closed."""
    folder = Path(ClusterConfig.model_validate_json(sys.argv[1]).token_file).parent
    hosts: dict[str, str] = {}  # agents by node
    threading.Thread(target=_obey, args=(folder / "orders.jsonl", hosts), daemon=True).start()
    while (folder / "nodes.json").exists():
        nodes = [
            node.model_copy(update={"host": "running", "agent": hosts[node.node_id]})
            if node.node_id in hosts and node.is_alive
            else node
            for node in _NODES.validate_json((folder / "nodes.json").read_bytes())
        ]
        print(BridgeReport(nodes=nodes, is_connected=True).model_dump_json(), flush=True)
        time.sleep(0.05)
    print(BridgeReport(problem="there is no such cluster").model_dump_json(), flush=True)
    sys.exit(1)


def _obey(orders: Path, hosts: dict[str, str]) -> None:
    for line in sys.stdin:
        with open(orders, "a") as file:
            file.write(line)
        match _ORDER.validate_json(line):
            case StartHost() as start:
                hosts[start.node_id] = start.credentials.agent
            case EndHost(node_id=node_id):
                hosts.pop(node_id, None)
            case EndBridge():
                break
    os._exit(0)


if __name__ == "__main__":
    main()
