"""Builds the spec of each rank of a gang: its place in the gang, and values that all ranks share.

A gang may be on several agents of this process (devices/offered_slots.py). These are on one
computer, so the ranks connect over its loopback interface. Everything else is as on several
computers, with torchrun's terms:

    rank              0      1      2      3
    agent             left   left   right  right
    group_rank        0      0      1      1          agents in the order of their first ranks
    local_rank        0      1      0      1
"""

from __future__ import annotations

import secrets
from collections.abc import Container

from det_jupyter.agent.runs.run import Run
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.messages import GangPlan, RankPlace, RankSpec
from det_jupyter.errors import LaunchError

_LOOPBACK = "127.0.0.1"


def make_specs(run: Run, *, lifeline_fd: int, num_threads: int) -> list[RankSpec]:
    """Return the specs of a run's ranks, in rank order, for one attempt to start them.

    Each call returns a new store and secret, because the ranks of an attempt that failed may have
    written to the store.
    """
    assert run.sockets is not None
    places = rank_places(
        run.plan,
        lifeline_fd=lifeline_fd,
        num_threads=num_threads,
        master_port=free_port() if run.world_size > 1 or run.plan.is_program else 0,
    )
    store, secret = run.sockets / f"store-{secrets.token_hex(4)}", secrets.token_hex(32)
    return [
        RankSpec(
            plan=run.plan,
            place=place,
            run_dir=str(run.dir.path),
            data_dir=str(paths.data_dir()),
            socket_dir=str(run.sockets),
            store=str(store),
            secret=secret,
            environment=run.environment,
        )
        for place in places
    ]


def rank_places(
    plan: GangPlan, *, lifeline_fd: int, num_threads: int, master_port: int
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
            master_addr=_LOOPBACK,
            master_port=master_port,
            lifeline_fd=lifeline_fd,
            num_threads=num_threads,
        )
        for rank, home in ((rank, homes[rank]) for rank in plan.process_ranks())
    ]


def check_agents(plan: GangPlan, offered: Container[str]) -> None:
    """Check that all agents of a gang belong to this process; others may be on other computers.

    Raises:
        LaunchError: Some do not.
    """
    agents = list(dict.fromkeys(plan.agent_ids))
    elsewhere = [agent for agent in agents if agent not in offered]
    if elsewhere:
        here = [agent for agent in agents if agent in offered]
        raise LaunchError(
            f"gangs over several computers are not possible yet: of the {len(plan.slots)} ranks "
            f"some are on {' and '.join(elsewhere)}, which the agent process of "
            f"{' and '.join(here) or 'this computer'} cannot start; ask for no more "
            "resources.slots_per_trial than one computer has"
        )
