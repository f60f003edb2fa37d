"""A reason in one sentence: what is needed; what is there; who has it; what would start it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.devices import held_slots, strangers
from det_jupyter.scheduler.reasons.facts import Facts
from det_jupyter.scheduler.reasons.grammar import (
    about,
    file_of,
    listed,
    named,
    noun,
    numbers,
    shown,
    stranger,
    titled,
    verb,
)
from det_jupyter.scheduler.reasons.reliefs import Kind, Relief
from det_jupyter.scheduler.reasons.sizes import describe_agents, nearest_values
from det_jupyter.scheduler.reasons.wait import Wait
from det_jupyter.wire import Estimate, HolderView
from det_jupyter.words import count, moment

_HOLDERS = 2
_NAMED = 3


def tell(
    wait: Wait,
    reliefs: Sequence[Relief],
    holders: Sequence[HolderView],
    expected: Estimate | None,
) -> str:
    """Return the sentence.

    Args:
        wait: The pool as the request meets it.
        reliefs: Whose end alone would start it.
        holders: The gangs that hold slots where it nearly fits.
        expected: When it starts, if that is known.
    """
    teller = _Teller(wait, reliefs, holders, expected)
    clauses = {
        "slots": teller.slots,
        "turn": teller.turn,
        "max_slots": teller.max_slots,
        "no_agent": teller.no_agent,
        "impossible": teller.impossible,
    }.get(wait.causes[-1], teller.withheld)()
    return "; ".join(filter(None, [f"needs {teller.need()}", *clauses]))


def has_to_happen(wait: Wait, relief: Relief) -> str:
    """Return the ends that are enough, in words that need no sentence before them."""
    gangs, num = relief.gangs, relief.num
    first = f"{have_left(relief.after)} and " if relief.after else ""
    whose = named("experiment", [relief.group_id])
    if relief.kind is Kind.LEAVING:
        return have_left(gangs)
    if relief.kind is Kind.NAMED:
        return f"{first}{named('trial', wait.survey.trials_of(gangs), most=4)} have ended"
    if relief.kind is Kind.SLOTS:
        return f"{first}{_slots_back(wait, relief)}"
    if relief.kind is Kind.EXPERIMENT:
        return f"{first}{whose} ends"
    if relief.group_id == wait.group.id:
        whose = "its own experiment"
    if relief.kind is Kind.SOME:
        on = f" on agent {shown(relief.agent_id)}" if len(wait.pool.agents) > 1 else ""
        return f"{first}{count(num, 'trial')} of {whose}{on} {verb(num, 'has')} ended"
    return f"{first}{named('trial', wait.survey.trials_of(gangs))} of {whose} ends"


def have_left(gangs: Iterable[Running]) -> str:
    """Return `experiment 3 has left`, `experiments 3 and 4 have left`."""
    ids = sorted({gang.request.group for gang in gangs})
    return f"{named('experiment', ids)} {verb(len(ids), 'has')} left"


def latest_leaving(facts: Facts, gangs: Iterable[Running]) -> str:
    """Return `, at the latest about 15:20` for gangs that leave, if they all have a limit."""
    limits = [facts.leaves_by(gang.request.id) for gang in gangs]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return ""
    at = moment(max(known), facts.now, facts.zone)
    return f", which was due at {at}" if max(known) <= facts.now else f", at the latest about {at}"


def _slots_back(wait: Wait, relief: Relief) -> str:
    """Say how many of those that hold slots on an agent have to give them back."""
    gangs, num = relief.gangs, relief.num
    where = f"on agent {shown(relief.agent_id)}"
    if not num:
        more = count(relief.num_slots, "more slot")
        return f"{more} {where} {verb(relief.num_slots, 'is')} given back"
    if num < len(gangs):
        return f"{num} of the {len(gangs)} trials {where} {verb(num, 'has')} ended"
    ids = sorted({gang.request.group for gang in gangs})
    has_more = any(other.group in ids for other in wait.survey.queue)
    if len(ids) == num <= _NAMED and not has_more:
        return f"{named('experiment', ids)} have ended"
    return f"the {num} trials {where} have ended"


class _Teller:
    """The clauses of a sentence; see `tell`."""

    def __init__(
        self,
        wait: Wait,
        reliefs: Sequence[Relief],
        holders: Sequence[HolderView],
        expected: Estimate | None,
    ) -> None:
        self.wait, self.facts, self.slots_needed = wait, wait.facts, wait.request.slots
        self.reliefs, self.holders, self.expected = reliefs, holders, expected

    def need(self) -> str:
        wait, slots = self.wait, self.slots_needed
        if slots == 0:
            return "a place for a trial without slots"
        need = count(slots, "slot")
        if not wait.is_possible:
            return need
        if wait.spans:
            sizes = {seats.size for seats in wait.nearest}
            whole = f"{count(len(wait.nearest), 'whole agent')} of {sizes.pop()}"
            return f"{need}, {whole}" if not sizes else f"{need} of whole agents"
        return f"{need} on one agent" if len(wait.pool.agents) > 1 and slots > 1 else need

    # One method for each cause.

    def slots(self) -> Sequence[str]:
        return self._free(), self._who_holds(), self._withheld_too(), self._what_starts_it()

    def turn(self) -> Sequence[str]:
        who, num = self._ahead()
        if not self.wait.fits:
            return self._free(), f"{who} {verb(num, 'is')} ahead of it", self._rest(), self._then()
        free = _free_of(self.wait.allowed) if self.slots_needed else "there is room"
        return f"{free}, but kept for {who}, which {verb(num, 'is')} ahead of it", self._then()

    def max_slots(self) -> Sequence[str]:
        group = self.wait.group
        held = self.wait.pool.held(group.id)
        rule = f"its experiment holds {held} and may hold {group.max_slots} (max_slots)"
        if self.slots_needed > (group.max_slots or 0):
            return rule, "can run when max_slots is raised"
        is_one = any(relief.group_id == group.id for relief in self.reliefs)
        enough = "one of its trials ends" if is_one else "enough of its trials have ended"
        return rule, f"starts when {enough}{self._when()}"

    def no_agent(self) -> Sequence[str]:
        pool = shown(self.facts.pool_name)
        return f"no agent of pool {pool} is connected", "starts when one comes that has them"

    def withheld(self) -> Sequence[str]:
        """Say what keeps slots from use, and all that has to be put right."""
        tellers = {
            "disabled": self._disabled, "occupied": self._occupied, "agent_gone": self._gone
        }  # fmt: skip
        found = [tellers[cause]() for cause in self.wait.causes]
        ends = listed(end for *_, end in found)
        return *(clause for *some, _ in found for clause in some), f"can run when {ends}"

    def impossible(self) -> Sequence[str]:
        wait, request, pool = self.wait, self.wait.request, shown(self.facts.pool_name)
        agents = wait.all_agents()
        allowed = [agent for agent in agents if agent.id not in request.blocked]
        blocked = sorted(shown(agent.id) for agent in agents if agent.id in request.blocked)
        avoids = f"it avoids {named('agent', blocked)} because of a log policy" if blocked else ""
        other = " other" if blocked else ""
        again = "can run there again after a kill and a continue" if wait.is_kept_away else ""
        if not allowed:
            return avoids, f"pool {pool} has no{other} agent", again
        if request.slots == 0:
            takes_none = f"no{other} agent of pool {pool} takes trials without slots"
            return avoids, takes_none, "ask for 1"
        near = listed(nearest_values(request.slots, wait.sizes), last="or")
        advice = f"ask for {near} instead of {request.slots}" if near else "add slots"
        on_one = " on one agent" if request.is_single_agent else ""
        return (
            avoids,
            f"pool {pool} has {describe_agents(allowed)}{' besides' if avoids else ''}",
            f"values that can run{on_one}: {numbers(wait.sizes) or 'none but 0'}",
            f"{again}, or {advice}" if again else advice,
        )

    # What is there, and who has the rest.

    def _free(self) -> str:
        """Say how many slots are free where the request could run."""
        wait = self.wait
        if self.slots_needed == 0:
            most = wait.pool.rules.max_aux_per_agent
            return f"agents carry at most {most} each, and all are full"
        if wait.spans:
            idle = sum(seats.is_idle for seats in wait.nearest)
            return f"{idle or 'none'} of these {verb(idle, 'is')} idle"
        nearest = wait.nearest[0]
        total = sum(len(seats.free) for seats in wait.allowed)
        if len(wait.allowed) == 1 or total == 0 or self.slots_needed == 1:
            return _free_of(wait.allowed)
        if not nearest.free:
            return f"none is free on agents with {self.slots_needed} slots or more"
        free = f"{len(nearest.free)} of {nearest.size} free"
        return f"agent {shown(nearest.id)} comes nearest with {free}"

    def _who_holds(self) -> str:
        """Name a sole holder with all that is known; of many the first."""
        holders, parts = self.holders, list[str]()
        if len(holders) == 1:
            return self._sole_holder(holders[0])
        most = _HOLDERS if len(holders) > _HOLDERS + 1 else len(holders)
        for holder in holders[:most]:
            holds = "" if parts else "holds "
            leaving = " (leaving)" if holder.is_leaving else ""
            parts.append(f"{self._who(holder)} {holds}{self._amount(holder)}{leaving}")
        if rest := holders[most:]:
            slots = sum(holder.slots for holder in rest)
            parts.append(f"{count(len(rest), 'more experiment')} {slots}")
        return listed(parts)

    def _sole_holder(self, holder: HolderView) -> str:
        facts, num = self.facts, len(holder.trial_ids)
        details = [named("trial", holder.trial_ids) if num == 1 else f"{num} trials"]
        if self.wait.pool.rules.policy is Policy.PRIORITY:
            details.append(f"priority {holder.priority}")
        details.append(f"since {moment(holder.since, facts.now, facts.zone)}")
        if holder.notebook:
            is_file = holder.notebook.endswith((".yaml", ".yml"))  # given to `det e create`
            details.append(f"{'file' if is_file else 'notebook'} {file_of(holder.notebook)}")
        leaving = " and is leaving" if holder.is_leaving else ""
        amount = self._amount(holder)
        return f"{self._who(holder)} ({', '.join(details)}) holds {amount}{leaving}"

    def _amount(self, holder: HolderView) -> int:
        return holder.slots if self.slots_needed else len(holder.trial_ids)

    def _who(self, holder: HolderView) -> str:
        if holder.experiment_id == self.wait.group.id:
            return "its own experiment"
        return titled(holder.experiment_id, holder.experiment_name)

    def _rest(self) -> str:
        """Name who holds slots; a sentence about those ahead says no more of them."""
        own = self.wait.group.id
        others = [one.experiment_id for one in self.holders if one.experiment_id != own]
        parts = [named("experiment", others)] if others else []
        if len(others) > _NAMED:
            parts = [f"{len(others)} other experiments"]
        if len(others) < len(self.holders):
            parts.append("its own")
        return f"{listed(parts)} {verb(len(self.holders), 'holds')} the rest" if parts else ""

    def _ahead(self) -> tuple[str, int]:
        """Return who is ahead, and how many."""
        wait, facts = self.wait, self.facts
        if not wait.is_complete:
            return count(wait.position, "trial"), wait.position
        others = [other for other in wait.in_the_way if other.group != wait.group.id]
        mates, parts = len(wait.in_the_way) - len(others), list[str]()
        if len(others) == 1:
            first = others[0]
            who = titled(first.group, facts.title_of(first.group).name)
            parts.append(f"{who} (trial {facts.trial_of(first.id)}, needs {first.slots})")
        elif others:
            groups = list(dict.fromkeys(other.group for other in others))
            parts.append(f"{len(others)} trials ({named('experiment', groups)})")
        if mates:
            parts.append(f"{count(mates, 'trial')} of its own experiment")
        return listed(parts), len(others) + mates

    # What would start it.

    def _then(self) -> str:
        ahead, them = self.wait.in_the_way, "them"
        if self.reliefs:
            return self._what_starts_it(is_named=False)
        if len(ahead) == 1 and self.wait.is_complete:
            is_own = ahead[0].group == self.wait.group.id
            them = "that one" if is_own else f"experiment {ahead[0].group}"
        return f"starts after {them}{self._when()}"

    def _what_starts_it(self, *, is_named: bool = True) -> str:
        """Say what has to happen, and when that is expected.

        Args:
            is_named: Whether the sentence before named the holders, so that “it” is the only one.
        """
        if self.reliefs:
            return f"starts when {self._relief(is_named)}{self._when()}{self._who_is_asked()}"
        wait = self.wait
        if wait.fits and not wait.in_the_way:
            return "starts in a moment"
        enough = "enough of these slots are given back"
        if self.slots_needed == 0:
            enough = "one of these ends"
        elif wait.spans:
            busy = sum(not seats.is_idle for seats in wait.nearest)
            enough = f"{count(busy, 'more agent')} {verb(busy, 'is')} idle"
        return f"starts when {enough}{self._when()}"

    def _when(self) -> str:
        """Return `, about 14:20`, or nothing if that is unknown."""
        facts, expected = self.facts, self.expected
        leaving = [one.gangs for one in self.reliefs[:1] if one.kind is Kind.LEAVING]
        if leaving and (limit := latest_leaving(facts, leaving[0])):
            return limit
        return f", {about(expected, facts.now, facts.zone)}" if expected else ""

    def _who_is_asked(self) -> str:
        """Say that less urgent ones leave by themselves, if they count as gone."""
        groups = sorted({gang.request.group for gang in self.reliefs[0].asked})
        who = f"{named('experiment', groups)}, less urgent, {verb(len(groups), 'is')}"
        return f"; {who} asked to leave then" if groups else ""

    def _relief(self, is_named: bool) -> str:
        first = self.reliefs[0]
        after = f"{have_left(first.after)} and " if first.after else ""
        if first.kind is Kind.LEAVING:
            ids = sorted({gang.request.group for gang in first.gangs})
            if is_named and sorted(holder.experiment_id for holder in self.holders) == ids:
                return "it has left" if len(ids) == 1 else "they have left"
        if first.group_id is None or first.kind is Kind.LEAVING:
            return has_to_happen(self.wait, first)
        groups = list(dict.fromkeys(relief.group_id for relief in self.reliefs))
        if len(groups) == 1:
            return f"{after}{self._sole(first, is_named)}"
        if any(relief.kind is Kind.SOME for relief in self.reliefs):
            return f"{after}{self._sole(first, False)}"
        if len(groups) > 2:
            return f"{after}{self._any_of(first)}"
        own = self.wait.group.id
        mine = ["a trial of its own"] if own in groups else []
        names = [*mine, *(f"experiment {group}" for group in groups if group != own)]
        return f"{after}{listed(names, last='or')} ends or is paused"

    def _any_of(self, first: Relief) -> str:
        enough = {gang.request.group for relief in self.reliefs for gang in relief.gangs}
        if first.kind is Kind.EXPERIMENT:
            holders = {holder.experiment_id for holder in self.holders}
            is_all = enough >= holders
            which = "these experiments" if is_all else named("experiment", sorted(enough))
            return f"one of {which} ends"
        trials = [trial for holder in self.holders for trial in holder.trial_ids]
        return self._one_trial(trials, "these trials")

    def _one_trial(self, all_ids: Sequence[int], name: str, group: int | None = None) -> str:
        """Say that one of some trials is enough: of all of them, or of those that are named."""
        singles = [one for one in self.reliefs if one.kind is Kind.TRIAL]
        ids = self.wait.survey.trials_of(
            one.gangs[0] for one in singles if group in (None, one.group_id)
        )
        which = name if set(ids) >= set(all_ids) else named("trial", ids)
        return f"{which} ends" if which is not name and len(ids) == 1 else f"one of {which} ends"

    def _sole(self, relief: Relief, is_named: bool) -> str:
        """Say what one experiment has to do."""
        own, group_id = self.wait.group.id, relief.group_id
        holders = {holder.experiment_id: holder for holder in self.holders}
        assert group_id is not None
        trials = holders[group_id].trial_ids
        name = "it" if len(holders) == 1 and is_named else f"experiment {group_id}"
        its = "its" if name == "it" or group_id == own else f"{name}’s"
        if relief.kind is Kind.SOME:
            some = f"{its} {relief.num} trials"
            if relief.num < len(trials):
                is_told = len(self.wait.pool.agents) > 1
                where = f" on agent {shown(relief.agent_id)}" if is_told else ""
                some = f"{relief.num} of {its} trials{where}"
            return f"{some} {verb(relief.num, 'has')} ended"
        if relief.kind is Kind.TRIAL and len(trials) > 1:
            return self._one_trial(trials, f"{its} trials", group_id)
        has_more = any(other.group == group_id for other in self.wait.survey.queue)
        if group_id == own or (has_more and relief.kind is Kind.TRIAL):
            return f"trial {trials[0]} ends"
        return f"{name} ends or is paused"

    # Slots that are not given out.

    def _withheld_too(self) -> str:
        """Mention slots that are not given out, on the nearest agent that has any."""
        wait, need = self.wait, self.slots_needed
        if need == 0:
            return ""
        for seats in wait.nearest:
            if parts := self._kept_from_use(seats):
                return listed(parts)
        # An agent may be too small only because of them.
        smaller = [
            seats
            for seats in wait.allowed
            if 0 < seats.size < need or (not seats.size and seats.is_idle)
        ]
        for seats in sorted(smaller, key=lambda seats: -len(seats.free)):
            if parts := self._kept_from_use(seats):
                return f"of agent {shown(seats.id)} {_free_of([seats])}, {listed(parts)}"
        return ""

    def _kept_from_use(self, seats: Seats) -> list[str]:
        withheld, parts = self.wait.withheld.get(seats.id), list[str]()
        if withheld and (num := len(withheld.disabled_only)):
            parts.append(f"{num} more {verb(num, 'is')} disabled")
        if withheld and (slots := withheld.occupied_only):
            users = {user.pid: user for slot in slots for user in withheld.occupied[slot]}
            first, rest = stranger(next(iter(users.values())), self.facts.now), len(users) - 1
            more = f" and {rest} more {noun(rest, 'process')}" if rest else ""
            parts.append(f"{len(slots)} more {verb(len(slots), 'is')} used by {first}{more}")
        return parts

    def _it(self, word: str, number: int) -> str:
        """Return a pronoun, or the noun where a pronoun could mean several things."""
        if len(self.wait.causes) == 1:
            return "it" if number == 1 else "they"
        return f"the {noun(number, word)}"

    def _occupied(self) -> Sequence[str]:
        wait, users = self.wait, strangers(self.wait)
        occupied = {name: one.occupied for name, one in wait.withheld.items() if one.occupied}
        whole = [a for a in wait.all_agents() if len(occupied) > 1 or a.id in occupied]
        total = count(sum(len(agent.slots) for agent in whole), "slot")
        who = listed((stranger(user, self.facts.now) for user in users), most=2)
        where = f" of agent {shown(min(occupied))}" if len(occupied) == 1 else ""
        num, ends = sum(map(len, occupied.values())), verb(len(users), "ends")
        return (
            f"{who} {verb(len(users), 'uses')} {num} of {total}{where}",
            f"{self._it('program', len(users))} {ends}",
        )

    def _disabled(self) -> Sequence[str]:
        wait = self.wait
        disabled = {
            name: sorted(one.disabled)
            for name, one in sorted(wait.withheld.items())
            if one.disabled
        }
        num = sum(map(len, disabled.values()))
        given = sum(seats.size for seats in wait.allowed)
        total = count(sum(len(agent.slots) for agent in wait.all_agents()), "slot")
        given_out = f"{given or 'none'} of {total} may be given out"
        names = [titled(one.experiment_id, one.experiment_name) for one in self.holders]
        runs = f"{listed(names, most=2)} still {verb(len(names), 'runs')} there" if names else ""
        if len(disabled) == 1 and names:
            agent_id, slots = next(iter(disabled.items()))
            seats = wait.survey.board.seats[agent_id]
            held = len(held_slots(seats).intersection(slots))
            on = "" if held == num else f" on {held} of them"
            return (
                "" if held == num and not seats.size else given_out,
                f"{count(num, 'slot')} of agent {shown(agent_id)} {verb(num, 'is')} draining: "
                f"{runs}{on}",
                f"{self._it('slot', num)} {verb(num, 'is')} enabled",
            )
        parts = [
            f"{noun(len(slots), 'slot')} {numbers(slots)} of agent {shown(agent_id)}"
            for agent_id, slots in disabled.items()
        ]
        several = "enough of them" if len(wait.causes) == 1 else "enough of the slots"
        which = self._it("slot", num) if num == 1 else several
        return (
            given_out,
            f"{listed(parts, most=2)} {verb(num, 'is')} disabled",
            runs,
            f"{which} {verb(num, 'is')} enabled",
        )

    def _gone(self) -> Sequence[str]:
        gone = self.wait.survey.gone
        names = [f"{shown(a.id)} with {count(len(a.slots), 'slot')}" for a in gone]
        are = verb(len(gone), "is")
        return (
            f"{named('agent', names)} {are} not connected",
            f"{self._it('agent', len(gone))} {are} back",
        )


def _free_of(agents: Sequence[Seats]) -> str:
    """Return `2 of 8 are free`."""
    free = sum(len(seats.free) for seats in agents)
    return f"{free or 'none'} of {sum(seats.size for seats in agents)} {verb(free, 'is')} free"
