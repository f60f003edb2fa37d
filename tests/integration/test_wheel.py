"""The wheel: what is in it, that Jupyter finds its extensions, and how much a page loads of it.

It is built by hatchling in this environment from the front end that is built already (`make setup`
builds it), and installed without Node and without dependencies into an environment of its own that
borrows the dependencies of this one. That takes seconds, where downloading all of them would take
minutes.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import hatch_build
from det_jupyter import __version__
from det_jupyter.front.verbs.docs_pages import REPOSITORY, Page

ROOT = Path(__file__).parents[2]
LAB = "share/jupyter/labextensions/det-jupyter"

# Both commands in forks of one process: each loads Jupyter's server for two seconds of CPU.
LISTS = """
import os, runpy, sys
import jupyter_server.serverapp
for module in ("jupyterlab.labextensions", "jupyter_server.extension.serverextension"):
    sys.argv = [module, "list"]
    print("====", flush=True)
    if os.fork() == 0:
        runpy.run_module(module, run_name="__main__")
        sys.exit()
    _, status = os.wait()
    assert status == 0, module
"""

pytestmark = pytest.mark.skipif(
    not hatch_build.is_current(), reason="the front end is not built: run hatch_build.py"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=without_node(), check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def without_node() -> dict[str, str]:
    """Return an environment in which nothing could be built anew."""
    return os.environ | {"PATH": str(Path(sys.executable).parent)}


def names(wheel: Path) -> set[str]:
    """Return the files of a wheel; shared ones by their place in an environment."""
    listed = zipfile.ZipFile(wheel).namelist()
    return {re.sub(r"^[^/]+\.data/data/", "", name) for name in listed}


def test_it_has_the_front_end_once_and_is_small(wheel: Path) -> None:
    inside = names(wheel)
    assert {
        "det_jupyter/front/notebook/static/widget.js",
        "det_jupyter/front/notebook/static/tabs.js",
        "det_jupyter/front/notebook/static/page.js",
        "det_jupyter/front/notebook/static/widget.css",
        "etc/jupyter/jupyter_server_config.d/det_jupyter.json",
        "share/det_jupyter/kernels/det-worker/kernel.json",
        f"{LAB}/package.json",
        f"{LAB}/install.json",
        f"{LAB}/static/style.js",
        f"{LAB}/schemas/det-jupyter/settings.json",
        f"{LAB}/schemas/det-jupyter/package.json.orig",
    } <= inside
    assert [name for name in inside if name.startswith("det_jupyter/labextension")] == []
    assert [name for name in inside if "node_modules" in name or name.endswith(".map")] == []
    # 0.2 MB are pages of the documentation, 0.1 MB is the view in exported pages.
    assert wheel.stat().st_size < 2_800_000


def test_it_has_all_pages_and_no_pictures_of_them(wheel: Path) -> None:
    pages = {name for name in names(wheel) if name.startswith("det_jupyter/docs/")}
    docs = ROOT / "docs"
    assert pages == {f"det_jupyter/docs/{path.relative_to(docs)}" for path in docs.rglob("*.md")}


def test_links_of_its_description_lead_to_files_of_the_repository(wheel: Path) -> None:
    (about,) = (name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("/METADATA"))
    links = re.findall(r"\]\(([^)]+)\)", zipfile.ZipFile(wheel).read(about).decode())
    assert [link for link in links if not link.startswith("https://")] == []
    ours = [link.removeprefix(REPOSITORY) for link in links if link.startswith(REPOSITORY)]
    assert "docs/try.md" in ours
    assert [link for link in ours if not (ROOT / link.partition("#")[0]).exists()] == []


def test_its_bundles_name_no_file_of_the_computer_that_built_them(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    for name in archive.namelist():
        if name.endswith((".js", ".css", ".json")):
            text = archive.read(name).decode()
            assert re.search(r"sourceMappingURL=[\w.]+\.map", text) is None, name
            assert str(ROOT) not in text, name


@pytest.mark.long  # the README's installation, in tests/e2e, shows it too
def test_jupyter_finds_both_extensions_and_det_the_pages(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "env")
    printed = run(
        python, "from det_jupyter.front.verbs import docs_pages; print(docs_pages.find('hang'))"
    )
    assert printed == f"{Page('hangs')!r}\n"
    _, lab, server = run(python, LISTS).split("====\n")
    assert re.search(rf"det-jupyter v{__version__}.*enabled.*OK.*\(python, det-jupyter\)", lab)
    assert re.search(r"det_jupyter.*enabled", server)
    assert re.search(rf"det_jupyter {__version__}.*OK", server)


def installed(wheel: Path, folder: Path) -> Path:
    """Install the wheel, and nothing else; returns the interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", *options, str(wheel)]
    subprocess.run(pip, env=without_node(), check=True)
    borrowed = Path(sysconfig.get_path("purelib"))  # without its .pth files: not our sources
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(str(borrowed))
    return python


def run(python: Path, code: str) -> str:
    """Return what code prints, in an environment where only `python`'s Jupyter is known."""
    env = {name: value for name, value in without_node().items() if "JUPYTER" not in name}
    done = subprocess.run(
        [python, "-c", code],
        cwd=python.parent, env=env | {"HOME": str(python.parent)}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_view_is_small() -> None:
    script, tabs, style = (
        len(gzip.compress((ROOT / "det_jupyter/front/notebook/static" / name).read_bytes()))
        for name in ("widget.js", "tabs.js", "widget.css")
    )
    assert script < 54_000, "each view carries it"
    assert script + tabs + style < 80_000


def test_what_is_loaded_at_the_start_is_small() -> None:
    chunks = chunks_at_start()
    assert chunks, "the names in remoteEntry.js are not found any more"
    code = b"".join(path.read_bytes() for path in [entry(), *chunks])
    assert len(gzip.compress(code)) < 65_000


def test_charts_are_not_loaded_at_the_start() -> None:
    assert not any("uPlot" in path.read_text() for path in chunks_at_start())


def entry() -> Path:
    about = json.loads((hatch_build.LAB / "package.json").read_text())
    return hatch_build.LAB / str(about["jupyterlab"]["_build"]["load"])


def chunks_at_start() -> list[Path]:
    """Return the chunks that JupyterLab fetches of each extension, whatever is opened."""
    exposed = re.findall(
        r'"\./(?:extension|mimeExtension|style)":(.*?)=>\(\)=>', entry().read_text()
    )
    numbers = {number for text in exposed for number in re.findall(r"\.e\((\d+)\)", text)}
    return [path for number in numbers for path in entry().parent.glob(f"{number}.*.js")]
