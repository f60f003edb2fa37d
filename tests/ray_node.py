"""`python -m tests.ray_node --ip IP [--join ADDRESS]`: one node of a Ray cluster, for tests.

Without `--join` it is the head. It prints "started" when it has started, and ends in order at
SIGTERM, or when its raylet has ended.

Raylets, control store, workers and actors are Ray's own. Its Python programs that observe a node
(dashboard, dashboard agent, log monitor) or install packages for it (runtime environments) are not
started. They are not used here, and a raylet aborts if its two agents have not written their ports
within 15 s, a limit that no setting changes: on two busy cores, where the import of Ray takes 8 to
14 s, half of all starts failed. Without them a node needs 0.1 s CPU to start.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

TOKEN = "0123456789abcdef" * 2
_TESTS = Path(__file__).resolve().parent
SETTINGS = {
    "PYTHONPATH": f"{_TESTS.parent}{os.pathsep}{_TESTS / 'ray_site'}",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_enable_metrics_collection": "0",
    "RAY_enable_worker_prestart": "0",  # only actors that start load Ray then, not idle workers
    "RAY_prestart_worker_first_driver": "0",
    # Otherwise it may kill workers because of the memory that other tests use.
    "RAY_memory_monitor_refresh_ms": "0",
    # The computer may be busy, so these limits are long.
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_register_timeout_seconds": "300",
    # Checks, 3 s apart, after which a silent raylet counts as lost.
    "RAY_health_check_failure_threshold": "20",
}
OBJECT_STORE_BYTES = 80 * 2**20  # Ray's minimum is 75 MiB


def start_without_observers() -> None:
    """Make this process start nodes without Ray's Python programs."""
    raylet: Any = import_module("ray._raylet")
    services: Any = import_module("ray._private.services")
    node: Any = import_module("ray._private.node").Node
    ports = [
        raylet.METRICS_AGENT_PORT_NAME,
        raylet.METRICS_EXPORT_PORT_NAME,
        raylet.DASHBOARD_AGENT_LISTEN_PORT_NAME,
        raylet.RUNTIME_ENV_AGENT_PORT_NAME,
    ]
    start_raylet = node.start_raylet

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        for port in ports:  # -1: no port, as without the packages of ray[default]
            raylet.persist_port(self._session_dir, self._node_id, port, -1)
        start_raylet(self, *args, **kwargs)

    node.start_raylet = start
    node.start_api_server = lambda self, **_: None
    # A raylet ends with its agents; these idle agents end with the raylet, the other end of stdin.
    idle = [shutil.which("sh"), "-c", "exec cat > /dev/null"]
    services._build_python_executable_command_memory_profileable = lambda *_, **__: idle


def main() -> None:
    """Run the node."""
    parser = argparse.ArgumentParser(prog="python -m tests.ray_node")
    parser.add_argument("--ip", required=True)
    parser.add_argument("--port", type=int, default=6379, help="the head's")
    parser.add_argument("--join", default="", help="the head's address")
    parser.add_argument("--cpus", type=int, default=0)
    parser.add_argument("--autoscaler", help="the file of Ray's autoscaler")
    options = parser.parse_args()
    start_without_observers()
    parameters: dict[str, Any] = {
        "node_ip_address": options.ip,
        "num_cpus": options.cpus,
        "num_gpus": 0,
        "object_store_memory": OBJECT_STORE_BYTES,
        "min_worker_port": 0,
        "max_worker_port": 0,
        "include_log_monitor": False,
        "include_dashboard": False,
        "autoscaling_config": options.autoscaler,
        "no_monitor": options.autoscaler is None,
    }
    if options.join:
        parameters |= {"gcs_address": options.join, "redis_address": options.join}
    else:
        parameters["gcs_server_port"] = options.port
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    node: Any = import_module("ray._private.node").Node(
        import_module("ray._private.parameter").RayParams(**parameters),
        head=not options.join,
        shutdown_at_exit=False,
        spawn_reaper=False,
    )
    print("started", flush=True)
    (raylet,) = node.all_processes["raylet"]
    while raylet.process.poll() is None and not is_over.wait(0.2):
        pass
    node.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)


if __name__ == "__main__":
    main()
