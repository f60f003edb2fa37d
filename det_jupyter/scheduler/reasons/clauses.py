"""The parts of a reason's sentence: what is there, who has the rest, what would start it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from det_jupyter.scheduler.model import Policy
from det_jupyter.scheduler.reasons.never import Cause
from det_jupyter.scheduler.reasons.reliefs import Relief
from det_jupyter.scheduler.reasons.remedies import have_left, latest_leaving, some_back
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.scheduler.reasons.words import about, experiments, file_of, listed, shown
from det_jupyter.wire import Estimate, HolderView
from det_jupyter.words import count, moment

_HOLDERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a sentence is made of.

    Args:
        situation: The pool as the request meets it.
        causes: Why it waits: all that has to be put right, if the pool cannot run it.
        reliefs: Whose end alone would start it.
        holders: The gangs that hold slots there.
        expected: When it starts, if that is known.
    """

    situation: Situation
    causes: tuple[Cause, ...]
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
        idle = sum(1 for room in story.situation.nearest if not room.used)
        return f"{idle or 'none'} of these {be(idle)} idle"
    allowed = situation.allowed
    total, nearest = sum(room.free for room in allowed), story.situation.nearest[0]
    if len(allowed) == 1 or total == 0 or situation.request.slots == 1:
        return free_of(allowed)
    agent = shown(nearest.agent.id)
    if not nearest.free:
        return f"none is free on agents with {situation.request.slots} slots or more"
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
        leaving = " (leaving)" if holder.is_leaving else ""
        amount = holder.slots if story.situation.request.slots else len(holder.trial_ids)
        verb = "" if parts else "holds "
        parts.append(f"{_who(story, holder)} {verb}{amount}{leaving}")
    if len(holders) > len(parts):
        rest = holders[len(parts) :]
        parts.append(f"{count(len(rest), 'more experiment')} {sum(h.slots for h in rest)}")
    return listed(parts, most=len(parts))


def _holder(story: Story, holder: HolderView) -> str:
    facts = story.situation.survey.facts
    num = len(holder.trial_ids)
    details = [f"trial {holder.trial_ids[0]}" if num == 1 else f"{num} trials"]
    if story.situation.survey.pool.rules.policy is Policy.PRIORITY:
        details.append(f"priority {holder.priority}")
    details.append(f"since {moment(holder.since, facts.now, facts.zone)}")
    if holder.notebook:
        is_file = holder.notebook.endswith((".yaml", ".yml"))  # given to `det e create`
        details.append(f"{'file' if is_file else 'notebook'} {file_of(holder.notebook)}")
    amount = holder.slots if story.situation.request.slots else len(holder.trial_ids)
    leaving = " and is leaving" if holder.is_leaving else ""
    return f"{_who(story, holder)} ({', '.join(details)}) holds {amount}{leaving}"


def _who(story: Story, holder: HolderView) -> str:
    if holder.experiment_id == story.situation.request.group:
        return "its own experiment"
    return f"experiment {holder.experiment_id} “{shown(holder.experiment_name)}”"


def what_starts_it(story: Story, *, is_named: bool = True) -> str:
    """Say what has to happen, and when that is expected.

    Args:
        story: What is known.
        is_named: Whether the sentence before named the holders, so that “it” is the only one.
    """
    at = when(story)
    if story.reliefs:
        return f"starts when {_relief(story, is_named=is_named)}{at}{_who_is_asked(story)}"
    if story.situation.fits() and not story.situation.in_the_way:
        return "starts in a moment"
    return f"starts when {_combination(story)}{at}"


def when(story: Story) -> str:
    """Return `, about 14:20`, or nothing if that is unknown."""
    facts = story.situation.survey.facts
    if story.reliefs and (limit := latest_leaving(story.situation, story.reliefs[0])):
        return limit
    return f", {about(story.expected, facts.now, facts.zone)}" if story.expected else ""


def _who_is_asked(story: Story) -> str:
    """Say that less urgent ones leave by themselves, if they count as gone."""
    asked = story.reliefs[0].asked
    if not asked:
        return ""
    running = story.situation.survey.pool.running
    groups = sorted({running[request_id].request.group for request_id in asked})
    verb = "is" if len(groups) == 1 else "are"
    return f"; {experiments(groups)}, less urgent, {verb} asked to leave then"


