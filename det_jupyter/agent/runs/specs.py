"""Builds the spec of each rank of a gang: its place in the gang, and values that all ranks share.

A gang may be on several agents of this process (devices/offered_slots.py). These are on one
computer, so the ranks connect over its loopback interface. A gang on several computers has a part
on each (tunnel/part.py), and the specs here are those of this process's ranks. In both cases the
places have torchrun's terms:

    rank              0      1      2      3
    agent             left   left   right  right
    group_rank        0      0      1      1          agents in the order of their first ranks
    local_rank        0      1      0      1
"""

from __future__ import annotations

import secrets
from pathlib import Path

from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.messages import GangNetwork, GangPlan, RankPlace, RankSpec

_LOOPBACK = "127.0.0.1"
_TORCHRUN_PORT = 29500


def make_specs(
    run: AgentRun, network: GangNetwork | None = None, *, lifeline_fd: int, num_threads: int
) -> list[RankSpec]:
    """Return the specs of a run's ranks here, in rank order, for one attempt to start them.

    Each call returns a new store and secret, because the ranks of an attempt that failed may have
    written to the store. On several computers these are the same for all attempts (launcher.py).

    Args:
        network: How the ranks reach each other, if the gang is on several computers.
    """
    assert run.sockets is not None
    if run.link is not None and network is not None:
        address, port = network.addresses[0], _TORCHRUN_PORT
        store, secret = shared_store(run.sockets), run.link.secret
    else:
        address = _LOOPBACK
        port = free_port() if run.world_size > 1 or run.plan.is_program else 0
        store, secret = run.sockets / f"store-{secrets.token_hex(4)}", secrets.token_hex(32)
    places = rank_places(
        run.plan,
        lifeline_fd=lifeline_fd,
        num_threads=num_threads,
        master_addr=address,
        master_port=port,
    )
    return [
        RankSpec(
            plan=run.plan,
            place=place,
            run_dir=str(run.dir.path),
            data_dir=str(paths.data_dir()),
            socket_dir=str(run.sockets),
            store=str(store),
            network=network,
            secret=secret,
            environment=run.environment,
        )
        for place in places
        if place.rank in run.ranks
    ]


def shared_store(sockets: Path) -> Path:
    """Return the path of the store of a gang on several computers."""
    return sockets / "store"


def rank_places(
    plan: GangPlan,
    *,
    lifeline_fd: int,
    num_threads: int,
    master_addr: str = _LOOPBACK,
    master_port: int,
) -> list[RankPlace]:
    """Return the place of each rank that is started as a process of its own.

    A program that starts the ranks of its computer itself gets the place of the first rank there.
    """
    homes = plan.homes  # agent of each rank
    groups = list(dict.fromkeys(homes))
    return [
        RankPlace(
            rank=rank,
            world_size=len(homes),
            local_rank=homes[:rank].count(home),
            local_world_size=homes.count(home),
            group_rank=groups.index(home),
            group_world_size=len(groups),
            master_addr=master_addr,
            master_port=master_port,
            lifeline_fd=lifeline_fd,
            num_threads=num_threads,
        )
        for rank, home in ((rank, homes[rank]) for rank in plan.process_ranks())
    ]
