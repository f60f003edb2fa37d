"""What the chief says, and whom it keeps, while it waits for ranks."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from det_jupyter.core.ranks import Meeting, gathering, handshake, meet
from det_jupyter.core.ranks.claim import Claim
from det_jupyter.core.ranks.handshake import CHALLENGE, MAGIC
from det_jupyter.core.ranks.rank_info import RankInfo
from det_jupyter.errors import WaitTimeout
from tests.processes import wait_until

# A chief in a process of its own: of one process the claims are shared.
SECOND_CHIEF = """
import sys
from pathlib import Path
from det_jupyter.core.ranks import Meeting, RankInfo, connect
meeting = Meeting(Path(sys.argv[1], "meeting"), claim=Path(sys.argv[1], "claim"))
for _ in range(2):
    try:
        connect(meeting, RankInfo(size=2, local_size=2), join_s=1, wait_s=1)
    except Exception as error:
        print(error)
"""


def test_a_chief_that_waits_for_long_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(handshake, "_QUIET_S", 0.01)
    place = RankInfo(rank=0, size=3, local_size=3)
    with pytest.raises(WaitTimeout, match=r"ranks 1, 2 of 3 have not come to .* within 0\.5 s\."):
        meet(Meeting(tmp_path / "meeting"), place, timeout_s=0.5)
    (told,) = caplog.messages
    assert "ranks 1, 2 of 3 have not come to" in told
    assert "yet. Are all ranks started" in told


def test_a_rank_that_waits_for_long_for_rank_0_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gathering, "_QUIET_S", 0.01)
    place = RankInfo(rank=1, size=2, local_rank=1, local_size=2)
    with pytest.raises(WaitTimeout, match=r"rank 0 of 2 has not come to .* within 0\.5 s;"):
        meet(Meeting(tmp_path / "meeting"), place, timeout_s=0.5)
    (told,) = caplog.messages
    assert "rank 0 of 2 has not come to" in told
    assert "yet. Are all ranks started" in told


def test_a_chief_that_asks_another_one_whose_ranks_have_just_met_is_told_whose_place_it_is(
    tmp_path: Path,
) -> None:
    """It is told, whether the other one leaves before it has heard the question or after."""
    claim = Claim.of(tmp_path / "claim", "rank 0 of 2 (the first)")
    with socket.socket(socket.AF_UNIX) as first, ThreadPoolExecutor() as threads:
        first.bind(str(tmp_path / "meeting"))
        first.listen()

        def admit_others() -> None:
            for hears_first in (False, True):
                visitor, _ = first.accept()
                visitor.send(CHALLENGE.pack(MAGIC, bytes(16), 5.0))
                if hears_first:
                    visitor.recv(4096)
                visitor.close()

        admitting = threads.submit(admit_others)
        second = subprocess.run(
            [sys.executable, "-c", SECOND_CHIEF, str(tmp_path)], capture_output=True, text=True
        )
        admitting.result()
    claim.release()
    assert second.stdout.count("rank 0 of 2 (the first), has the place of this job") == 2


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
    monkeypatch.setattr(handshake, "_MAX_UNADMITTED", 1)
    meeting = Meeting(tmp_path / "meeting", b"secret")
    chief, other = (RankInfo(rank=rank, size=2, local_rank=rank, local_size=2) for rank in (0, 1))
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
