"""Claims of chiefs to an address: who holds it, and when an unconnected rank contests it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from det_jupyter.contract.host.processes import Process
from det_jupyter.core.ranks.claim import Claim, contest, members_at
from det_jupyter.errors import PeerRefused


def moved(process: Process, ticks: int) -> Process:
    """Return a process that was started so many ticks later."""
    start, _, boot = process.birth.partition("@")
    return replace(process, pid=process.pid + 1, birth=f"{int(start) + ticks}@{boot}")


@pytest.mark.parametrize(("ticks", "is_contested"), [(1, True), (0, True), (-1, False)])
def test_a_rank_that_was_started_before_a_connected_one_contests_the_claim(
    ticks: int, is_contested: bool, tmp_path: Path
) -> None:
    claim = Claim.of(tmp_path / "claim", "rank 0 of 2 (the first)")
    try:
        claim.store_members("rank 0, rank 1", [moved(Process.of(os.getpid()), ticks)])
        if is_contested:
            with pytest.raises(PeerRefused, match="rank 1 of 2 is left over"):
                contest(tmp_path / "claim", "rank 1 of 2")
            with pytest.raises(PeerRefused, match="rank 1 of 2 is left over"):
                claim.check()
        else:
            contest(tmp_path / "claim", "rank 1 of 2")
            claim.check()
    finally:
        claim.release()


def test_a_connected_rank_does_not_contest_its_own_claim(tmp_path: Path) -> None:
    claim = Claim.of(tmp_path / "claim", "rank 0 of 2 (the first)")
    try:
        own = Process.of(os.getpid())
        claim.store_members("rank 0, rank 1", [own, moved(own, 1)])
        contest(tmp_path / "claim", "rank 1 of 2")
    finally:
        claim.release()


def test_members_of_a_chief_that_has_ended_are_not_named(tmp_path: Path) -> None:
    own = Process.of(os.getpid())
    for process, expected in ((own, "rank 0"), (replace(own, birth="1@before"), "")):
        content = {"owner": "the first", "members": "rank 0", **asdict(process), "started": []}
        path = tmp_path / "claim"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        assert members_at(path) == expected
