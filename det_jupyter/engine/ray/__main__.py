"""`python -m det_jupyter.engine.ray CONFIG MASTER`: the bridge to one Ray cluster.

It is the cluster's driver, in a process of its own: Ray may keep a process waiting for minutes, or
end it. It reads orders from stdin and reports to stdout every second (messages/clusters.py)
until stdin ends, with the master; its hosts stay. What Ray prints goes to stderr.
"""

from __future__ import annotations

import getpass
import os
import queue
import sys
import threading
from typing import NoReturn, TextIO, assert_never

from pydantic import TypeAdapter

from det_jupyter.contract.messages import (
    AskForNodes,
    BridgeOrder,
    BridgeReport,
    EndBridge,
    EndHost,
    StartHost,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray.connecting import connect
from det_jupyter.engine.ray.hosts import Hosts
from det_jupyter.errors import DetError

_REPORT_S = 1.0
_ORDER: TypeAdapter[BridgeOrder] = TypeAdapter(BridgeOrder)


class _Reports:
    """The reports to the master, on what was stdout: Ray prints there too."""

    def __init__(self) -> None:
        self._file: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def write(self, report: BridgeReport) -> None:
        self._file.write(report.model_dump_json() + "\n")
        self._file.flush()

    def end(self, problem: str) -> NoReturn:
        """Report why the bridge cannot connect, and end this process, whichever thread calls."""
        self.write(BridgeReport(problem=problem))
        os._exit(1)  # Ray's own end may take long


def main() -> None:
    """Connect, then carry out orders until the master ends."""
    config = ClusterConfig.model_validate_json(sys.argv[1])
    master = sys.argv[2]
    reports = _Reports()
    namespace = f"det_jupyter-{getpass.getuser()}-{master}"
    try:
        ray = connect(config, namespace, reports.end)
    except DetError as error:
        reports.end(str(error))
    orders: queue.SimpleQueue[BridgeOrder] = queue.SimpleQueue()
    threading.Thread(target=_read_orders, args=(orders,), daemon=True).start()
    hosts = Hosts(ray, config, master, namespace)
    is_ending = False
    while not (is_ending and hosts.is_empty):
        hosts.poll()
        nodes = hosts.nodes()
        reports.write(BridgeReport(nodes=nodes, num_asked=hosts.num_asked, is_connected=True))
        gpus = {node.node_id: node.gpus for node in nodes}
        try:
            order = orders.get(timeout=_REPORT_S)
            while True:
                match order:
                    case StartHost():
                        hosts.start(order, gpus.get(order.node_id, 0))
                    case EndHost():
                        hosts.end(order.node_id)
                    case AskForNodes():
                        hosts.ask(order)
                    case EndBridge():
                        is_ending = True
                        hosts.end_all()
                    case _:
                        assert_never(order)
                order = orders.get_nowait()
        except queue.Empty:
            continue
    os._exit(0)


def _read_orders(orders: queue.SimpleQueue[BridgeOrder]) -> None:
    for line in sys.stdin:
        orders.put(_ORDER.validate_json(line))
    os._exit(0)  # the master has ended; hosts stay, and the next bridge finds them


if __name__ == "__main__":
    main()
