"""Where each rank of a gang is, in torchrun's words; computes, and knows no processes.

A gang may lie on several agents of this process (offers.py). They are on one computer, so their
ranks meet on its loopback interface; all else is as on several computers, a group of ranks each:

    rank              0      1      2      3
    agent             left   left   right  right
    group_rank        0      0      1      1          agents in the order of their first ranks
    local_rank        0      1      0      1
"""

from __future__ import annotations

from collections.abc import Container

from det_jupyter.errors import LaunchError
from det_jupyter.wire import GangPlan, RankPlace

_LOOPBACK = "127.0.0.1"


def rank_places(
    plan: GangPlan, *, lifeline_fd: int, num_threads: int, master_port: int
) -> list[RankPlace]:
    """Return the place of each rank."""
    homes = plan.agent_ids or [""] * len(plan.slots)
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
        for rank, home in enumerate(homes)
    ]


def check_agents(plan: GangPlan, offered: Container[str]) -> None:
    """Refuse a gang that lies on agents of other processes, and so perhaps of other computers.

    Raises:
        LaunchError: It does.
    """
    elsewhere = [agent for agent in dict.fromkeys(plan.agent_ids) if agent not in offered]
    if elsewhere:
        here = [agent for agent in dict.fromkeys(plan.agent_ids) if agent in offered]
        raise LaunchError(
            f"gangs over several computers are not possible yet: of the {len(plan.slots)} ranks "
            f"some are on {' and '.join(elsewhere)}, which the agent process of "
            f"{' and '.join(here) or 'this computer'} cannot start; ask for no more "
            "resources.slots_per_trial than one computer has"
        )
