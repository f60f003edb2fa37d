"""Index of agents by a number, so that a lookup does not scan all agents.

A shelf has sections (agents of one kind and one size), and each section has levels, such as the
number of free slots; a function given to the shelf computes the level. A changed agent is moved at
the next lookup, so that ten changes of an agent cost one move.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

Section = tuple[str, int]  # kind and size
Place = tuple[Section, int]  # section and level


class Shelf:
    """Agents by section and level; within a level by id.

    Args:
        place: Returns section and level of an agent; None: it is not on this shelf.
    """

    def __init__(self, place: Callable[[str], Place | None]) -> None:
        self._place = place
        self._places: dict[str, Place] = {}
        self._agents: dict[Place, list[str]] = {}
        self._levels: dict[Section, list[int]] = {}  # those that have agents, ascending
        self._sections: list[Section] = []
        self._changed: set[str] = set()

    def touch(self, agent_id: str) -> None:
        """Mark an agent as changed."""
        self._changed.add(agent_id)

    def sections(self) -> list[Section]:
        """Return the sections that have agents, the largest agents first, then by kind."""
        if self._changed:
            self._tidy()
        return self._sections

    def rising(self, section: Section, least: int = 0) -> Iterator[tuple[int, str]]:
        """Yield level and agent from level `least` on upward, in a level by id."""
        if self._changed:
            self._tidy()
        for level in self._levels.get(section, ()):
            if level >= least:
                for agent_id in self._agents[section, level]:
                    yield level, agent_id

    def falling(self, section: Section, least: int = 0) -> Iterator[tuple[int, str]]:
        """Yield level and agent from the highest level on downward, in a level by id."""
        if self._changed:
            self._tidy()
        for level in reversed(self._levels.get(section, ())):
            if level < least:
                return
            for agent_id in self._agents[section, level]:
                yield level, agent_id

    def top(self, section: Section) -> int:
        """Return the highest level of a section that has agents."""
        if self._changed:
            self._tidy()
        return self._levels[section][-1]

    def _tidy(self) -> None:
        for agent_id in self._changed:
            old, new = self._places.get(agent_id), self._place(agent_id)
            if old != new:
                if old is not None:
                    self._take(agent_id, old)
                if new is not None:
                    self._put(agent_id, new)
        self._changed.clear()

    def _take(self, agent_id: str, place: Place) -> None:
        del self._places[agent_id]
        names = self._agents[place]
        del names[bisect_left(names, agent_id)]
        if not names:
            del self._agents[place]
            section, level = place
            self._levels[section].remove(level)
            if not self._levels[section]:
                del self._levels[section]
                self._sections.remove(section)

    def _put(self, agent_id: str, place: Place) -> None:
        self._places[agent_id] = place
        if place not in self._agents:
            section, level = place
            if section not in self._levels:
                insort(self._sections, section, key=lambda some: (-some[1], some[0]))
            insort(self._levels.setdefault(section, []), level)
        insort(self._agents.setdefault(place, []), agent_id)
