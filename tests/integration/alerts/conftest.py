"""Fixtures: a receiver, and a master in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.alerts.support import Receiver, opened
from tests.integration.master_support import Bench


@pytest.fixture(scope="package")
def server() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def receiver(server: Receiver) -> Receiver:
    server.answers, server.received = [], []
    server.holds.set()
    return server


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        bench.register()
        yield bench
