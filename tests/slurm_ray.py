"""`python -m tests.slurm_ray`: runs examples/cluster/slurm-ray.sbatch on a Slurm on this computer.

It needs root, slurm-wlm, munge and Ray, and takes two minutes. It runs in namespaces of its own,
because `ray stop` in the batch file ends all Ray processes of the user that it finds, and the head
needs port 6379. At the end it prints a JSON line with the violations, or with the reason of a
skip.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from det_jupyter.client import Client
from det_jupyter.connection import connect
from det_jupyter.contract.host import paths
from det_jupyter.errors import Conflict
from tests.processes import det_home, wait_until
from tests.ray_node import SETTINGS
from tests.slurm import Slurm, slurm, why_absent
from tests.trials import Gate, small_config, submit

_SBATCH = Path(__file__).parents[1] / "examples" / "cluster" / "slurm-ray.sbatch"
_CPUS = 2
_BUSY_S = 180.0
_NAMESPACES = ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net"]
# An address for `hostname -I` to print, as computers of a cluster have.
_READY = """
mount -t tmpfs tmpfs /dev/shm && ip link set lo up && ip link add eth0 type veth peer name eth1 &&
ip addr add 10.78.0.1/24 dev eth0 && ip link set eth0 up && ip link set eth1 up && exec "$@"
"""


def why_impossible() -> str:
    """Return why this cannot run here; "" if it can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed"
    return why_absent()


def main() -> int:
    """Run the test in namespaces of its own; return 1 if there is a violation."""
    if reason := why_impossible():
        print(json.dumps({"skipped": reason}))
        return 0
    if sys.argv[1:] == ["inside"]:
        # The paths of its sockets must not be too long.
        with tempfile.TemporaryDirectory(prefix="det-sr-", dir="/var/tmp") as folder:
            try:
                _play(Path(folder))
            except BaseException:
                for log in sorted(Path(folder).glob("*.log")):
                    sys.stderr.write(f"{log.name}:\n{log.read_text()[-4000:]}\n")
                raise
        print(json.dumps({"violations": 0}))
        return 0
    inside = [sys.executable, "-m", "tests.slurm_ray", "inside"]
    command = ["unshare", *_NAMESPACES, "sh", "-c", _READY, "sh", *inside]
    return subprocess.run(command, check=False).returncode


def _play(folder: Path) -> None:
    home = folder / "home"
    home.mkdir()
    os.environ |= {"HOME": str(home), "RAY_TMPDIR": str(folder / "r")}
    with (
        det_home(folder / "det", {"DET_JUPYTER_CPU_SLOTS": "1"}),
        slurm(folder / "slurm", nodes=1, cpus=_CPUS) as cluster,
    ):
        client = Client(connect())
        job, address = _submit(cluster, folder)
        wait_until(lambda: _is_added(client, address), "the cluster is added")
        gate = Gate(folder, 25)
        experiment = submit(client, small_config(), gate.source())
        gate.wait(experiment)
        allocation = experiment.view.trials[0].allocation
        assert allocation is not None
        assert allocation.agent_ids[0].startswith("ray-"), allocation
        cluster.run("scancel", job)
        gate.open()
        wait_until(lambda: not cluster.jobs(), "the job is over")
        wait_until(lambda: not _num_slots(client), "its agent is gone")
        job, _ = _submit(cluster, folder)  # the second job has the same address
        experiment.wait(_BUSY_S)
        view = experiment.view
        assert (view.state, view.trials[0].restarts) == ("COMPLETED", 0), view
        client.remove_cluster("ray")
        client.session.close()


def _submit(cluster: Slurm, folder: Path) -> tuple[str, str]:
    """Submit the job; return its number, and the head's address, which is in its log."""
    environ = os.environ | {
        "PYTHONPATH": SETTINGS["PYTHONPATH"],
        "RAY_USAGE_STATS_ENABLED": "0",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # The job must not inherit these from the master here.
    for name in ("DET_JUPYTER_CPU_SLOTS", paths.HOME_VARIABLE):
        environ.pop(name, None)
    options = ["--nodes=1", f"--cpus-per-task={_CPUS}", "--time=5", f"--output={folder}/%j.log"]
    job = cluster.run("sbatch", "--parsable", *options, str(_SBATCH), environ=environ)
    log = folder / f"{job}.log"

    def address() -> str:
        text = log.read_text() if log.exists() else ""
        assert job in cluster.jobs(), f"the job has ended:\n{text}"
        found = re.search(r"address: (\S+)", text)
        return found[1] if found else ""

    return job, wait_until(address, "the job has a head")


def _is_added(client: Client, address: str) -> bool:
    """Try to add the cluster, whose head may still be starting; return whether that worked."""
    try:
        client.add_cluster({"engine": "ray", "address": address, "slots": _CPUS})
    except Conflict as error:
        sys.stderr.write(f"{error}\n")
        return False
    return True


def _num_slots(client: Client) -> int:
    return sum(
        len(each.slots)
        for each in client.agents()
        if each.id.startswith("ray-") and each.connected
    )


if __name__ == "__main__":
    sys.exit(main())
