"""Libraries that cannot be imported during a test."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def without(monkeypatch: pytest.MonkeyPatch, *libraries: str) -> None:
    """Have these libraries not be installed."""
    real = importlib.import_module

    def import_module(name: str, *args: Any) -> Any:
        if name.partition(".")[0] in libraries:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", import_module)
