"""Tools, and a shell, whose master is a fake."""

from __future__ import annotations

from tests.unit.front.cli.conftest import det, master

__all__ = ["det", "master"]
