"""What a real trial's machine did, as its user sees it."""

from __future__ import annotations

import socket
import time

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import SeriesQuery
from tests.processes import wait_until
from tests.trials import slow, submit

pytestmark = pytest.mark.e2e
SYSTEM = SeriesQuery(of="system")


def test_a_trial_has_system_metrics_and_its_machine_has_them_when_looked_at(
    client: Client,
) -> None:
    experiment = submit(client, slow(1.0, profiling={"sampling_interval": 0.2}))
    try:
        trial_id = wait_until(lambda: experiment.view.trials, "there is a trial")[0].id

        def found() -> dict[tuple[str, str], list[float]]:
            series = client.series(trial_id, SYSTEM).series
            return {(one.source, one.name): one.mid for one in series if one.mid}

        wait_until(lambda: len(found().get(("rank:1", "cpu_util"), [])) > 3, "ranks are sampled")
        values = found()
        assert {"host", "rank:0", "rank:1", "workers:0"} <= {source for source, _ in values}
        assert min(map(min, values.values())) >= 0
        assert max(values["host", "cpu_util_simple"]) <= 100
        series = client.series(trial_id, SYSTEM).series
        missing = {(one.source, one.name): one.missing for one in series if one.missing}
        assert missing["rank:0", "gpu_memory"] == "this rank has no GPU"
        assert missing["gpu", "gpu_util"] == "this agent has no GPU: its slots are CPU places"
    finally:
        experiment.kill()
        experiment.wait()

    def memory() -> list[float]:
        series = client.agent_series(socket.gethostname(), SYSTEM).series
        return [x for one in series if one.name == "memory_free" for x in one.x]

    ended = time.time() + 6.0  # the sampler goes on for some seconds
    wait_until(lambda: max(memory()) > ended, "the machine is sampled because it is looked at")
