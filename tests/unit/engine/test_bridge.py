"""The bridge's own loop, without Ray: orders come from stdin, reports go to what was stdout."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import (
    AgentCredentials,
    AskForNodes,
    ClusterNode,
    EndBridge,
    EndHost,
    StartHost,
)
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray import __main__ as bridge
from det_jupyter.errors import DetError

NODE = ClusterNode(node_id="n", hostname="node-n", gpus=4, cpus=8)
CREDENTIALS = AgentCredentials(agent="a", url="https://127.0.0.1:1", certificate="", token="t")
START = StartHost(node_id="n", credentials=CREDENTIALS)
CONFIG = ClusterConfig(engine="ray", address="head:6379")


class Ended(BaseException):
    """The process has ended with this status."""


class World:
    """The cluster and the master of a bridge: what happened, and the orders that come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.connected: list[tuple[Any, ...]] = []
        self.problem = ""
        self.num_left = 2  # polls until all hosts have ended
        self.is_ending = False
        self.orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # None: stdin ends
        self._reports, writing = os.pipe()
        self._file = os.fdopen(writing, "w", encoding="utf-8")
        monkeypatch.setattr(sys, "argv", ["bridge", CONFIG.model_dump_json(), "m1"])
        monkeypatch.setattr(sys, "stdin", self._lines())
        monkeypatch.setattr(bridge, "connect", self._connect)
        monkeypatch.setattr(bridge, "Hosts", self._hosts)
        monkeypatch.setattr(bridge, "_REPORT_S", 0.01)
        system = SimpleNamespace(  # pytest captures output by the same calls
            dup={1: "a copy of stdout"}.__getitem__,
            dup2=lambda *pair: self.done.append(f"dup2 {pair}"),
            fdopen=lambda descriptor, mode, *, encoding: self._file,
            _exit=self._exit,
        )
        monkeypatch.setattr(bridge, "os", system)

    def _lines(self) -> Iterator[str]:
        while (line := self.orders.get()) is not None:
            yield f"{line}\n"

    def _exit(self, status: int) -> None:
        self.done.append(f"exit {status}")
        if threading.current_thread() is threading.main_thread():
            raise Ended(status)

    def _connect(self, *arguments: Any) -> str:
        self.connected.append(arguments)
        if self.problem:
            raise DetError(self.problem)
        return "ray"

    def _hosts(self, *arguments: Any) -> World:
        self.done.append(f"hosts {arguments[0]} {arguments[2:]}")
        return self

    @property
    def is_empty(self) -> bool:
        """Whether no host is left."""
        return self.is_ending and self.num_left <= 0

    @property
    def num_asked(self) -> int:
        """How many nodes were asked for."""
        return 3

    def poll(self) -> None:
        """Look at the hosts."""
        self.num_left -= self.is_ending

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes."""
        return [NODE]

    def start(self, order: StartHost, gpus: float) -> None:
        """Start a host."""
        self.done.append(f"start {order.node_id} {gpus:g}")

    def end(self, node_id: str) -> None:
        """End a host."""
        self.done.append(f"end {node_id}")

    def ask(self, order: AskForNodes) -> None:
        """Ask for nodes."""
        self.done.append(f"ask {order.num}")

    def end_all(self) -> None:
        """End all hosts."""
        self.done.append("end all")
        self.is_ending = True

    def reports(self) -> list[dict[str, Any]]:
        """Return what was reported."""
        told = os.read(self._reports, 1 << 16)
        return [json.loads(line) for line in told.splitlines()]

    def close(self) -> None:
        """End the thread that reads orders, and close all that is open."""
        self.orders.put(None)
        for thread in threading.enumerate():
            if "(_read_orders)" in thread.name:  # which would end this process after the test
                thread.join()
        self._file.close()
        os.close(self._reports)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(monkeypatch)
    yield world
    world.close()


def test_orders_are_carried_out_until_the_bridge_has_no_host_any_more(world: World) -> None:
    other = START.model_copy(update={"node_id": "gone"})
    orders = [START, other, EndHost(node_id="n"), AskForNodes(num=2, gpus=1.0), EndBridge()]
    for order in orders:
        world.orders.put(order.model_dump_json())
    with pytest.raises(Ended, match="0"):
        bridge.main()
    ((config, namespace, _),) = world.connected
    assert config == CONFIG
    assert namespace.startswith("det_jupyter-")
    assert namespace.endswith("-m1")
    assert world.done == [
        "dup2 (2, 1)",  # what Ray prints goes to stderr
        f"hosts ray ('m1', {namespace!r})",
        "start n 4",
        "start gone 0",
        "end n",
        "ask 2",
        "end all",
        "exit 0",
    ]
    assert world.num_left == 0
    reports = world.reports()
    assert len(reports) >= 3
    assert all(report["is_connected"] for report in reports)
    assert reports[-1]["num_asked"] == 3
    assert [node["node_id"] for node in reports[-1]["nodes"]] == ["n"]


def test_a_bridge_that_cannot_connect_says_why_and_ends(world: World) -> None:
    world.problem = "head:6379: nothing can be reached"
    with pytest.raises(Ended, match="1"):
        bridge.main()
    (report,) = world.reports()
    assert (report["problem"], report["is_connected"]) == (world.problem, False)
    assert world.done == ["dup2 (2, 1)", "exit 1"]


def test_a_bridge_ends_with_its_master_whatever_it_is_doing(world: World) -> None:
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    world.orders.put(EndHost(node_id="n").model_dump_json())
    world.orders.put(None)
    with pytest.raises(Ended, match="0"):
        bridge._read_orders(orders)
    assert orders.get_nowait() == EndHost(node_id="n")
