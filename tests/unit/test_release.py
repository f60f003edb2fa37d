"""What a release needs agrees: versions, the conda recipe, workflows, forms, constraints."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import det_jupyter
from tests import release_check
from tests.interpreters import OLDEST, PROJECT, PROMISED, ROOT
from tests.release_check import CASES, SCHEMAS

TOOL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
BUMPS = TOOL["bumpversion"]["files"]
RECIPE = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text(encoding="utf-8"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
CONDA_NAMES = {"torch": "pytorch"} | {
    name: name.replace("-", "_")
    for name in (
        *("jupyter-client", "jupyter-core", "jupyter-events", "jupyter-server"),
        *("prometheus-client", "typing-extensions"),
    )
}


def test_the_version_is_the_one_that_releases_start_from() -> None:
    assert TOOL["bumpversion"]["current_version"] == det_jupyter.__version__


@pytest.mark.parametrize("bump", BUMPS, ids=lambda bump: bump["filename"])
def test_a_release_finds_each_place_of_the_version(bump: dict[str, Any]) -> None:
    sought = bump.get("search", "{current_version}")
    pattern = sought if bump.get("regex") else re.escape(sought).replace(r"\{", "{")
    pattern = re.sub(r"\{current_version\\?\}", re.escape(det_jupyter.__version__), pattern)
    text = (ROOT / bump["filename"]).read_text(encoding="utf-8")
    is_twice = bump["filename"].endswith("package-lock.json")
    assert len(re.findall(pattern, text)) == (2 if is_twice else 1)


def test_the_conda_recipe_requires_what_pip_requires() -> None:
    run = {name: bounds for name, _, bounds in
           (line.partition(" ") for line in RECIPE["requirements"]["run"])}  # fmt: skip
    del run["__unix"]
    ours = {each.name: each.specifier for each in map(Requirement, PROJECT["dependencies"])}
    expected = {CONDA_NAMES.get(name, name): bounds for name, bounds in ours.items()}
    expected["python"] = SpecifierSet(PROJECT["requires-python"])
    assert {name: SpecifierSet(bounds) for name, bounds in run.items()} == expected


def test_the_conda_recipe_is_of_this_package() -> None:
    assert RECIPE["package"]["name"] == PROJECT["name"]
    assert RECIPE["about"]["summary"] == PROJECT["description"]
    assert RECIPE["about"]["license"] == PROJECT["license"]
    programs = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert RECIPE["build"]["python"]["entry_points"] == programs
    assert RECIPE["source"]["sha256"] == "0" * 64  # what release_check replaces
    assert RECIPE["context"]["python_min"] == ".".join(map(str, OLDEST[:2]))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_calls_targets_that_exist_and_pins_what_it_uses(workflow: Path) -> None:
    text = workflow.read_text(encoding="utf-8")
    targets = re.findall(r"run: make ([\w-]+)", text)
    known = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets
    assert set(targets) <= set(known)
    assert len(re.findall(r"uses: .*@[0-9a-f]{40} # v", text)) == text.count("uses: ")


def test_the_tests_run_on_all_pythons_that_are_promised() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    assert jobs["linux"]["strategy"]["matrix"]["python"] == PROMISED


def test_a_bug_report_asks_for_the_support_bundle() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug_report.yml").read_text())
    (bundle,) = [each for each in form["body"] if each["id"] == "bundle"]
    assert "`det support-bundle" in bundle["attributes"]["description"]
    assert bundle["validations"]["required"]


def test_each_schema_has_files() -> None:
    for pattern in SCHEMAS.values():
        assert list(ROOT.glob(pattern)), pattern


def test_both_packages_have_the_license() -> None:
    assert (ROOT / "compat/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_lowest_pins_each_requirement_that_has_a_bound() -> None:
    pins = dict(line.split("==") for line in CASES["3.11-lowest"].constraints())
    assert pins["torch"] == "2.7"
    assert {"jupyterlab", "scikit-learn", "pandas"} <= pins.keys()  # README's extras
    bare = {each.name for each in map(Requirement, PROJECT["dependencies"]) if not each.specifier}
    assert {each.name for each in map(Requirement, PROJECT["dependencies"])} - pins.keys() == bare


def test_the_other_cases_pin_nothing_or_the_front_end() -> None:
    assert CASES["3.12-newest"].constraints() == []
    assert CASES["3.13-old-front-end"].constraints() == ["jupyterlab==4.2", "ipykernel==6.29"]


def test_an_unknown_case_is_answered_with_those_that_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["release_check", "3.9-newest"])
    with pytest.raises(SystemExit):
        release_check.main()
    assert "no case 3.9-newest: there are 3.11-lowest, 3.11-newest" in capsys.readouterr().err
