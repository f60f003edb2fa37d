"""examples/cluster/slurm.sbatch, submitted to a Slurm that runs here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host import paths
from det_jupyter.front.cli.__main__ import main
from tests.processes import DetHome, det_home, processes_below, wait_until
from tests.slurm import Slurm, slurm, why_absent
from tests.trials import TRIAL_SOURCE, Gate, small_config, submit

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(why_absent()), reason=f"no Slurm: {why_absent()}"),
]
SBATCH = Path(__file__).parents[2] / "examples" / "cluster" / "slurm.sbatch"
CPUS = 2
SAYS_ITS_BATCH = TRIAL_SOURCE.replace(
    "time.sleep(self.pause_s)", "time.sleep(self.pause_s); print(f'began batch {batch_idx}')"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetHome]:
    """Return a private det_jupyter whose own agent has too few slots for the trial here."""
    with det_home(tmp_path_factory.mktemp("home"), {"DET_JUPYTER_CPU_SLOTS": "1"}) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), nodes=2, cpus=CPUS) as running:
        yield running


class Jobs:
    """Jobs of `slurm.sbatch` with two nodes, whose agents are named after the job's owner."""

    def __init__(self, client: Client, cluster: Slurm, folder: Path, name: str) -> None:
        self.client, self.cluster, self.folder = client, cluster, folder
        self.agents = {f"{name}-0": CPUS, f"{name}-1": CPUS}
        self.file, self.nodes = folder / "agents", folder / "nodes"
        self.nodes.mkdir()
        options = ["--nodes", "2", "--address", "127.0.0.1", "-o", str(self.file)]
        assert main(["agent", "add", name, *options]) == 0

    def connected(self) -> dict[str, int]:
        agents = self.client.agents()
        return {a.id: len(a.slots) for a in agents if a.id in self.agents and a.connected}

    def submit(self) -> str:
        """Submit a job, and return its number when its nodes are agents."""
        environ = os.environ | {
            "DET_CREDENTIALS": str(self.file),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(self.nodes),
        }
        for name in ("DET_JUPYTER_CPU_SLOTS", paths.HOME_VARIABLE):  # of the master here
            del environ[name]
        options = [f"--cpus-per-task={CPUS}", "--time=5", f"--output={self.folder}/%j.log"]
        job = self.cluster.run("sbatch", "--parsable", *options, str(SBATCH), environ=environ)
        wait_until(
            lambda: self.connected() == self.agents,
            "both nodes are agents, with the cores that Slurm gave them",
        )
        return job

    def cancel(self, job: str) -> None:
        """Cancel a job: SIGTERM to all of its processes. Return when no agent is left."""
        self.cluster.run("scancel", job)
        wait_until(lambda: job not in self.cluster.jobs(), "the job is over")
        wait_until(lambda: not any(self.connected().values()), "agents are gone")
        wait_until(lambda: not processes_below(self.nodes), "no process is left")


def test_nodes_of_a_job_are_agents_and_a_trial_goes_on_in_the_next_job(
    client: Client, home: DetHome, cluster: Slurm, tmp_path: Path
) -> None:
    jobs = Jobs(client, cluster, tmp_path, "slurm")
    first = jobs.submit()
    gate = Gate(tmp_path, 25)
    experiment = submit(client, small_config(), gate.source(SAYS_ITS_BATCH))
    gate.wait(experiment)
    jobs.cancel(first)
    gate.open()
    assert experiment.view.trials[0].restarts == 0
    second = jobs.submit()
    experiment.wait()
    assert_trained_once(experiment)
    jobs.cancel(second)


def test_an_elastic_trial_of_a_cancelled_job_goes_on_with_a_slot_that_is_left(
    client: Client, home: DetHome, cluster: Slurm, tmp_path: Path
) -> None:
    jobs = Jobs(client, cluster, tmp_path, "elastic")
    job = jobs.submit()
    resources = {"slots_per_trial": {"min": 1, "max": 2 * CPUS}}
    gate = Gate(tmp_path, 25)
    experiment = submit(client, small_config(resources=resources), gate.source(SAYS_ITS_BATCH))
    gate.wait(experiment)
    jobs.cancel(job)
    gate.open()
    experiment.wait()
    assert_trained_once(experiment)
    assert [size.slots for size in experiment.view.trials[0].sizes] == [2 * CPUS, 1]


def assert_trained_once(experiment: Experiment) -> None:
    """Assert that a trial has completed and trained each batch once, without a restart."""
    trial = experiment.view.trials[0]
    assert (trial.state, trial.restarts, trial.num_recoveries) == ("COMPLETED", 0, 0)
    lines = experiment.logs(rank=0, search="began batch ")
    assert [line.text for line in lines] == [f"began batch {i}" for i in range(60)]
