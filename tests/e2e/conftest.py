"""Fixtures: a private det_jupyter, which all modules share that need none of their own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from det_jupyter.client import Client
from tests.bucket_keys import KEYS
from tests.forked_programs import _programs_are_forks as _programs_are_forks
from tests.nodes import Node, running_nodes
from tests.processes import DetHome, at_home, det_home, wait_until

SLOTS = {"DET_JUPYTER_CPU_SLOTS": "4"}
SLOTS_HERE = {"DET_JUPYTER_CPU_SLOTS": "2", **KEYS}  # where other computers have agents


@pytest.fixture(scope="session")
def temporary() -> Iterator[Path]:
    """Return the folder for temporary files of the shared home."""
    folder = Path(tempfile.mkdtemp(prefix="t-"))  # the sockets are below it: it has to be short
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory, temporary: Path) -> Iterator[Path]:
    """Return a home for all modules: a master, an agent and a torch take seconds to start."""
    path = tmp_path_factory.mktemp("home")
    yield path
    with at_home(path, {**SLOTS, **KEYS, "TMPDIR": str(temporary)}) as home:
        home.end()


@pytest.fixture(scope="module")
def home(shared_home: Path, temporary: Path) -> Iterator[DetHome]:
    """Return a private det_jupyter with 4 simulated slots, all of them free."""
    with at_home(shared_home, {**SLOTS, **KEYS, "TMPDIR": str(temporary)}) as home:
        yield home
        home.end_work()


@pytest.fixture(scope="module")
def fresh_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter of this module only; it is the module's `home`."""
    with det_home(tmp_path_factory.mktemp("home"), SLOTS) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Computers:
    """A home, and agents of other computers by name."""

    home: Path
    nodes: dict[str, Node]


@pytest.fixture(scope="session")
def computers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Computers]:
    """Return a home with agents `b` and `c` of other computers, 2 slots each, for all modules.

    The 2 slots of the master's computer are in a pool of their own, `here`.
    """
    path, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("nodes")
    with ExitStack() as running:
        with at_home(path, SLOTS_HERE) as home:
            client = home.client()
            (own,) = wait_until(client.agents, "its own agent is there")
            pools = [{"pool_name": "default"}, {"pool_name": "here", "agents": [own.id]}]
            client.session.put("/pools", {"pools": pools})
            made = [Node(client.add_agent(name, "127.0.0.1"), folder / name) for name in "bc"]
            nodes = running.enter_context(running_nodes(client, made))
        yield Computers(path, nodes)
        with at_home(path, SLOTS_HERE) as home:
            running.close()
            home.end()


@pytest.fixture(scope="module")
def home_of_nodes(computers: Computers) -> Iterator[DetHome]:
    """Return the home with agents of other computers, all connected; it is the module's `home`."""
    with at_home(computers.home, SLOTS_HERE) as home:
        client = home.client()
        for node in computers.nodes.values():
            node.wait_until_connected(client)
        client.session.close()
        yield home
        home.end_work()


@pytest.fixture(scope="module")
def nodes(computers: Computers, home_of_nodes: DetHome) -> dict[str, Node]:
    """Return the agents `b` and `c`."""
    return computers.nodes


@pytest.fixture
def client(home: DetHome) -> Iterator[Client]:
    """Return a client of the private master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture
def preempting(client: Client) -> Iterator[None]:
    """Have the only pool preempt."""
    scheduler = {"type": "priority", "preemption": True}
    client.session.put("/pools", {"pools": [{"pool_name": "default", "scheduler": scheduler}]})
    yield
    client.session.put("/pools", {"pools": [{"pool_name": "default"}]})


@pytest.fixture(scope="session")
def examples() -> Path:
    """Return the folder of the example notebooks."""
    return Path(__file__).parents[2] / "examples"
