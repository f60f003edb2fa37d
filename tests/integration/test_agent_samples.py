"""A real agent samples the computer, made-up GPUs and the processes of a gang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from det_jupyter.contract.messages import TakeSamples
from det_jupyter.contract.values.measures import GPU, HOST, PROCESS
from tests.integration.agent_support import (
    AgentProcess,
    FakeMaster,
    agent_with_master,
    make_plan,
    torch_built_for,
    write_torch,
)
from tests.processes import find, wait_until

GPU_PROCESS = "det_jupyter.agent.sampler.gpu_process"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AgentProcess, FakeMaster]]:
    """Return an agent with 8 GPUs that do not exist, and its master."""
    folder = tmp_path_factory.mktemp("samples")
    write_torch(folder / "packages", torch_built_for(None))  # no rank of these tests uses it
    variables = {"DET_JUPYTER_FAKE_NVML": "tests.fake_nvml", "DET_TEST_NVML": "8"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder / "packages"))
        with agent_with_master(folder / "home", variables) as (agent, master):
            yield agent, master


def test_a_gang_of_two_ranks_is_sampled_with_its_host_its_workers_and_the_gpus(
    sampled: tuple[AgentProcess, FakeMaster], tmp_path: Path
) -> None:
    _, master = sampled
    acts = {
        "0": [["child", str(tmp_path / "child")], ["burn", str(tmp_path / "data")]],
        "1": [["sleep", 3600]],
    }
    started = master.begin(make_plan("1.1.1", acts, sampling_interval_s=0.1))
    wait_until(lambda: len(master.sampled("rank:1.1.1:0", "cpu_util")) >= 10, "10 samples")
    wait_until(lambda: master.sampled("workers:1.1.1:0", "memory_rss"), "the worker is seen")
    wait_until(lambda: master.sampled("rank:1.1.1:0", "memory_pss"), "PSS is read")
    wait_until(lambda: master.sampled("gpu:GPU-7", "nvlink_sent"), "the GPUs are sampled")

    assert master.sampled("host", "cpu_util_simple")
    assert all(0 <= share <= 100 for share in master.sampled("host", "cpu_util_simple"))
    memory = psutil.virtual_memory().total
    assert all(0 < free < memory for free in master.sampled("host", "memory_free"))
    names = {name for sample in master.samples for name in sample.values.get("host", {})}
    of_one_computer = HOST.keys() - {"net_gang_sent", "net_gang_recv"}
    assert names | master.missing.get("host", {}).keys() == of_one_computer

    burning, resting = (master.sampled(f"rank:1.1.1:{rank}", "cpu_util") for rank in (0, 1))
    assert 5 < sum(burning) / len(burning) < 150
    assert sum(resting) / len(resting) < 5
    rss = psutil.Process(started.ranks[0].pid).memory_info().rss
    assert master.sampled("rank:1.1.1:0", "memory_rss")[-1] == pytest.approx(rss, rel=0.2)
    assert master.sampled("rank:1.1.1:1", "num_threads")[-1] >= 1
    assert master.sampled("workers:1.1.1:0", "num_processes")[-1] == 1
    assert set(master.sampled("workers:1.1.1:1", "num_processes")) == {0}
    assert master.missing["rank:1.1.1:0"]["gpu_memory"] == "this rank has no GPU"
    names = {name for sample in master.samples for name in sample.values.get("rank:1.1.1:0", {})}
    assert names | master.missing["rank:1.1.1:0"].keys() >= PROCESS.keys() - {"num_processes"}

    assert master.sampled("gpu:GPU-3", "gpu_util")[-1] == 87
    names = {name for sample in master.samples for name in sample.values.get("gpu:GPU-7", {})}
    assert names >= GPU.keys() - {"pcie_sent", "pcie_received"}  # each GPU has its turn at those
    assert "gpu" not in master.missing
    assert all(
        value >= 0
        for sample in master.samples
        for of in sample.values.values()
        for value in of.values()
    )
    master.kill("1.1.1")


def test_nothing_is_sampled_without_a_gang_until_the_master_asks(
    sampled: tuple[AgentProcess, FakeMaster],
) -> None:
    agent, master = sampled
    home = agent.home
    wait_until(lambda: find(home, GPU_PROCESS) is None, "the process that reads GPUs has ended")

    def is_silent() -> bool:  # the last reports are on their way
        master.samples.clear()
        time.sleep(2.0)  # a report comes each second while there are samples
        return master.samples == []

    wait_until(is_silent, "no samples come")
    master.order(TakeSamples(for_s=1.0))
    wait_until(lambda: master.sampled("host", "memory_free"), "the host is sampled")
    wait_until(lambda: master.sampled("gpu:GPU-0", "gpu_power"), "the GPUs are sampled")


def test_a_gang_that_is_not_to_be_sampled_is_not(
    sampled: tuple[AgentProcess, FakeMaster],
) -> None:
    _, master = sampled
    plan = make_plan("1.2.1", [["sleep", 3600]], sampling_interval_s=None)
    master.begin(plan)
    master.order(TakeSamples(for_s=1.0))
    master.samples.clear()
    wait_until(lambda: len(master.sampled("host", "memory_free")) > 1, "the host is sampled")
    assert master.sampled("rank:1.2.1:0", "memory_rss") == []
    master.kill("1.2.1")
