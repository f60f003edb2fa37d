"""The parts of a reason's sentence: what is there, who has the rest, what would start it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from det_jupyter.scheduler.model import Policy, Request
from det_jupyter.scheduler.reasons.causes import Cause
from det_jupyter.scheduler.reasons.remedies import Relief
from det_jupyter.scheduler.reasons.situation import Room, Situation
from det_jupyter.scheduler.reasons_words import (
    about,
    clock,
    count,
    experiments,
    file_of,
    listed,
    shown,
)
from det_jupyter.wire import Estimate, HolderView

_HOLDERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a sentence is made of.

    Args:
        situation: The pool as the request meets it.
        cause: Why it waits.
        rooms: The agents where it is nearest to fitting.
        in_the_way: Those ahead that could use the same.
        reliefs: Whose end alone would start it.
        holders: Who holds slots there.
        expected: When it starts, if anybody can tell.
    """

    situation: Situation
    cause: Cause
    rooms: tuple[Room, ...]
    in_the_way: tuple[Request, ...]
    reliefs: tuple[Relief, ...]
    holders: tuple[HolderView, ...]
    expected: Estimate | None


def what_is_free(story: Story) -> str:
    """Say how many slots are free where the request could run."""
    situation = story.situation
    if situation.request.slots == 0:
        most = situation.survey.pool.rules.max_aux_per_agent
        return f"agents carry at most {most} each, and all are full"
    if situation.spans_agents:
        idle = sum(1 for room in story.rooms if not room.used)
        return f"{idle or 'none'} of these {be(idle)} idle"
    allowed = situation.allowed()
    total, nearest = sum(room.free for room in allowed), story.rooms[0]
    if len(allowed) == 1 or total == 0 or situation.request.slots == 1:
        return free_of(allowed)
    agent = shown(nearest.agent.id)
    return f"agent {agent} comes nearest with {nearest.free} of {nearest.size} free"


def free_of(rooms: Sequence[Room]) -> str:
    """Return `2 of 8 are free`."""
    free = sum(room.free for room in rooms)
    return f"{free or 'none'} of {sum(room.size for room in rooms)} {be(free)} free"


def be(number: int) -> str:
    """Return the verb for so many."""
    return "is" if number < 2 else "are"


def who_holds(story: Story) -> str:
    """Say who has the rest: one holder with all that is known, of many the first."""
    holders = story.holders
    if not holders:
        return ""
    if len(holders) == 1:
        return _holder(story, holders[0])
    parts: list[str] = []
    for holder in holders[: _HOLDERS if len(holders) > _HOLDERS + 1 else len(holders)]:
        leaving = " and is leaving" if holder.is_leaving else ""
        amount = holder.slots if story.situation.request.slots else len(holder.trial_ids)
        verb = "" if parts else "holds "
        parts.append(f"{_who(story, holder)} {verb}{amount}{leaving}")
    if len(holders) > len(parts):
        rest = holders[len(parts) :]
        parts.append(f"{count(len(rest), 'more experiment')} {sum(h.slots for h in rest)}")
    return listed(parts, most=len(parts))


def _holder(story: Story, holder: HolderView) -> str:
    facts = story.situation.survey.facts
    details = [_trials(holder)]
    if story.situation.survey.pool.rules.policy is Policy.PRIORITY:
        details.append(f"priority {holder.priority}")
    details.append(f"since {clock(holder.since, facts.now, facts.zone)}")
    if holder.notebook:
        details.append(f"notebook {file_of(holder.notebook)}")
    amount = holder.slots if story.situation.request.slots else len(holder.trial_ids)
    leaving = " and is leaving" if holder.is_leaving else ""
    return f"{_who(story, holder)} ({', '.join(details)}) holds {amount}{leaving}"


def _who(story: Story, holder: HolderView) -> str:
    if holder.experiment_id == story.situation.request.group:
        return "its own experiment"
    return f"experiment {holder.experiment_id} “{shown(holder.experiment_name)}”"


def _trials(holder: HolderView) -> str:
    num = len(holder.trial_ids)
    return f"trial {holder.trial_ids[0]}" if num == 1 else f"{num} trials"


def what_starts_it(story: Story) -> str:
    """Say what has to happen, and when that is expected."""
    at = when(story)
    if story.reliefs:
        return f"starts when {_relief(story)}{at}"
    if story.situation.fits_alone() and not story.in_the_way:
        return "starts in a moment"
    return f"starts when {_combination(story)}{at}"


def when(story: Story) -> str:
    """Return `, about 14:20`, or nothing if nobody can tell."""
    facts = story.situation.survey.facts
    return f", {about(story.expected, facts.now, facts.zone)}" if story.expected else ""


def _relief(story: Story) -> str:
    first = story.reliefs[0]
    own = story.situation.request.group
    if first.is_leaving:
        groups = sorted({gang.request.group for gang in first.gangs})
        if [holder.experiment_id for holder in story.holders] == groups:
            return "it has left"
        return f"{experiments(groups)} {'has' if len(groups) == 1 else 'have'} left"
    groups = list(dict.fromkeys(r.group_id for r in story.reliefs if r.group_id is not None))
    holders = {holder.experiment_id: holder for holder in story.holders}
    if len(groups) > 2:
        return f"one of these {'experiments' if first.is_all else 'trials'} ends"
    if len(groups) > 1:
        others = [group for group in groups if group != own]
        mine = ["a trial of its own"] if len(others) < len(groups) else []
        names = [*mine, *(f"experiment {group}" for group in others)]
        return f"{' or '.join(names)} ends or is paused"
    holder = holders[groups[0]]
    name = "it" if len(holders) == 1 else f"experiment {groups[0]}"
    if not first.is_all and len(holder.trial_ids) > 1:
        return f"one of {'its' if name == 'it' or groups[0] == own else f'{name}’s'} trials ends"
    if groups[0] == own:
        return f"trial {holder.trial_ids[0]} ends"
    return f"{name} ends or is paused"


def _combination(story: Story) -> str:
    situation = story.situation
    if situation.request.slots == 0:
        return "one of these ends"
    if situation.spans_agents:
        busy = sum(1 for room in story.rooms if room.used)
        return f"{count(busy, 'more agent')} {be(busy)} idle"
    missing = situation.request.slots - story.rooms[0].free
    ids = [holder.experiment_id for holder in story.holders]
    if missing == sum(holder.slots for holder in story.holders) and len(ids) <= _HOLDERS + 1:
        return f"{experiments(ids)} have ended"
    return f"{missing} of these slots {be(missing)} given back"


def what_is_enough_for_all(story: Story) -> str:
    """Say what would be enough for the request and all ahead of it; nothing if nothing is."""
    situation = story.situation
    need = situation.request.slots
    if not need or situation.spans_agents or not situation.is_complete:
        return ""
    rivals = situation.rivals()
    ways = [
        (need + claimed - room.free, room.agent.id)
        for room in story.rooms
        if need + (claimed := situation.claims(room, rivals)) <= room.size
    ]
    if not ways:
        return ""
    missing, agent_id = min(ways)
    where = f" of agent {shown(agent_id)}" if len(situation.rooms) > 1 else ""
    return f"{count(missing, 'more slot')}{where} {be(missing)} given back"
