"""Agents sorted by a number of theirs, so that the right one is found without a look at all.

A shelf has sections (agents of one kind and one size) and in each of them levels: how many slots
are free, say. What a level is, the one who makes the shelf says. An agent that has changed is put
where it belongs when somebody looks next, so that ten changes of an agent cost one move.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

Section = tuple[str, int]  # kind and size
Place = tuple[Section, int]  # section and level


class Shelf:
    """Agents by section and level; within a level by id.

    Args:
        place: Tells where an agent belongs; None: not here.
    """

    def __init__(self, place: Callable[[str], Place | None]) -> None:
        self._place = place
        self._places: dict[str, Place] = {}
        self._sections: dict[Section, dict[int, list[str]]] = {}
        self._changed: set[str] = set()

    def touch(self, agent_id: str) -> None:
        """Note that an agent may belong elsewhere now."""
        self._changed.add(agent_id)

    def sections(self) -> list[Section]:
        """Return the sections that have agents, the largest agents first, then by kind."""
        self._tidy()
        return sorted(self._sections, key=lambda section: (-section[1], section[0]))

    def rising(self, section: Section, least: int = 0) -> Iterator[tuple[int, str]]:
        """Yield level and agent from level `least` on upward, in a level by id."""
        self._tidy()
        levels = self._sections.get(section, {})
        for level in sorted(levels):
            if level >= least:
                for agent_id in levels[level]:
                    yield level, agent_id

    def falling(self, section: Section, least: int = 0) -> Iterator[tuple[int, str]]:
        """Yield level and agent from the highest level on downward, in a level by id."""
        self._tidy()
        levels = self._sections.get(section, {})
        for level in sorted(levels, reverse=True):
            if level < least:
                return
            for agent_id in levels[level]:
                yield level, agent_id

    def top(self, section: Section) -> int:
        """Return the highest level of a section, -1 if it has no agents."""
        self._tidy()
        return max(self._sections.get(section, ()), default=-1)

    def _tidy(self) -> None:
        for agent_id in self._changed:
            old, new = self._places.get(agent_id), self._place(agent_id)
            if old != new:
                self._take(agent_id, old)
                self._put(agent_id, new)
        self._changed.clear()

    def _take(self, agent_id: str, place: Place | None) -> None:
        if place is None:
            return
        section, level = place
        names = self._sections[section][level]
        del names[bisect_left(names, agent_id)]
        if not names:
            del self._sections[section][level]
            if not self._sections[section]:
                del self._sections[section]
        del self._places[agent_id]

    def _put(self, agent_id: str, place: Place | None) -> None:
        if place is None:
            return
        section, level = place
        insort(self._sections.setdefault(section, {}).setdefault(level, []), agent_id)
        self._places[agent_id] = place
