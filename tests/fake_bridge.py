"""`python -m tests.fake_bridge CONFIG MASTER`: a bridge to a cluster that does not exist.

The folder of the file that `token_file` names contains the cluster's nodes, in nodes.json (a list
of ClusterNode); orders are appended to orders.jsonl there. Without nodes.json the bridge cannot
connect. A host runs as soon as its start is ordered, and ends as soon as its end is.

It reads and writes JSON, which the master validates: to import our messages takes 0.2 s CPU.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path


def main() -> None:
    """Report every 50 ms, until stdin is closed."""
    folder = Path(json.loads(sys.argv[1])["token_file"]).parent
    hosts: dict[str, str] = {}  # agents by node
    threading.Thread(target=_obey, args=(folder / "orders.jsonl", hosts), daemon=True).start()
    while (folder / "nodes.json").exists():
        nodes = json.loads((folder / "nodes.json").read_bytes())
        for node in nodes:
            if node["node_id"] in hosts and node["is_alive"]:
                node |= {"host": "running", "agent": hosts[node["node_id"]]}
        print(json.dumps({"nodes": nodes, "is_connected": True}), flush=True)
        time.sleep(0.05)
    print(json.dumps({"problem": "there is no such cluster"}), flush=True)
    sys.exit(1)


def _obey(orders: Path, hosts: dict[str, str]) -> None:
    for line in sys.stdin:
        with open(orders, "a") as file:
            file.write(line)
        match json.loads(line):
            case {"kind": "start_host", "node_id": node_id, "credentials": {"agent": agent}}:
                hosts[node_id] = agent
            case {"kind": "end_host", "node_id": node_id}:
                hosts.pop(node_id, None)
            case {"kind": "end_bridge"}:
                break
    os._exit(0)


if __name__ == "__main__":
    main()
