"""Places in a lane: the groups of one priority, in the order of their positions.

A group's position is its number, unless it was moved: then a number between two neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from det_jupyter.scheduler.model import Group


def moved_beside(
    own: Group, anchor: Group, groups: Iterable[Group], *, is_ahead: bool, newest: int
) -> list[Group]:
    """Return the groups that change so that one comes right ahead of, or right behind, another.

    It takes the anchor's priority. Others change where no number is left between two neighbours.

    Args:
        own: The group that moves.
        anchor: The group beside which it comes.
        groups: All groups, these two among them.
        is_ahead: Whether it comes ahead of the anchor.
        newest: The greatest number of any group so far; the next ones come behind.
    """
    lane = sorted(
        (one for one in groups if one.priority == anchor.priority and one.id != own.id),
        key=lambda one: (one.position, one.id),
    )
    moved = replace(own, priority=anchor.priority)
    place = next(place for place, one in enumerate(lane) if one.id == anchor.id)
    low, high = _gap([one.position for one in lane], place, is_ahead=is_ahead, newest=newest)
    middle = (low + high) / 2
    if low < middle < high:
        return [replace(moved, position=middle)]
    # Halved too often: all of the lane get positions apart from one another.
    spread = [newest + place / len(lane) for place in range(len(lane))]
    low, high = _gap(spread, place, is_ahead=is_ahead, newest=newest)
    others = (replace(one, position=at) for one, at in zip(lane, spread, strict=True))
    return [replace(moved, position=(low + high) / 2), *others]


def _gap(
    positions: list[float], place: int, *, is_ahead: bool, newest: int
) -> tuple[float, float]:
    """Return the positions between which one comes that moves beside this place."""
    if is_ahead:
        return positions[place - 1] if place > 0 else positions[place] - 1.0, positions[place]
    is_last = place == len(positions) - 1
    return positions[place], newest + 1.0 if is_last else positions[place + 1]
