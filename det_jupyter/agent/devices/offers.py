"""Which agents this process is at the master, and which slots each of them offers.

    --agent NAME=cpu:N ...                  simulated agents: each is told apart by the master as
    DET_JUPYTER_AGENTS="NAME=cpu:N ..."     if it were a computer of its own, with N CPU places
    neither                                 one agent of the computer's name, with its slots

So anyone can try on a laptop what a trial does on several computers. All of them share the cores
and the memory of this computer; their ranks meet over its loopback interface.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from det_jupyter.agent.devices.slots import cpu_places, discover_slots
from det_jupyter.wire import SlotView

logger = logging.getLogger(__name__)

AGENTS_VARIABLE = "DET_JUPYTER_AGENTS"
AGENTS_OPTION = "--agent"
_OFFER = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)=cpu:(?P<places>[1-9][0-9]{0,3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """An agent of this process, by its name at the master, and what it offers.

    Args:
        agent_id: Its name.
        slots: What it offers.
        problems: What was asked for and makes no sense, for people.
    """

    agent_id: str
    slots: list[SlotView]
    problems: tuple[str, ...] = ()


def offered_agents(
    options: Sequence[str], environ: Mapping[str, str], *, hostname: str
) -> list[Offer]:
    """Return the agents to be: simulated ones if any are asked for, else that of the computer.

    Args:
        options: What was given on the command line; wins over the variable.
        environ: Where the variable is.
        hostname: The name of the agent if none is asked for.
    """
    where = AGENTS_OPTION if options else AGENTS_VARIABLE
    words = options or environ.get(AGENTS_VARIABLE, "").split()
    simulated, problems = simulated_agents(words, where=where)
    for problem in problems:
        logger.error("%s", problem)
    offers = simulated or [Offer(agent_id=hostname, slots=discover_slots(environ))]
    return [replace(offers[0], problems=tuple(problems)), *offers[1:]]


def simulated_agents(words: Sequence[str], *, where: str) -> tuple[list[Offer], list[str]]:
    """Return what the words ask for, and what is wrong with those that ask for nothing sensible.

    >>> offers, _ = simulated_agents(["a=cpu:2", "b=cpu:8"], where="")
    >>> [(offer.agent_id, len(offer.slots)) for offer in offers]
    [('a', 2), ('b', 8)]
    """
    offers: dict[str, Offer] = {}
    problems: list[str] = []
    for word in words:
        match = _OFFER.fullmatch(word)
        if match is None:
            problems.append(f"got {word!r}, expected NAME=cpu:N, such as left=cpu:8")
        elif match["name"] in offers:
            problems.append(f"got {word!r}, but there is an agent {match['name']} already")
        else:
            slots = cpu_places(int(match["places"]))
            offers[match["name"]] = Offer(agent_id=match["name"], slots=slots)
    return list(offers.values()), [f"{where}: {problem}; ignored" for problem in problems]
