"""A Ray cluster of processes of this computer, for tests: `ray_cluster`.

`python -m tests.ray_cluster` runs it. It reads orders from stdin: `add` starts a node, `remove`
stops the last node in order, `kill` kills only the raylet of that node, `kill head` the head's
control store (GCS). First it writes the head's address, then a line after each order (for `add`,
the id of the node). It ends when stdin is closed. Its nodes run without Ray's Python programs; see
tests/ray_node.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.ray_node import OBJECT_STORE_BYTES, SETTINGS, TOKEN, start_without_observers

CPUS = 2  # CPUs of each node
_TRIES = 2


class RayCluster:
    """A running cluster with a head and a node, which requires a token."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.token_file = folder / "token"
        self.token_file.write_text(TOKEN)
        self._log = folder / "cluster.log"
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | SETTINGS | variables,
            )
        try:
            self.address = self._answer()
            self.node_id = self.order("add")
        except BaseException:
            self.end()
            raise

    def order(self, words: str) -> str:
        """Send an order to the cluster; return the id of an added node, else ""."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline().strip()):
            raise RuntimeError(f"the Ray cluster has failed:\n{self._log.read_text()[-4000:]}")
        return line

    def end(self) -> None:
        """End all processes of the cluster."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@contextmanager
def ray_cluster(folder: Path, **variables: str) -> Iterator[RayCluster]:
    """Run a cluster with these environment variables, and with its log in `folder`.

    Raises:
        RuntimeError: Two starts have failed; the error contains Ray's output.
    """
    # The paths of its sockets must not be too long.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as temporary:
        for attempt in range(1, _TRIES + 1):
            try:
                cluster = RayCluster(folder, {"RAY_TMPDIR": temporary, **variables})
                break
            except RuntimeError as error:
                sys.stderr.write(f"start {attempt} of {_TRIES}: {error}\n")
                if attempt == _TRIES:
                    raise
        try:
            yield cluster
        finally:
            cluster.end()


def main() -> None:
    """Run the cluster."""
    start_without_observers()
    settings: dict[str, Any] = {
        "num_cpus": CPUS,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_log_monitor": False,
    }
    cluster = import_module("ray.cluster_utils").Cluster(
        initialize_head=True,
        head_node_args={**settings, "include_dashboard": False, "no_monitor": True},
    )
    nodes = []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        match line.split():
            case ["add"]:
                nodes.append(cluster.add_node(**settings))
                print(nodes[-1].node_id, flush=True)
                continue
            case ["remove"]:
                cluster.remove_node(nodes.pop())
            case ["kill"]:
                (raylet,) = nodes.pop().all_processes["raylet"]
                os.kill(raylet.process.pid, signal.SIGKILL)
            case ["kill", "head"]:
                cluster.head_node.kill_gcs_server()
            case other:
                sys.exit(f"got {other!r}")
        print("done", flush=True)
    for node in cluster.list_all_nodes():
        cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
