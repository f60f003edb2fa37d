"""Fixtures: a private det_jupyter with a fresh master, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.client import Client
from tests.processes import DetHome, det_home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter with 4 simulated slots."""
    path = tmp_path_factory.mktemp("home")
    with det_home(path, {"DET_JUPYTER_CPU_SLOTS": "4"}) as running:
        yield running


@pytest.fixture
def client(home: DetHome) -> Iterator[Client]:
    """Return a client of the private master."""
    client = home.client()
    yield client
    client.session.close()


@pytest.fixture(scope="session")
def examples() -> Path:
    """Return the folder of the example notebooks."""
    return Path(__file__).parents[2] / "examples"
