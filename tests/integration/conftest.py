"""Fixtures of the tests with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.agent.devices.offered_slots import CPU_SLOTS_VARIABLE
from tests import forked_programs
from tests.forked_programs import _programs_are_forks as _programs_are_forks
from tests.forks import torch_source
from tests.integration.agent_support import torch_built_for, write_torch
from tests.integration.parallel_ranks import RankRunner, SharedRanks
from tests.integration.rank_forks import RankForks
from tests.integration.rank_support import Lab, Zygote, opened_lab, running_zygote
from tests.processes import DetHome, at_home

TWO_SLOTS = {CPU_SLOTS_VARIABLE: "2"}


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """A zygote."""
    with running_zygote(tmp_path_factory.mktemp("zygote")) as zygote:
        yield zygote


@pytest.fixture(scope="session")
def home_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the path of the home that modules share: to start it takes 6 s CPU."""
    path = tmp_path_factory.mktemp("home")
    yield path
    with at_home(path, TWO_SLOTS) as home:
        home.end()


@pytest.fixture(scope="module")
def shared_home(home_path: Path) -> Iterator[DetHome]:
    """Return a private det_jupyter with 2 slots, both of them free; it is the module's `home`."""
    with at_home(home_path, TWO_SLOTS) as home:
        yield home
        home.end_work()


@pytest.fixture(scope="session")
def run() -> RankRunner:
    """Runs functions on ranks."""
    return RankRunner(torch_source())


@pytest.fixture(scope="module")
def shared_ranks() -> Iterator[RankRunner]:
    """Runs functions on ranks that the tests of a module share; it is the module's `run`."""
    with closing(SharedRanks(torch_source())) as shared:
        yield shared


@pytest.fixture(scope="session")
def ranks() -> RankForks:
    """Runs code in processes that load what was captured, all forked from one."""
    return RankForks()


@pytest.fixture
def lab(tmp_path: Path, zygote: Zygote) -> Iterator[Lab]:
    """Starts gangs under a folder of the test's own; none is left after it."""
    with opened_lab(tmp_path, zygote) as lab:
        yield lab


@pytest.fixture
def light_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let agents and zygotes find a torch that can do nothing: the real one loads for seconds."""
    write_torch(tmp_path / "packages", torch_built_for(None))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.setattr(forked_programs, "light_path", str(tmp_path / "packages"))
