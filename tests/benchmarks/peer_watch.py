"""The cost for an agent of connecting to the other agents of its gang every 5 s.

    python -m tests.benchmarks.peer_watch [--seconds 20] [--agents 2 8 32]

All agents are in this process: each has a listener, and a watch of the others, over the loopback
interface. The CPU time of the process is divided by the number of agents, so it includes both ends
of the connections. Prints a table, then one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from det_jupyter.agent.tunnel import peers
from det_jupyter.agent.tunnel.dialing import Dialer
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.messages import GangLink
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.benchmarks.quick import arguments

QUICK = "--seconds 1 --agents 2"
KEYS = {"percent_of_a_core"}  # keys of the JSON in the last line

_GANG = "1.1.1"


async def percent_of_a_core(num_agents: int, seconds: float, pair: tuple[str, str]) -> float:
    """Return the CPU time of one of this many agents, in per cent of a core."""
    listeners = [GangListener() for _ in range(num_agents)]
    for listener in listeners:
        await listener.open()
    names = [f"node-{number}" for number in range(num_agents)]
    link = GangLink(
        agents=names,
        addresses=["127.0.0.1"] * num_agents,
        ports=[listener.port for listener in listeners],
        certificate=pair[0],
        key=pair[1],
        secret=secrets.token_hex(32),
    )
    dialers = [Dialer(gang=_GANG, link=link, here=[name]) for name in names]
    with ExitStack() as held:
        for listener in listeners:
            held.enter_context(listener.accepting(_GANG, link))
        watches = [asyncio.create_task(peers.watch(dialer)) for dialer in dialers]
        await asyncio.sleep(1)
        before = time.process_time()
        await asyncio.sleep(seconds)
        used_s = time.process_time() - before
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
    for listener in listeners:
        listener.close()
    return 100 * used_s / seconds / num_agents


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--agents", type=int, nargs="+", default=[2, 8, 32])
    options = parser.parse_args(arguments(QUICK))
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        pair = AgentAccess(Path(folder)).gang_certificate()
        for num_agents in options.agents:
            found[num_agents] = asyncio.run(percent_of_a_core(num_agents, options.seconds, pair))
    print("agents  connections each 5 s  % of a core, for each agent")
    for num_agents, percent in found.items():
        print(f"{num_agents:6d}  {num_agents * (num_agents - 1):20d}  {percent:.2f}")
    print(json.dumps({"percent_of_a_core": {str(n): round(p, 3) for n, p in found.items()}}))


if __name__ == "__main__":
    main()
