"""What the chief says, and whom it keeps, while it waits for ranks."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from det_jupyter.core.ranks import Meeting, host, meet
from det_jupyter.core.ranks.place import Place
from det_jupyter.errors import WaitTimeout
from tests.processes import wait_until


def test_a_chief_that_waits_for_long_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(host, "_QUIET_S", 0.01)
    place = Place(rank=0, size=3, local_size=3)
    with pytest.raises(WaitTimeout, match=r"ranks 1, 2 of 3 have not come to .* within 0\.5 s\."):
        meet(Meeting(tmp_path / "meeting"), place, timeout_s=0.5)
    (told,) = caplog.messages
    assert "ranks 1, 2 of 3 have not come to" in told
    assert "yet. Are all ranks started" in told


def visit(path: Path) -> socket.socket | None:
    """Return a connection that has got the chief's challenge, and does not answer."""
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(20)
    try:
        stranger.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        stranger.close()
        return None
    assert len(stranger.recv(100)) == 32
    return stranger


def test_connections_that_say_nothing_do_not_take_all_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_MOST_STRANGERS", 1)
    meeting = Meeting(tmp_path / "meeting", b"secret")
    chief, other = (Place(rank=rank, size=2, local_rank=rank, local_size=2) for rank in (0, 1))
    with ThreadPoolExecutor() as threads:
        hosting = threads.submit(meet, meeting, chief, timeout_s=20)
        strangers = [
            wait_until(lambda: visit(tmp_path / "meeting"), "the chief listens") for _ in range(10)
        ]
        for stranger in strangers[:7]:  # three are kept: one more than there are ranks
            assert stranger.recv(100) == b""
        (link, _) = meet(meeting, other, timeout_s=20)
        (_, back) = hosting.result()
    for each in (link, back):
        assert each is not None
        each.close()
    for stranger in strangers:
        stranger.close()
