"""Builds what a release uploads, checks the files, and installs them as users do.

    python -m tests.release_check [CASE ...]     make release-check CASES="3.11-lowest"

A case is a Python and the versions of everything else: `lowest` are the lowest ones that
pyproject.toml accepts, `newest` what pip chooses, `old-front-end` the lowest of JupyterLab and
ipykernel among the newest of all others. Each case has a new environment, with the wheel and the
extras of README's install, in which the quickstart runs; then the sdist replaces the wheel.

In build/release/ are afterwards the files to upload (dist/, and compat/dist/ for
det-jupyter-determined), the constraints of each case, and the conda recipe with the checksum of
the sdist. The exit status is 1 if something failed. A Python that this machine lacks is named,
and is no failure.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from packaging.requirements import Requirement

from det_jupyter import __version__
from tests.interpreters import PROJECT, PROMISED, ROOT, find
from tests.new_environments import checked, readme_extras, run_quickstart, variables

FOLDER = ROOT / "build/release"
MOST_WHEEL_BYTES = 3_000_000
TOOLS = ["build", "check-jsonschema>=0.34", "check-manifest>=0.50", "hatchling>=1.26", "twine>=6"]
TOOLS += ["zizmor"]  # finds what is unsafe in workflows
# What only a hosting service reads, by the schema of check-jsonschema that it has to agree with.
SCHEMAS = {
    "github-workflows": ".github/workflows/*.yml",
    "github-issue-forms": ".github/ISSUE_TEMPLATE/*_*.yml",
    "github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "dependabot": ".github/dependabot.yml",
    "citation-file-format": "CITATION.cff",
}
OLD_FRONT_END = ("jupyterlab", "ipykernel")
VERSIONS = (
    "import sys; from importlib.metadata import version as of; "
    "print('Python %d.%d.%d' % sys.version_info[:3], "
    "*(f'{name} {of(name)}' for name in ('torch', 'jupyterlab', 'ipykernel')), sep=', ')"
)


@dataclass(frozen=True)
class Case:
    """A Python, and the versions of what is installed for it."""

    python: str
    versions: str

    @property
    def name(self) -> str:
        return f"{self.python}-{self.versions}"

    def constraints(self) -> list[str]:
        """Return the lines of a constraints file; none if pip chooses all versions."""
        ours = f"{PROJECT['name']}[{','.join(readme_extras())}]"
        lowest = {each.name: each for each in requirements(*PROJECT["dependencies"], ours)}
        names = {"lowest": lowest, "newest": (), "old-front-end": OLD_FRONT_END}[self.versions]
        return [f"{name}=={bound}" for name in names for bound in lower_bounds(lowest[name])]


CASES = {
    each.name: each
    for each in (
        Case(PROMISED[0], "lowest"),
        *(Case(python, "newest") for python in PROMISED),
        Case(PROMISED[-1], "old-front-end"),
    )
}


def main() -> int:
    """Check the files and the cases; return the exit status."""
    parser = argparse.ArgumentParser(description="What a release uploads, built and tried.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; or all")
    named = parser.parse_args().cases or list(CASES)
    if unknown := [name for name in named if name not in CASES]:
        parser.error(f"no case {', '.join(unknown)}: there are {', '.join(CASES)}")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    # Without the files there is nothing to install.
    is_good = reported("files", check_files)
    results = [is_good and reported(name, partial(check, CASES[name])) for name in named]
    return 0 if all(results) else 1


def reported(name: str, step: Callable[[], str]) -> bool:
    """Run a step and print its result; return whether it succeeded."""
    try:
        print(f"{name}: {step()}", flush=True)
    except RuntimeError as error:
        print(f"{name}: failed: {error}", flush=True)
        return False
    return True


def check_files() -> str:
    """Build all files of a release and check them; return a sentence on the wheel.

    Raises:
        RuntimeError: A tool found a fault, or the wheel is too large or differs with the sdist.
    """
    tools = new_environment(Path(sys.executable), FOLDER / "tools")
    pip(tools, TOOLS)
    # npm may be anywhere; PyPI's is beside this Python.
    path = f"{tools}:{os.environ['PATH']}:{Path(sys.executable).parent}"
    environment = variables(tools) | {"PATH": path, "DET_REQUIRE_FRONTEND": "1"}
    build = [str(tools / "python"), "-m", "build", "--no-isolation"]
    for project, place in ((ROOT, FOLDER / "dist"), (ROOT / "compat", FOLDER / "compat/dist")):
        checked([*build, "--outdir", place, project], ROOT, environment)
        checked([tools / "twine", "check", "--strict", *place.iterdir()], ROOT, environment)
    checked([*build, "--wheel", "--outdir", FOLDER / "from-checkout", ROOT], ROOT, environment)
    (wheel,) = (FOLDER / "dist").glob("*.whl")
    (other,) = (FOLDER / "from-checkout").glob("*.whl")
    if differing := contents(wheel) ^ contents(other):
        names = sorted({name for name, _ in differing})
        raise RuntimeError(f"the sdist makes another wheel than the checkout: {', '.join(names)}")
    num_bytes = wheel.stat().st_size
    if num_bytes > MOST_WHEEL_BYTES:
        raise RuntimeError(f"{wheel.name}: {num_bytes:,} bytes, more than {MOST_WHEEL_BYTES:,}")
    # It builds what git has, front end too, in a folder of its own.
    checked([tools / "check-manifest", "--no-build-isolation", ROOT], ROOT, environment)
    for schema, pattern in SCHEMAS.items():
        command = [str(tools / "check-jsonschema"), "--builtin-schema", f"vendor.{schema}"]
        files = sorted(ROOT.glob(pattern))
        checked([*command, "--force-filetype", "yaml", *files], ROOT, environment)
    checked([tools / "zizmor", "--offline", "--quiet", ROOT / ".github"], ROOT, environment)
    write_recipe()
    return f"{wheel.name}, {num_bytes:,} bytes of {MOST_WHEEL_BYTES:,}"


def contents(wheel: Path) -> set[tuple[str, int]]:
    """Return names and checksums of the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {(each.filename, each.CRC) for each in archive.infolist()}


