"""What the package declares: dependencies, extras and types."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_core.paths import jupyter_path

import det_jupyter
from det_jupyter.contract.messages.pages import PAGE_PROTOCOL
from tests.rooms import imports_of, modules

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
FOR_DEVELOPERS = {"ci", "bench", "docs", "integrations", "test"}


def distribution(requirement: str) -> str:
    name = re.split(r"[\s\[<>=!~;]", requirement)[0]
    return name.lower().replace("_", "-")


def imported() -> set[str]:
    """Return the name of each package outside the standard library that the product imports."""
    names = {name.split(".")[0] for path in modules() for name, _ in imports_of(path)}
    return names - sys.stdlib_module_names - {"det_jupyter"}


def test_each_imported_package_is_declared() -> None:
    optional = [each for name, extra in EXTRAS.items() for each in extra
                if name not in FOR_DEVELOPERS]  # fmt: skip
    declared = {distribution(each) for each in PROJECT["dependencies"] + optional}
    # These are given, since they are not installed in the environments of all tests.
    given = {"mlflow": ["mlflow-skinny"], "google": ["protobuf"]}
    homes = {**given, **importlib.metadata.packages_distributions()}
    for name in imported():
        candidates = {each.lower().replace("_", "-") for each in homes.get(name, [name])}
        assert candidates & declared, f"{name} is imported; pyproject.toml does not declare it"


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - FOR_DEVELOPERS))
def test_each_extra_has_code_or_a_page_behind_it(extra: str) -> None:
    texts = [*ROOT.glob("det_jupyter/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    named = re.compile(rf"det-jupyter\[([\w,-]*,)?{extra}[],]")
    assert any(named.search(path.read_text(encoding="utf-8")) for path in texts)


def test_the_package_is_typed_also_where_it_imports_late() -> None:
    assert (Path(det_jupyter.__file__).parent / "py.typed").exists()
    for name in det_jupyter.__all__:
        getattr(det_jupyter, name)


def test_ranks_are_no_kernels_to_choose_from_and_can_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    for source, place in wheel["targets"]["wheel"]["shared-data"].items():
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, tmp_path / place)
    assert find_specs(tmp_path / "share/jupyter", monkeypatch) == set()
    assert find_specs(tmp_path / "share/det_jupyter", monkeypatch) == {"det-worker"}


def find_specs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the kernels that Jupyter finds if this is the only folder of data."""
    monkeypatch.setenv("JUPYTER_PATH", str(folder))
    here = [str(folder / "kernels")]
    assert here[0] in jupyter_path("kernels")
    return set(KernelSpecManager(kernel_dirs=here, ensure_native_kernel=False).get_all_specs())


def test_the_front_end_is_of_the_same_version() -> None:
    front = ROOT / "labextension"
    package = json.loads((front / "package.json").read_text())
    assert package["version"] == det_jupyter.__version__
    text = (front / "src/lab/connection/version.ts").read_text()
    assert f"VERSION = '{det_jupyter.__version__}'" in text
    assert f"PROTOCOL = {PAGE_PROTOCOL};" in text


def test_the_extension_manager_learns_what_belongs_together() -> None:
    lab = json.loads((ROOT / "labextension/package.json").read_text())
    server = lab["jupyterlab"]["discovery"]["server"]
    assert server == {"managers": ["pip"], "base": {"name": PROJECT["name"]}}
    install = json.loads((ROOT / "labextension/install.json").read_text())
    assert install["packageName"] == PROJECT["name"]
    assert "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt" in PROJECT["classifiers"]
    places = det_jupyter._jupyter_labextension_paths()
    assert places == [{"src": "labextension", "dest": lab["name"]}]


def test_only_what_is_imported_is_fetched_for_the_front_end() -> None:
    front = ROOT / "labextension"
    package = json.loads((front / "package.json").read_text())
    texts = [path.read_text() for path in (front / "src").rglob("*.ts")]
    imported = re.compile(r"from '((?:@[\w-]+/)?[\w-]+)(?:/[\w./-]+)?'")
    used = {name for text in texts for name in imported.findall(text)}
    tools = {"@jupyter/builder", "esbuild", "terser"}
    assert set(package["dependencies"]) - tools == used - set(package["devDependencies"])
