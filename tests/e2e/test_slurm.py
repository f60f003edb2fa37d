"""examples/cluster/slurm.sbatch, submitted to a Slurm that runs here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.host import paths
from det_jupyter.front.cli.__main__ import main
from tests.processes import DetHome, det_home, processes_below, wait_until
from tests.slurm import Slurm, slurm, why_absent
from tests.trials import slow, submit, wait_for_steps

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(why_absent()), reason=f"no Slurm: {why_absent()}"),
]
SBATCH = Path(__file__).parents[2] / "examples" / "cluster" / "slurm.sbatch"
CPUS = 2


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter whose own agent has too few slots for the trial here."""
    with det_home(tmp_path_factory.mktemp("home"), {"DET_JUPYTER_CPU_SLOTS": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=CPUS) as running:
        yield running


def test_nodes_of_a_job_are_agents_and_a_trial_goes_on_in_the_next_job(
    client: Client, home: DetHome, cluster: Slurm, tmp_path: Path
) -> None:
    file, nodes = tmp_path / "agents", tmp_path / "nodes"
    nodes.mkdir()
    added = ["agent", "add", "slurm", "--nodes", "2", "--address", "127.0.0.1", "-o", str(file)]
    assert main(added) == 0

    def connected() -> dict[str, int]:
        return {a.id: len(a.slots) for a in client.agents() if a.connected and a.slots}

    def submit_job() -> str:
        environ = os.environ | {
            "DET_CREDENTIALS": str(file),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(nodes),
        }
        for name in ("DET_JUPYTER_CPU_SLOTS", paths.HOME_VARIABLE):  # of the master here
            del environ[name]
        options = [f"--cpus-per-task={CPUS}", "--time=5", f"--output={tmp_path}/%j.log"]
        job = cluster.run("sbatch", "--parsable", *options, str(SBATCH), environ=environ)
        wait_until(
            lambda: {"slurm-0": CPUS, "slurm-1": CPUS}.items() <= connected().items(),
            "both nodes are agents, with the cores that Slurm gave them",
        )
        return job

    first = submit_job()
    experiment = submit(client, slow(0.05))
    wait_for_steps(experiment, 25)
    cluster.run("scancel", first)
    wait_until(lambda: first not in cluster.jobs(), "the first job is over")
    wait_until(lambda: connected().keys().isdisjoint({"slurm-0", "slurm-1"}), "agents are gone")
    assert experiment.view.trials[0].restarts == 0
    assert not processes_below(nodes)
    second = submit_job()
    experiment.wait()
    assert experiment.view.trials[0].restarts == 0
    cluster.run("scancel", second)
    wait_until(lambda: not processes_below(nodes), "no agent is left")
