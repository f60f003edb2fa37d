"""A new user's first minutes: README's install of the wheel, then the quickstart.

The wheel is installed into a new environment. What the package requires with README's extras, and
nothing else, is linked to from the environment that runs the tests. Its versions are those that
pip has chosen for `make setup`; it would download and unpack them again for a minute.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from det_jupyter.contract.host.paths import HOME_VARIABLE
from tests.new_environments import ROOT, checked, readme_extras, variables
from tests.processes import DetHome
from tests.unit.test_example_imports import OURS, closure

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs of an environment with what README's line installs."""
    folder = tmp_path_factory.mktemp("new")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    checked(build, ROOT, dict(os.environ))
    (wheel,) = folder.glob("*.whl")
    checked([sys.executable, "-m", "venv", "--without-pip", "env"], folder, dict(os.environ))
    bin = folder / "env" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(bin / "python"), "install", "--quiet"]
    # It would compile all modules, of which the quickstart imports a part.
    checked([*pip, "--no-compile", "--no-deps", "--no-index", str(wheel)], folder, variables(bin))
    (site,) = bin.parent.glob("lib/python*/site-packages")
    link(map(distribution, closure(readme_extras()) - {OURS}), site)
    return bin


def link(distributions: Iterable[Distribution], site: Path) -> None:
    """Add distributions to an environment: links to their packages and data, copied programs."""
    for each in distributions:
        for file in each.files or ():
            shared = file.parts[0] == ".."  # bin, etc, share
            name = Path(*file.parts) if shared else Path(file.parts[0])
            source, target = Path(str(each.locate_file(name))), site / name
            target = Path(os.path.normpath(target))
            if target.exists() or not source.exists() or name.name == "__pycache__":
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.parent.name == "bin" and (text := source.read_bytes()).startswith(b"#!"):
                target.write_bytes(
                    b"#!%s\n" % os.fsencode(target.parent / "python") + text.partition(b"\n")[2]
                )
                target.chmod(0o755)
            else:
                target.symlink_to(source)


def test_the_quickstart_runs_after_the_readmes_install_and_says_what_is_true(
    new_environment: Path, fresh_home: DetHome, examples: Path, tmp_path: Path
) -> None:
    document = nbformat.read(examples / "quickstart.ipynb", as_version=4)
    client = NotebookClient(
        document, timeout=None, resources={"metadata": {"path": str(tmp_path)}}
    )
    manager = client.create_kernel_manager()
    (kernel,) = new_environment.parent.glob("share/jupyter/kernels/python3/kernel.json")
    line = json.loads(kernel.read_text())["argv"]
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [str(new_environment / line[0]), *line[1:]]
    client.execute(env=variables(new_environment) | {HOME_VARIABLE: str(fresh_home.path)})
    (source,) = [c for c in document.cells if c.source.startswith("%%det_experiment")]
    (shown,) = [o.data for o in source.outputs if "text/html" in o.get("data", {})]
    assert "completed" in shown["text/plain"]
    assert "data:image/svg+xml," in shown["text/html"]
    master = fresh_home.client()  # of the master that the notebook has started
    view = master.experiment(master.experiments()[-1].id)
    master.session.close()
    programs = view.python, fresh_home.master().cmdline()[0]
    assert {Path(program).parent for program in programs} == {new_environment}
    assert view.state == "COMPLETED"
    assert (view.trials[0].best_metric or 0) >= 0.97