def _relief(story: Story, *, is_named: bool) -> str:
    first = story.reliefs[0]
    after = f"{have_left(first.after)} and " if first.after else ""
    groups = list(dict.fromkeys(r.group_id for r in story.reliefs if r.group_id is not None))
    if first.is_leaving:
        ids = sorted({gang.request.group for gang in first.gangs})
        if is_named and sorted(holder.experiment_id for holder in story.holders) == ids:
            return "it has left" if len(ids) == 1 else "they have left"
        return have_left(first.gangs)
    if first.is_named or first.num_slots:
        return f"{after}{some_back(story.situation, first)}"
    if len(groups) > 1:
        return f"{after}{_one_of(story, groups)}"
    return f"{after}{_sole(story, first, is_named=is_named)}"


def _one_of(story: Story, groups: Sequence[int]) -> str:
    """Say that one of several experiments is enough, each by itself."""
    own, first = story.situation.request.group, story.reliefs[0]
    if any(relief.agent_id is not None for relief in story.reliefs):
        return _sole(story, first, is_named=False)
    if len(groups) > 2:
        return _any_of(story, first)
    others = [group for group in groups if group != own]
    mine = ["a trial of its own"] if len(others) < len(groups) else []
    names = [*mine, *(f"experiment {group}" for group in others)]
    return f"{' or '.join(names)} ends or is paused"


def _any_of(story: Story, first: Relief) -> str:
    enough = {gang.request.group for relief in story.reliefs for gang in relief.gangs}
    if first.is_all:
        holders = {holder.experiment_id for holder in story.holders}
        which = "these experiments" if enough >= holders else experiments(sorted(enough))
        return f"one of {which} ends"
    trials = [trial for holder in story.holders for trial in holder.trial_ids]
    return _one_trial(story, trials, None, "these trials")


def _one_trial(story: Story, all_ids: Sequence[int], group: int | None, name: str) -> str:
    """Say that one of some trials is enough: of all of them, or of those that are named."""
    ids = story.situation.survey.trials_of(
        relief.gangs[0]
        for relief in story.reliefs
        if not relief.is_all and relief.agent_id is None and group in (None, relief.group_id)
    )
    if set(ids) >= set(all_ids):
        return f"one of {name} ends"
    if len(ids) == 1:
        return f"trial {ids[0]} ends"
    return f"one of trials {listed([str(trial) for trial in ids])} ends"


def _sole(story: Story, relief: Relief, *, is_named: bool) -> str:
    """Say what one experiment has to do."""
    own, group_id = story.situation.request.group, relief.group_id
    assert group_id is not None
    holders = {holder.experiment_id: holder for holder in story.holders}
    trials = holders[group_id].trial_ids
    name = "it" if len(holders) == 1 and is_named else f"experiment {group_id}"
    its = "its" if name == "it" or group_id == own else f"{name}’s"
    if relief.agent_id is not None:
        return f"{_some_of(story, relief, its, len(trials))} have ended"
    if not relief.is_all and len(trials) > 1:
        return _one_trial(story, trials, group_id, f"{its} trials")
    has_more = any(other.group == group_id for other in story.situation.survey.queue)
    if group_id == own or (has_more and not relief.is_all):
        return f"trial {trials[0]} ends"
    return f"{name} ends or is paused"


def _some_of(story: Story, relief: Relief, its: str, num_held: int) -> str:
    where = ""
    if relief.agent_id is not None and len(story.situation.survey.rooms) > 1:
        where = f" on agent {shown(relief.agent_id)}"
    if relief.num == num_held:
        return f"{its} {relief.num} trials"
    return f"{relief.num} of {its} trials{where}"


def _combination(story: Story) -> str:
    situation = story.situation
    if situation.request.slots == 0:
        return "one of these ends"
    if situation.spans_agents:
        busy = sum(1 for room in story.situation.nearest if room.used)
        return f"{count(busy, 'more agent')} {be(busy)} idle"
    return "enough of these slots are given back"
