"""Why a request waits although its pool can run it, in one sentence; else see cannot_run.py.

needs 4 slots                                              what it requests
2 of 8 are free                                            free slots
experiment 3 “resnet” (trial 7, priority 42, since 14:02,
    notebook eda.ipynb) holds 6                            who has it
starts when it ends or is paused, about 14:20
    (14:10 to 14:40)                                       what would start it, and when
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from det_jupyter.contract.messages import Estimate, HolderView
from det_jupyter.contract.values.text import (
    count,
    experiment_title,
    listed,
    short_time,
    shortened,
)
from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.facts import Facts
from det_jupyter.scheduler.reasons.reliefs import Relief, ReliefKind, by_group
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.wording import (
    about,
    claims_text,
    count_clause,
    file_of,
    named,
    noun,
    process_text,
    verb,
)

_HOLDERS = 2
_NAMED = 3


def has_to_happen(wait: WaitingRequest, relief: Relief) -> str:
    """Describe a relief without pronouns, for a text that stands alone."""
    num, total, ids = relief.num, len(relief.gangs), wait.survey.trials_of(relief.gangs)
    groups = sorted({gang.request.group for gang in relief.gangs})
    experiment = named("experiment", groups)
    whose = "its own experiment" if groups == [wait.group.id] else experiment
    where = f"on agent {shortened(relief.agent_id)}"
    match relief.kind:
        case ReliefKind.LEAVING:
            what = have_left(relief.gangs)
        case ReliefKind.TRIAL:
            what = f"trial {ids[0]} of {whose} ends"
        case ReliefKind.EXPERIMENT:
            what = f"{experiment} ends"
        case ReliefKind.SOME:
            on = f" {where}" if len(wait.pool.agents) > 1 else ""
            what = f"{count(num, 'trial')} of {whose}{on} {verb(num, 'has')} ended"
        case ReliefKind.NAMED:
            what = f"{named('trial', ids, most=4)} have ended"
        case ReliefKind.SLOTS if not num:
            slots = relief.num_slots
            what = count_clause(slots, f"{noun(slots, 'more slot')} {where}", "given back")
        case ReliefKind.SLOTS if num < total:
            what = f"{num} of the {total} trials {where} {verb(num, 'has')} ended"
        case ReliefKind.SLOTS:
            is_all = len(groups) == num <= _NAMED and not wait.has_more_of(*groups)
            what = f"{experiment if is_all else f'the {num} trials {where}'} have ended"
    return f"{have_left(relief.after)} and {what}" if relief.after else what


def have_left(gangs: Iterable[Running]) -> str:
    """Return `experiment 3 has left`, or `experiments 3 and 4 have given slots back`."""
    gangs = list(gangs)
    ids = sorted({gang.request.group for gang in gangs})
    done = "given slots back" if any(gang.becomes for gang in gangs) else "left"
    return f"{named('experiment', ids)} {verb(len(ids), 'has')} {done}"


def latest_leaving(facts: Facts, gangs: Iterable[Running]) -> str:
    """Return `, at the latest about 15:20` for leaving gangs, if all of them have a deadline."""
    limits = [facts.leaves_by(gang.request.id) for gang in gangs]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return ""
    at = short_time(max(known), facts.now, facts.zone)
    return f", which was due at {at}" if max(known) <= facts.now else f", at the latest about {at}"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Builds the sentence on why a request waits although the pool could run it.

    Args:
        wait: The request and its pool.
        reliefs: Gangs whose end would start it.
        holders: The gangs that hold slots where it nearly fits.
        expected: When it is expected to start; None: not known.
    """

    wait: WaitingRequest
    reliefs: Sequence[Relief]
    holders: Sequence[HolderView]
    expected: Estimate | None

    def __str__(self) -> str:
        clauses = {"slots": self._too_few, "turn": self._turn, "max_slots": self._max_slots}
        found = clauses[self.wait.causes[-1]]()
        return "; ".join(filter(None, [f"needs {self._need()}", *found]))

    def _need(self) -> str:
        wait, slots = self.wait, self.wait.request.slots
        if slots == 0:
            return "a place for a trial without slots"
        need = count(slots, "slot")
        if wait.spans:
            sizes = {seats.size for seats in wait.nearest}
            whole = f"{count(len(wait.nearest), 'whole agent')} of {sizes.pop()}"
            return f"{need}, {whole}" if not sizes else f"{need} of whole agents"
        return f"{need} on one agent" if len(wait.pool.agents) > 1 and slots > 1 else need

    def _too_few(self) -> Sequence[str]:
        return (
            self._free(),
            self._who_left(),
            self._who_holds(),
            self._withheld_too(),
            self._what_starts_it(),
        )

    def _who_left(self) -> str:
        """Return a clause with the agents that left lately and whose slots would be enough."""
        left = [f"{shortened(agent.id)} left at {self.wait.left_at(agent)}"
                for agent in self.wait.missed]  # fmt: skip
        return listed(left, most=2)

    def _turn(self) -> Sequence[str]:
        who, num = self._ahead()
        if not self.wait.fits:
            return self._free(), f"{who} {verb(num, 'is')} ahead of it", self._rest(), self._then()
        free = _free_of(self.wait.allowed) if self.wait.request.slots else "there is room"
        return f"{free}, but kept for {who}, which {verb(num, 'is')} ahead of it", self._then()

    def _max_slots(self) -> Sequence[str]:
        group = self.wait.group
        held = self.wait.pool.held(group.id)
        rule = f"its experiment holds {held} and may hold {group.max_slots} (max_slots)"
        if self.wait.request.slots > (group.max_slots or 0):
            return rule, "can run when max_slots is raised"
        is_one = any(relief.group_id == group.id for relief in self.reliefs)
        enough = "one of its trials ends" if is_one else "enough of its trials have ended"
        return rule, f"starts when {enough}{self._when()}"

    def _free(self) -> str:
        """Return how many slots are free where the request could run."""
        wait = self.wait
        if wait.request.slots == 0:
            most = wait.pool.rules.max_aux_per_agent
            return f"agents carry at most {most} each, and all are full"
        if wait.spans:
            idle = sum(seats.is_idle for seats in wait.nearest)
            return count_clause(idle, "of these", "idle")
        nearest = wait.nearest[0]
        total = sum(len(seats.free) for seats in wait.allowed)
        if len(wait.allowed) == 1 or total == 0 or wait.request.slots == 1:
            return _free_of(wait.allowed)
        if not nearest.free:
            return f"none is free on agents with {wait.request.slots} slots or more"
        free = f"{len(nearest.free)} of {nearest.size} free"
        return f"agent {shortened(nearest.id)} comes nearest with {free}"

    def _who_holds(self) -> str:
        """Return a clause with the holders: a single one with details, or the first of several."""
        holders, parts = self.holders, list[str]()
        if len(holders) == 1:
            return self._sole_holder(holders[0])
        most = _HOLDERS if len(holders) > _HOLDERS + 1 else len(holders)
        for holder in holders[:most]:
            holds = "" if parts else "holds "
            leaving = " (leaving)" if holder.is_leaving else ""
            leaving = f" (gives {holder.num_given} back)" if holder.num_given else leaving
            parts.append(f"{self._who(holder)} {holds}{self._amount(holder)}{leaving}")
        if rest := holders[most:]:
            slots = sum(holder.slots for holder in rest)
            parts.append(f"{count(len(rest), 'more experiment')} {slots}")
        return listed(parts, most=3)

    def _sole_holder(self, holder: HolderView) -> str:
        facts, num = self.wait.facts, len(holder.trial_ids)
        details = [named("trial", holder.trial_ids) if num == 1 else f"{num} trials"]
        if self.wait.pool.rules.policy is Policy.PRIORITY:
            details.append(f"priority {holder.priority}")
        details.append(f"since {short_time(holder.since, facts.now, facts.zone)}")
        if holder.notebook:
            is_file = holder.notebook.endswith((".yaml", ".yml"))  # given to `det e create`
            details.append(f"{'file' if is_file else 'notebook'} {file_of(holder.notebook)}")
        leaving = " and is leaving" if holder.is_leaving else ""
        leaving = f" and gives {holder.num_given} back" if holder.num_given else leaving
        amount = self._amount(holder)
        return f"{self._who(holder)} ({', '.join(details)}) holds {amount}{leaving}"

    def _amount(self, holder: HolderView) -> int:
        return holder.slots if self.wait.request.slots else len(holder.trial_ids)

    def _who(self, holder: HolderView) -> str:
        if holder.experiment_id == self.wait.group.id:
            return "its own experiment"
        return experiment_title(holder.experiment_id, holder.experiment_name)

    def _rest(self) -> str:
        """Return the clause on holders after a clause on requests ahead: only their names."""
        own = self.wait.group.id
        others = [one.experiment_id for one in self.holders if one.experiment_id != own]
        parts = [named("experiment", others)] if others else []
        if len(others) > _NAMED:
            parts = [f"{len(others)} other experiments"]
        if len(others) < len(self.holders):
            parts.append("its own")
        return (
            f"{listed(parts, most=3)} {verb(len(self.holders), 'holds')} the rest" if parts else ""
        )

    def _ahead(self) -> tuple[str, int]:
        """Return which requests are ahead, and how many."""
        wait, facts = self.wait, self.wait.facts
        if not wait.is_complete:
            return count(wait.position, "trial"), wait.position
        others = [other for other in wait.in_the_way if other.group != wait.group.id]
        mates, parts = len(wait.in_the_way) - len(others), list[str]()
        if len(others) == 1:
            first = others[0]
            who = experiment_title(first.group, facts.title_of(first.group).name)
            parts.append(f"{who} (trial {facts.trial_of(first.id)}, needs {first.slots})")
        elif others:
            groups = list(dict.fromkeys(other.group for other in others))
            parts.append(f"{len(others)} trials ({named('experiment', groups)})")
        if mates:
            parts.append(f"{count(mates, 'trial')} of its own experiment")
        return listed(parts, most=3), len(others) + mates

    def _then(self) -> str:
        ahead, them = self.wait.in_the_way, "them"
        if self.reliefs:
            return self._what_starts_it(is_named=False)
        if len(ahead) == 1 and self.wait.is_complete:
            is_own = ahead[0].group == self.wait.group.id
            them = "that one" if is_own else f"experiment {ahead[0].group}"
        return f"starts after {them}{self._when()}"

    def _what_starts_it(self, *, is_named: bool = True) -> str:
        """Return what has to happen, and when that is expected.

        Args:
            is_named: Whether the sentence has just named the holders, so that “it” is a single
                one.
        """
        if self.reliefs:
            return f"starts when {self._relief(is_named)}{self._when()}{self._who_is_asked()}"
        wait = self.wait
        if wait.fits and not wait.in_the_way:
            return "starts in a moment"
        enough = "enough of these slots are given back"
        if wait.request.slots == 0:
            enough = "one of these ends"
        elif wait.spans:
            busy = sum(not seats.is_idle for seats in wait.nearest)
            enough = count_clause(busy, noun(busy, "more agent"), "idle")
        return f"starts when {enough}{self._when()}"

    def _when(self) -> str:
        """Return `, about 14:20`; "" if the start is not known."""
        facts, expected = self.wait.facts, self.expected
        leaving = [one.gangs for one in self.reliefs[:1] if one.kind is ReliefKind.LEAVING]
        if leaving and (limit := latest_leaving(facts, leaving[0])):
            return limit
        return f", {about(expected, facts.now, facts.zone)}" if expected else ""

    def _who_is_asked(self) -> str:
        """Return a clause with the less urgent gangs that the scheduler then asks to leave."""
        groups = sorted({gang.request.group for gang in self.reliefs[0].asked})
        who = f"{named('experiment', groups)}, less urgent, {verb(len(groups), 'is')}"
        return f"; {who} asked to leave then" if groups else ""

    def _relief(self, is_named: bool) -> str:
        wait, first, holders = self.wait, self.reliefs[0], self.holders
        groups = list(dict.fromkeys(relief.group_id for relief in self.reliefs))
        whose, own = first.group_id, wait.group.id
        if (
            first.kind is ReliefKind.LEAVING
            and is_named
            and len(holders) == len(by_group(first.gangs))
        ):
            done = "done so" if any(holder.num_given for holder in holders) else "left"
            return f"it has {done}" if len(holders) == 1 else f"they have {done}"
        if whose is None or first.kind is ReliefKind.LEAVING:
            return has_to_happen(wait, first)
        after = f"{have_left(first.after)} and " if first.after else ""
        name = "it" if len(holders) == 1 and is_named else f"experiment {whose}"
        its = "its" if name == "it" or whose == own else f"{name}’s"
        trials = [
            trial
            for holder in holders
            if len(groups) > 1 or holder.experiment_id == whose
            for trial in holder.trial_ids
        ]
        if first.kind is ReliefKind.SOME:
            return f"{after}{self._some(first, its, trials)}"
        if len(groups) == 2:
            names = ["a trial of its own"] if own in groups else []
            names += [f"experiment {group}" for group in groups if group != own]
            return f"{after}{listed(names, most=3, last='or')} ends or is paused"
        if first.kind is ReliefKind.EXPERIMENT and len(groups) > 2:
            ids = sorted({gang.request.group for one in self.reliefs for gang in one.gangs})
            is_all = len(ids) == len(holders)
            which = "these experiments" if is_all else named("experiment", ids)
            return f"{after}one of {which} ends"
        if first.kind is ReliefKind.TRIAL and len(trials) > 1:
            singles = [one for one in self.reliefs if one.kind is ReliefKind.TRIAL]
            ids = wait.survey.trials_of(one.gangs[0] for one in singles)
            which = f"{its} trials" if len(groups) == 1 else "these trials"
            if len(ids) < len(trials):
                which = named("trial", ids)
            return f"{after}{'one of ' if len(ids) > 1 else ''}{which} ends"
        if first.kind is ReliefKind.TRIAL and (whose == own or wait.has_more_of(whose)):
            return f"{after}trial {trials[0]} ends"
        return f"{after}{name} ends or is paused"

    def _some(self, relief: Relief, its: str, trials: Sequence[int]) -> str:
        num, has = relief.num, verb(relief.num, "has")
        if num == len(trials):
            return f"{its} {num} trials {has} ended"
        on = f" on agent {shortened(relief.agent_id)}" if len(self.wait.pool.agents) > 1 else ""
        return f"{num} of {its} trials{on} {has} ended"

    def _withheld_too(self) -> str:
        """Return a clause on withheld slots of the nearest agent that has any."""
        wait, need = self.wait, self.wait.request.slots
        if need == 0:
            return ""
        for seats in wait.nearest:
            if parts := self._kept_from_use(seats):
                return listed(parts, most=3)
        # An agent may be too small only because slots are withheld.
        smaller = [
            seats
            for seats in wait.allowed
            if 0 < seats.size < need or (not seats.size and seats.is_idle)
        ]
        for seats in sorted(smaller, key=lambda seats: -len(seats.free)):
            if parts := self._kept_from_use(seats):
                return (
                    f"of agent {shortened(seats.id)} {_free_of([seats])}, {listed(parts, most=3)}"
                )
        return ""

    def _kept_from_use(self, seats: Seats) -> list[str]:
        withheld, parts = self.wait.withheld.get(seats.id), list[str]()
        if withheld and (num := len(withheld.disabled_only)):
            parts.append(count_clause(num, "more", "disabled"))
        occupied = withheld.occupied if withheld else {}
        is_taken = {slot: any(one.claim for one in used) for slot, used in occupied.items()}
        parts += claims_text(occupied, self.wait.facts.now, own_user=self.wait.facts.own_user)
        if withheld and (slots := [one for one in withheld.occupied_only if not is_taken[one]]):
            users = {user.pid: user for slot in slots for user in occupied[slot]}
            first, rest = next(iter(users.values())), len(users) - 1
            user = process_text(first, self.wait.facts.now)
            more = f" and {rest} more {noun(rest, 'process')}" if rest else ""
            parts.append(count_clause(len(slots), "more", f"used by {user}{more}"))
        if withheld and (slots := withheld.lost_only):
            parts.append(
                count_clause(len(slots), "more", f"lost ({withheld.lost[slots[0]].cause})")
            )
        return parts


def _free_of(agents: Sequence[Seats]) -> str:
    """Return how many slots of these agents are free: `2 of 8 are free`."""
    total = sum(seats.size for seats in agents)
    return count_clause(sum(len(seats.free) for seats in agents), f"of {total}", "free")
