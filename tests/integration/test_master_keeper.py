"""There is always an agent, and one that stays away too long counts as dead."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.client import Client
from det_jupyter.master.keeper import Keeper
from tests.integration.master_support import Bench, bench_with_trial
from tests.processes import DetHome, det_home, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Iterator[DetHome]:
    """Return a private master with a real agent."""
    with det_home(tmp_path, {"DET_JUPYTER_CPU_SLOTS": "3"}) as home:
        yield home


def connected_pid(client: Client) -> int | None:
    return next((agent.pid for agent in client.agents() if agent.connected), None)


def test_a_killed_agent_is_replaced(home: DetHome) -> None:
    client = home.client()
    first = wait_until(lambda: connected_pid(client), "the agent is there")
    assert len(client.agents()[0].slots) == 3
    psutil.Process(first).send_signal(signal.SIGKILL)
    wait_until(lambda: connected_pid(client) not in (None, first), "another agent came")
    client.session.close()


def test_the_next_master_takes_over_the_agent_of_a_killed_one(home: DetHome) -> None:
    client = home.client()
    agent = wait_until(lambda: connected_pid(client), "the agent is there")
    master = home.master()
    master.send_signal(signal.SIGKILL)
    wait_until(lambda: not master.is_running() or master.status() == psutil.STATUS_ZOMBIE, "died")
    client.session.close()
    client = home.client()
    assert home.master().pid != master.pid
    assert wait_until(lambda: connected_pid(client), "the agent is back") == agent
    client.session.close()


def test_an_agent_that_stays_away_counts_as_dead(tmp_path: Path) -> None:
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        keep_until_lost(bench)
        trial = bench.service.trial(1)
        assert trial.restarts == 0  # not its fault
        assert trial.allocation is not None
        assert (trial.allocation.run, trial.allocation.state) == (2, "QUEUED")
        assert trial.waiting_for


def keep_until_lost(bench: Bench) -> None:
    seq = bench.service.machine.state.seq

    async def keep_for_a_while() -> None:
        keeper = Keeper(bench.service, agent=None, starts_agents=False, lost_s=0.0)
        keeping = asyncio.create_task(keeper.run())
        async with asyncio.timeout(5):
            while bench.service.machine.state.seq == seq:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)  # it looks a few times more, and says it once
        keeping.cancel()

    asyncio.run(keep_for_a_while())
    assert bench.service.machine.state.seq == seq + 1
