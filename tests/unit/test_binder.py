"""What Binder reads, as far as it can be checked without Binder: names of what exists."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from det_jupyter.agent.devices.offered_slots import CPU_SLOTS_VARIABLE
from det_jupyter.front.verbs.docs_pages import REPOSITORY

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINK = re.compile(r"https://mybinder\.org/v2/gh/([\w/-]+)/main\?urlpath=lab/tree/([\w./-]+)")


def test_the_python_is_one_that_the_package_supports() -> None:
    environment = yaml.safe_load((ROOT / "binder/environment.yml").read_text())
    versions = dict(each.split("=", 1) for each in environment["dependencies"] if "=" in each)
    python = versions["python"]
    assert f"{python}.99" in SpecifierSet(PROJECT["requires-python"])
    assert f"Programming Language :: Python :: {python}" in PROJECT["classifiers"]
    (torch,) = (each for each in PROJECT["dependencies"] if each.startswith("torch"))
    assert f"pytorch-cpu{torch.removeprefix('torch')}" in environment["dependencies"]


def test_the_extras_exist() -> None:
    named = re.search(r"'\.\[([\w,]+)\]'", (ROOT / "binder/postBuild").read_text())
    assert named is not None
    assert set(named[1].split(",")) <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_are_executable_bash(name: str) -> None:
    path = ROOT / "binder" / name
    assert os.access(path, os.X_OK)
    if bash := shutil.which("bash"):
        subprocess.run([bash, "-n", path], check=True)


def test_there_are_as_many_slots_as_the_quickstart_needs() -> None:
    notebook = json.loads((ROOT / "examples/quickstart.ipynb").read_text(encoding="utf-8"))
    source = "".join("".join(cell["source"]) for cell in notebook["cells"])
    needed = re.search(r"slots_per_trial: (\d+)", source)
    assert needed is not None
    assert f"export {CPU_SLOTS_VARIABLE}={needed[1]} " in (ROOT / "binder/start").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/README.md", "docs/try.md"])
def test_links_lead_to_a_notebook_of_this_repository(page: str) -> None:
    links = LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert links
    for repository, notebook in links:
        assert f"/{repository}/" in REPOSITORY
        assert (ROOT / notebook).is_file()
