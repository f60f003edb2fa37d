"""What the chief says while it waits for ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.core.ranks import host
from det_jupyter.core.ranks.meeting import Meeting, meet
from det_jupyter.core.ranks.place import Place
from det_jupyter.errors import WaitTimeout


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
