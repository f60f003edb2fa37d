"""`python -m tests.ray_cluster`: a Ray cluster of processes of this computer, for tests.

Reads lines from stdin: `add` starts a node, `remove` stops the last one in order, `kill` ends its
raylet alone. Writes a line after each (the id of a node that it
has started), and the head's address first. Ends when stdin ends.
"""

from __future__ import annotations

import os
import signal
import sys

# Ray allows a raylet 10 s to start, which is too short on a busy computer.
os.environ.setdefault("RAY_raylet_start_wait_time_s", "120")


def main() -> None:
    """Run the cluster."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    nodes = []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.strip():
            case "add":
                nodes.append(cluster.add_node(num_cpus=2))
                print(nodes[-1].node_id, flush=True)
            case "remove":
                cluster.remove_node(nodes.pop())
            case "kill":
                (raylet,) = nodes.pop().all_processes["raylet"]
                os.kill(raylet.process.pid, signal.SIGKILL)
            case other:
                sys.exit(f"got {other!r}")
        if line.strip() != "add":
            print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
