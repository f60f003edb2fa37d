"""What an integration says if its library is missing or too old."""

from __future__ import annotations

import pytest

from det_jupyter.errors import DetError
from det_jupyter.integrations import LEAST, require


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trainer", "no_such_trainer"):
        monkeypatch.setitem(LEAST, name, "2.4")


def test_missing_package_is_said_with_the_command_that_installs_it() -> None:
    with pytest.raises(DetError) as raised:
        require("no_such_trainer")
    assert str(raised.value) == (
        "det_jupyter.integrations.no_such_trainer needs no_such_trainer 2.4 or later, which is "
        "not installed; run `python -m pip install 'det-jupyter[no_such_trainer]'`"
    )


@pytest.mark.parametrize("installed", ["2.4", "2.4.0rc1", "2.10.1", "3.0"])
def test_version_that_is_new_enough_passes(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: installed)
    require("trainer")


def test_old_version_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.3.9")
    with pytest.raises(DetError, match=r"needs trainer 2\.4 or .*, which has version 2\.3\.9; "):
        require("trainer")
