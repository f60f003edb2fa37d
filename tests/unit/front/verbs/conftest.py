from __future__ import annotations

import socket

import pytest


@pytest.fixture(autouse=True)
def _on_the_computer_of_agent_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the samples' agent "left" on this computer: lines are offered for its processes."""
    monkeypatch.setattr(socket, "gethostname", lambda: "left")
