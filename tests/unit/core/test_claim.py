"""Claims of chiefs to an address: who holds it, and when an unconnected rank contests it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.core.ranks.claim import Claim, contest, members_at, owners_beside
from det_jupyter.errors import LaunchError, PeerRefused


def moved(process: ProcessIdentity, ticks: int) -> ProcessIdentity:
    """Return a process that was started so many ticks later."""
    start, _, boot = process.birth.partition("@")
    return replace(process, pid=process.pid + 1, birth=f"{int(start) + ticks}@{boot}")


@pytest.mark.parametrize(("ticks", "is_contested"), [(1, True), (0, True), (-1, False)])
def test_a_rank_that_was_started_before_a_connected_one_contests_the_claim(
    ticks: int, is_contested: bool, tmp_path: Path
) -> None:
    claim = Claim.of(tmp_path / "claim", "rank 0 of 2 (the first)")
    try:
        claim.store_members("rank 0, rank 1", [moved(ProcessIdentity.of(os.getpid()), ticks)])
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
        own = ProcessIdentity.of(os.getpid())
        claim.store_members("rank 0, rank 1", [own, moved(own, 1)])
        contest(tmp_path / "claim", "rank 1 of 2")
    finally:
        claim.release()


def test_members_of_a_chief_that_has_ended_are_not_named(tmp_path: Path) -> None:
    own = ProcessIdentity.of(os.getpid())
    for process, expected in ((own, "rank 0"), (replace(own, birth="1@before"), "")):
        content = {"owner": "the first", "members": "rank 0", **asdict(process), "started": []}
        path = tmp_path / "claim"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        assert members_at(path) == expected


def test_the_next_chief_of_an_address_begins_uncontested(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    former = Claim.of(path, "the first")
    former.store_members("rank 0, rank 1", [moved(ProcessIdentity.of(os.getpid()), 1)])
    with pytest.raises(PeerRefused):
        contest(path, "rank 1 of 2")
    former.release()
    assert members_at(path) == ""
    with pytest.raises(PeerRefused, match="these ranks have met: rank 0, rank 1"):
        contest(path, "rank 2 of 2")  # the former chief has ended, and is contested still
    new = Claim.of(path, "the second")
    try:
        new.check()
        contest(path, "rank 1 of 2")
    finally:
        new.release()


def test_an_address_is_claimed_until_each_of_its_contexts_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "claim"
    one = Claim.of(path, "the first")
    assert Claim.of(path, "the first") is one
    one.release()
    assert path.exists()
    with pytest.raises(LaunchError, match="the first, has the place of this job"):
        Claim(path, "another")
    one.release()
    assert not path.exists()
    one.release()  # once more, as by a copy of the process
    Claim.of(path, "another").release()


def test_chiefs_that_wait_at_other_addresses_are_named(tmp_path: Path) -> None:
    claims = [Claim.of(tmp_path / f"{name}.claim", f"chief {name}") for name in "abc"]
    try:
        claims[1].store_members("rank 0, rank 1")
        assert owners_beside(tmp_path / "a.claim") == ["chief c"]
        assert owners_beside(tmp_path / "d.claim") == ["chief a", "chief c"]
        assert owners_beside(tmp_path / "d.other") == []
    finally:
        for claim in claims:
            claim.release()
