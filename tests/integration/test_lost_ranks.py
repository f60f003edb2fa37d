"""When a rank is lost, all others notice, and what else they have connected stays open."""

from __future__ import annotations

import socket

import pytest
import torch
import torch.distributed as dist

from det_jupyter.core import DistributedContext
from det_jupyter.core.peer_errors import is_lost_peer
from det_jupyter.pytorch.training.rank_connections import End, own_ends, shut_connections
from tests.integration.parallel_ranks import RankRunner

RANKS = 4  # 2 is no neighbour of 0: it exchanges with 1 and 3


def lose_first(distributed: DistributedContext, port: int) -> None:
    """Lose rank 0; none ends, or shuts anything but its connections, before all have noticed."""
    with socket.create_connection(("127.0.0.1", port)) as tracker:
        ends = distributed.allgather(own_ends())
        del ends[distributed.rank]
        if distributed.rank:
            with pytest.raises(RuntimeError) as lost:  # noqa: PT012
                while True:
                    dist.all_reduce(torch.ones(1))
            assert is_lost_peer(lost.value)
        shut_connections(set[End]().union(*ends))
        distributed.barrier()
        tracker.sendall(b"x")


def test_a_rank_that_is_no_neighbour_notices_while_the_neighbours_live(run: RankRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tracker:
        run(lose_first, RANKS, tracker.getsockname()[1])
        for _ in range(RANKS):
            with tracker.accept()[0] as connection:
                assert connection.recv(2) == b"x"