def write_recipe() -> None:
    """Write the conda recipe with the checksum of the sdist to build/release/recipe.yaml."""
    (sdist,) = (FOLDER / "dist").glob("*.tar.gz")
    digest = hashlib.sha256(sdist.read_bytes()).hexdigest()
    text = (ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8")
    (FOLDER / "recipe.yaml").write_text(text.replace("0" * 64, digest), encoding="utf-8")


def check(case: Case) -> str:
    """Install and try the files in a new environment; return versions and times.

    Raises:
        RuntimeError: A command failed; the environment is left.
    """
    python = find(case.python)
    if python is None:
        return f"left out: no Python {case.python} of {PROJECT['requires-python']} on this machine"
    started = time.monotonic()
    bin = new_environment(Path(python), FOLDER / case.name)
    (wheel,) = (FOLDER / "dist").glob("*.whl")
    (names,) = (FOLDER / "compat/dist").glob("*.whl")
    constraints = FOLDER / f"{case.name}.txt"
    constraints.write_text("\n".join(case.constraints()), encoding="utf-8")
    pip(bin, ["--constraint", constraints, f"{wheel}[{','.join(readme_extras())}]"])
    pip(bin, [names])
    installed = time.monotonic()
    said = use(bin)
    used = time.monotonic()
    shutil.rmtree(FOLDER / case.name)
    return f"{said}: installed in {installed - started:.0f} s, used in {used - installed:.0f} s"


def use(bin: Path) -> str:
    """Train with the wheel, replace it by the sdist; return the versions of what is installed."""
    folder = bin.parent
    try_out(bin)
    home = folder / "home"
    try:
        run_quickstart(bin, ROOT / "examples/quickstart.ipynb", folder / "executed.ipynb", home)
    finally:
        environment = variables(bin) | {"DET_JUPYTER_HOME": str(home)}
        checked([bin / "det", "master", "stop", "--everything"], folder, environment)
    (sdist,) = (FOLDER / "dist").glob("*.tar.gz")
    pip(bin, ["--force-reinstall", "--no-deps", sdist])
    try_out(bin)
    return checked([bin / "python", "-c", VERSIONS], folder, variables(bin)).strip()


def try_out(bin: Path) -> None:
    """Check that what is installed fits together, and that programs and Jupyter find us."""
    for command, expected in (
        ("pip check", ""),
        ("det --version", __version__),
        ("jupyter labextension list", f"{PROJECT['name']} v{__version__} .*enabled.*OK"),
        ("jupyter server extension list", f"det_jupyter {__version__} .*OK"),
    ):
        program, *arguments = command.split()
        said = checked([bin / program, *arguments], bin.parent, variables(bin))
        if not re.search(expected, said):
            raise RuntimeError(f"{command}: prints nothing like {expected!r}, but\n{said}")


def new_environment(python: Path, folder: Path) -> Path:
    """Make an environment and return the folder of its programs."""
    checked([python, "-m", "venv", "--clear", folder], FOLDER, os.environ)
    return folder / "bin"


def pip(bin: Path, arguments: Iterable[str | Path]) -> None:
    """Install into an environment, from where this user's pip does so."""
    command = [str(bin / "python"), "-m", "pip", "install", "-qq", "--no-compile"]
    user = variables(bin) | {"HOME": os.environ["HOME"]}
    checked([*command, *arguments], FOLDER, user)


def requirements(*texts: str) -> Iterator[Requirement]:
    """Yield what these requirements are, with those of our extras in place of their names."""
    for each in map(Requirement, texts):
        if each.name != PROJECT["name"]:
            yield each
        for extra in each.extras if each.name == PROJECT["name"] else ():
            yield from requirements(*PROJECT["optional-dependencies"][extra])


def lower_bounds(requirement: Requirement) -> list[str]:
    """Return the lowest version of a requirement; none if any will do."""
    return [each.version for each in requirement.specifier if each.operator == ">="]


if __name__ == "__main__":
    sys.exit(main())
