"""Which environments of two computers may exchange captured code."""

from __future__ import annotations

import platform
from importlib import metadata

import pytest

from det_jupyter.contract.host.versions import find_difference, installed_versions

TORCH = "2.13.0"
PYTHON = platform.python_version()


@pytest.fixture(autouse=True)
def torch_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this interpreter a version of torch: tests.interpreters installs none."""
    monkeypatch.setattr(metadata, "version", lambda _: f"{TORCH}+cpu")


def test_own_environment_does_not_differ() -> None:
    assert find_difference("b", installed_versions()) == ""


def test_builds_for_other_devices_and_other_patches_of_python_do_not_differ() -> None:
    patch = f"{PYTHON.rpartition('.')[0]}.99"
    assert find_difference("b", {"python": patch, "torch": f"{TORCH}+cu130"}) == ""


def test_difference_names_both_versions_and_what_to_do() -> None:
    found = find_difference("b", {"python": "3.9.1", "torch": TORCH})
    assert found.startswith(f"agent b has Python 3.9.1, and this computer Python {PYTHON}; start")
    found = find_difference("b", {"python": PYTHON, "torch": "2.0.0"})
    assert "agent b has torch 2.0.0" in found
    assert f"python -m pip install torch=={TORCH}" in found
    assert "agent b has no torch" in find_difference("b", {"python": PYTHON, "torch": ""})
