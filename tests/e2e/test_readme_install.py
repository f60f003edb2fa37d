"""A new user's first minutes: README's install of the wheel, then the quickstart.

The environment is made by pip from nothing, with the versions of constraints.txt, and sees no
package of the one that runs the tests. [m] 95 s CPU, half of it pip's.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
import pytest

from tests.processes import DetHome

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"pip install '(?:det-jupyter|\.)\[([\w,-]+)\]'")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment in which README's line was run."""
    (extras,) = set(LINE.findall((ROOT / "README.md").read_text()))
    folder = tmp_path_factory.mktemp("new")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    checked(build, ROOT, dict(os.environ))
    (wheel,) = folder.glob("*.whl")
    checked([sys.executable, "-m", "venv", "env"], folder, dict(os.environ))
    bin = folder / "env" / "bin"
    # Bytecode of what is never imported takes a third of the time.
    options = ["--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt")]
    checked([bin / "pip", "install", *options, f"{wheel}[{extras}]"], folder, variables(bin))
    return bin


def variables(bin: Path) -> dict[str, str]:
    """Return an environment in which Jupyter and Python find nothing of other environments."""
    ours = ("JUPYTER", "IPYTHON", "PYTHON", "VIRTUAL_ENV", "PYTEST")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"PATH": f"{bin}:{os.defpath}", "HOME": str(bin.parent)}


def checked(command: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_quickstart_runs_after_the_readmes_install_and_says_what_is_true(
    new_environment: Path, fresh_home: DetHome, examples: Path, tmp_path: Path
) -> None:
    executed = tmp_path / "executed.ipynb"
    options = ["--timeout=300", f"--output={executed}"]
    checked(
        [new_environment / "jupyter", "execute", *options, examples / "quickstart.ipynb"],
        tmp_path,
        variables(new_environment) | {"DET_JUPYTER_HOME": str(fresh_home.path)},
    )
    document = nbformat.read(executed, as_version=4)
    (source,) = [c for c in document.cells if c.source.startswith("%%det_experiment")]
    (shown,) = [o.data for o in source.outputs if "text/html" in o.get("data", {})]
    assert "completed" in shown["text/plain"]
    assert "data:image/svg+xml," in shown["text/html"]
    client = fresh_home.client()  # of the master that the notebook has started
    view = client.experiment(client.experiments()[-1].id)
    client.session.close()
    programs = view.python, fresh_home.master().cmdline()[0]
    assert {Path(program).parent for program in programs} == {new_environment}
    assert view.state == "COMPLETED"
    assert (view.trials[0].best_metric or 0) >= 0.97
