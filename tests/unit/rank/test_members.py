"""Ranks prove to each other that they are of one gang; their connections are played."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from det_jupyter.errors import PeerRefused
from det_jupyter.rank import membership
from det_jupyter.rank.membership import check_members

SIZE = 3


class LostNetwork(RuntimeError):
    """As torch's DistNetworkError."""


class Network:
    """Connections between ranks that are threads; `error` is what an exchange raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self._sent: dict[int, torch.Tensor] = {}
        self._met = threading.Barrier(SIZE)
        dist = SimpleNamespace(
            get_rank=lambda group: group,
            get_world_size=lambda group: SIZE,
            all_to_all_single=self._exchange,
            DistNetworkError=LostNetwork,
        )
        monkeypatch.setattr(membership, "dist", dist)

    def _exchange(
        self, received: torch.Tensor, sent: torch.Tensor, *, group: int, async_op: bool
    ) -> Any:
        assert async_op

        def wait(limit: timedelta) -> None:
            assert limit == timedelta(seconds=30)
            if self.error is not None:
                raise self.error
            self._sent[group] = sent
            self._met.wait()
            size = len(sent) // SIZE
            parts = [self._sent[peer][group * size : (group + 1) * size] for peer in range(SIZE)]
            received.copy_(torch.cat(parts))

        return SimpleNamespace(wait=wait)

    def check(self, *secrets: bytes, names: tuple[str, ...] = ("gradients",) * SIZE) -> list[str]:
        """Let ranks with these secrets check each other; return what each raises."""
        raised = [""] * SIZE

        def rank(number: int) -> None:
            try:
                check_members(number, names[number], secrets[number])  # type: ignore[arg-type]
            except PeerRefused as error:
                raised[number] = str(error)

        threads = [threading.Thread(target=rank, args=(number,)) for number in range(SIZE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return raised


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    return Network(monkeypatch)


def test_ranks_with_one_secret_accept_each_other(network: Network) -> None:
    assert network.check(b"s", b"s", b"s") == ["", "", ""]


def test_a_program_without_the_secret_is_refused_by_all_others(network: Network) -> None:
    refused = "what has connected as rank 1 does not have this gang's secret"
    raised = network.check(b"s", b"other", b"s")
    assert raised[0].startswith(f"rank 0: {refused}")
    assert raised[2].startswith(f"rank 2: {refused}")
    assert raised[1].startswith("rank 1: what has connected as rank 0 does")


def test_a_proof_for_one_group_is_none_for_another(network: Network) -> None:
    raised = network.check(b"s", b"s", b"s", names=("script 1", "script 2", "script 1"))
    assert [bool(each) for each in raised] == [True, True, True]


def test_without_a_secret_nothing_is_exchanged(network: Network) -> None:
    network.error = AssertionError("it is")
    check_members(0, "gradients", b"")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("waited_s", "kind", "message"),
    [
        (29.9, LostNetwork, "rank 0: a connection to another rank ended before that rank had"),
        (30.0, PeerRefused, "rank 0: another rank has not proved within 30 s that it is of"),
    ],
)
def test_an_exchange_that_fails_is_told_by_how_long_it_took(
    network: Network,
    monkeypatch: pytest.MonkeyPatch,
    waited_s: float,
    kind: type[Exception],
    message: str,
) -> None:
    times = iter([100.0, 100.0 + waited_s])
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: next(times)))
    network.error = RuntimeError("connection closed by peer")
    with pytest.raises(kind, match=message):
        check_members(0, "gradients", b"s")  # type: ignore[arg-type]
