"""What ranks learn from torch's process group, played by a store that they share."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest
import torch.distributed as dist

from det_jupyter.core.ranks import programs
from det_jupyter.core.ranks.programs import check_group, exchange_by_group
from det_jupyter.core.ranks.rank_info import RankInfo
from det_jupyter.errors import WaitTimeout


def place(rank: int, size: int = 2) -> RankInfo:
    return RankInfo(
        rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0, cross_size=1
    )


class Broken:
    """A store whose server is gone."""

    def wait(self, keys: list[str], timeout: Any) -> None:
        raise RuntimeError("Connection reset")


@pytest.fixture
def _group(monkeypatch: pytest.MonkeyPatch) -> None:
    torchs: Any = dist
    store = torchs.HashStore()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(programs, "_contexts", repeat(7))


@pytest.mark.usefixtures("_group")
def test_the_chief_sends_a_secret_and_a_port_of_this_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = exchange_by_group(place(0), 5.0)
    assert found is not None
    assert (len(found.secret), found.port > 0) == (32, True)
    assert exchange_by_group(place(1), 5.0) == found
    monkeypatch.setattr(programs, "_contexts", repeat(8))
    with pytest.raises(WaitTimeout, match=r"rank 0 of 2 has not .* within 0.01 s; rank 1 waits"):
        exchange_by_group(place(1), 0.01)
    assert exchange_by_group(place(1, size=3), 5.0) is None


@pytest.mark.usefixtures("_group")
def test_another_error_of_the_store_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", Broken)
    with pytest.raises(RuntimeError, match=r"^Connection reset$"):
        exchange_by_group(place(1), 5.0)


@pytest.mark.usefixtures("_group")
def test_a_rank_that_has_another_place_in_the_group_is_refused() -> None:
    check_group(place(1))
    for other in (place(0), place(1, size=3)):
        with pytest.raises(ValueError, match="torch's process group has rank 1 of 2, but RANK is"):
            check_group(other)


def test_without_a_group_nothing_is_exchanged_or_refused() -> None:
    assert exchange_by_group(place(1), 5.0) is None
    check_group(place(1))
