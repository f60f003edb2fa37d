"""Which processes may connect as an agent on another computer: never two at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import RunReport
from det_jupyter.errors import Conflict
from det_jupyter.master.machine.model.events import AgentLost
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    make_registration,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial runs on an agent of another computer."""
    with bench_with_trial(tmp_path / "db") as bench:
        register(bench, "first", [RunReport(allocation_id=RUN, alive=True)])
        yield bench


def register(bench: Bench, session: str, runs: list[RunReport] | None = None) -> None:
    registration = make_registration(session, runs=runs)
    registration = registration.model_copy(update={"versions": installed_versions()})
    bench.service.register(AGENT, registration, is_remote=True)


def test_second_process_with_the_credentials_of_a_connected_one_is_refused(bench: Bench) -> None:
    lost = [RunReport(allocation_id=RUN, alive=False)]
    bench.service.links.get(AGENT, "first").is_streaming = True
    with pytest.raises(Conflict, match="process 1 on here is connected as agent here; end it"):
        register(bench, "second", lost)
    bench.service.links.get(AGENT, "first").is_streaming = False
    register(bench, "second", lost)


def test_process_without_the_runs_of_the_one_before_waits_until_they_are_lost(
    bench: Bench,
) -> None:
    with pytest.raises(Conflict, match="may still run trials as agent here"):
        register(bench, "second")
    bench.service.take(AgentLost(agent_id=AGENT))
    register(bench, "second")


def test_next_process_in_the_same_folder_and_a_reconnection_are_accepted(bench: Bench) -> None:
    register(bench, "first", [RunReport(allocation_id=RUN, alive=True)])
    register(bench, "second", [RunReport(allocation_id=RUN, alive=False)])


def test_an_agent_of_a_cluster_that_is_not_connected_yet_is_shown_with_the_cluster(
    bench: Bench,
) -> None:
    bench.service.access.add(AGENT, cluster="ray")
    register(bench, "first", [RunReport(allocation_id=RUN, alive=True)])
    assert bench.service.machine.state.agents[AGENT].cluster == "ray"
