"""The folder of one run (one allocation), which the agent and the ranks share.

runs/<allocation id>/
    plan.json            the GangPlan, written before anything is started
    control              the control page
    orders.json          the PassOrders with the latest orders
    journal-<rank>       records, one JSON line each
    output-<rank>        what the rank prints
    work/                a copy of the context directory, which the ranks work in
    kernel-<rank>.json   Jupyter connection file of the rank's kernel
    ranks.json           pids and births, once started
    exit.json            the GangExited, once over
    closed               exists while the folder is removed, after the master has everything
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# By these a process finds the run that it works for, though a script or a launcher has started it:
# the run's folder with its plan, the data folder, and how its ranks meet (see GangSpec). Ranks of
# an entrypoint that is started once per computer have them in their environment.
RUN_VARIABLE = "DET_JUPYTER_RUN_DIR"
DATA_VARIABLE = "DET_JUPYTER_DATA_DIR"
STORE_VARIABLE = "DET_JUPYTER_STORE"
SECRET_VARIABLE = "DET_JUPYTER_SECRET"


@dataclass(frozen=True, slots=True)
class RunDir:
    """Names of the files of one run."""

    path: Path

    @property
    def plan(self) -> Path:
        """The GangPlan."""
        return self.path / "plan.json"

    @property
    def control(self) -> Path:
        """The control page."""
        return self.path / "control"

    @property
    def orders(self) -> Path:
        """The PassOrders with the latest orders."""
        return self.path / "orders.json"

    @property
    def ranks(self) -> Path:
        """Pids and births of the ranks."""
        return self.path / "ranks.json"

    @property
    def exit(self) -> Path:
        """The GangExited."""
        return self.path / "exit.json"

    @property
    def closed(self) -> Path:
        """Exists while the folder is removed."""
        return self.path / "closed"

    def journal(self, rank: int) -> Path:
        """The rank's records."""
        return self.path / f"journal-{rank}"

    def output(self, rank: int) -> Path:
        """The rank's stdout and stderr."""
        return self.path / f"output-{rank}"

    @property
    def work(self) -> Path:
        """The copy of the context directory."""
        return self.path / "work"

    def connection_file(self, rank: int) -> Path:
        """The rank's Jupyter connection file."""
        return self.path / f"kernel-{rank}.json"


def runs_root(data_dir: Path) -> Path:
    """Return the folder of all runs."""
    return data_dir / "runs"


def run_dir(data_dir: Path, allocation_id: str) -> RunDir:
    """Return the folder of one run."""
    return RunDir(runs_root(data_dir) / allocation_id)
