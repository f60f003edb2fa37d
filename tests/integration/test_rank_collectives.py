"""Collectives between real ranks, on one computer and as if on several."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.rank_support import Lab
from tests.integration.test_rank_failures import FRAIL, frail

ASK = """
import json
d = self.context.distributed
me = {"rank": d.rank}
result = {
    "gather": d.gather(me), "allgather": d.allgather(me), "broadcast": d.broadcast(me),
    "gather_local": d.gather_local(me), "allgather_local": d.allgather_local(me),
    "broadcast_local": d.broadcast_local(me), "agents": d.get_num_agents(),
}
d.barrier()
with open(f"answer-{d.rank}", "w") as file:
    json.dump(result, file)
"""


def answers(lab: Lab, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((lab.cwd / f"answer-{rank}").read_text()) for rank in range(ranks)]


def test_collectives_are_in_the_order_of_ranks(lab: Lab) -> None:
    lab.start(FRAIL, frail(ASK, "__init__", on_ranks=(0, 1, 2)), ranks=3).ended()
    everyone = [{"rank": rank} for rank in range(3)]
    for rank, answer in enumerate(answers(lab, 3)):
        assert answer["allgather"] == answer["allgather_local"] == everyone
        assert answer["gather"] == answer["gather_local"] == (everyone if rank == 0 else None)
        assert answer["broadcast"] == answer["broadcast_local"] == {"rank": 0}


@pytest.mark.parametrize("sizes", [(2, 2), (1, 2)])
def test_local_collectives_stay_on_their_computer(lab: Lab, sizes: tuple[int, int]) -> None:
    ranks = sum(sizes)
    places = [
        {"local_rank": local, "local_world_size": size, "group_rank": group, "group_world_size": 2}
        for group, size in enumerate(sizes)
        for local in range(size)
    ]
    config = frail(ASK, "__init__", on_ranks=tuple(range(ranks)))
    lab.start(FRAIL, config, ranks=ranks, places=places).ended()
    for rank, answer in enumerate(answers(lab, ranks)):
        first = 0 if rank < sizes[0] else sizes[0]
        neighbours = [{"rank": first + i} for i in range(sizes[rank >= sizes[0]])]
        assert answer["allgather_local"] == neighbours
        assert answer["gather_local"] == (neighbours if rank == first else None)
        assert answer["broadcast_local"] == {"rank": first}
        assert len(answer["allgather"]) == ranks
        assert answer["agents"] == 2
