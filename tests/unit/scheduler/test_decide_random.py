"""Invariants of decisions, in random histories of a pool."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from det_jupyter.contract.values.sizes import GROW_AFTER_S, Sizes
from det_jupyter.scheduler.model import (
    AgentSlots,
    Decisions,
    Fitting,
    Group,
    Policy,
    PoolRules,
    Request,
    size_of,
)
from tests.benchmarks.scheduler_worlds import POLICIES, BusyPool
from tests.scheduler_pool import Pool
from tests.unit.scheduler.pool_world import fits, is_capped, rebuilt, reservations

AGENTS = ("a", "b", "c", "d", "e")
GROUPS = (1, 2, 3, 4)
SIZES = (0, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 16)


def groups(group_id: int) -> st.SearchStrategy[Group]:
    return st.builds(
        Group,
        id=st.just(group_id),
        priority=st.sampled_from((1, 10, 42, 42, 99)),
        weight=st.sampled_from((0.5, 1.0, 1.0, 3.0)),
        max_slots=st.sampled_from((None, None, None, 1, 3, 8)),
        position=st.sampled_from((0.0, 1.0, 2.5)),
    )


class Histories(RuleBasedStateMachine):
    """Random changes of a pool; after each of them it decides."""

    rules_of_pool: PoolRules
    agents: dict[str, AgentSlots]

    @initialize(preemption=st.booleans(), fitting=st.sampled_from(Fitting), mixed=st.booleans())
    def begin(self, preemption: bool, fitting: Fitting, mixed: bool) -> None:
        self.rules_of_pool = PoolRules(
            policy=self.policy,
            preemption=preemption,
            fitting=fitting,
            allow_heterogeneous_fits=mixed,
            max_aux_per_agent=2,
        )
        self.pool = Pool(self.rules_of_pool)
        self.now = 0.0
        self.number = 0
        for group in GROUPS:
            self.pool.set_group(Group(id=group, position=float(group)))

    policy: Policy

    @rule(
        name=st.sampled_from(AGENTS),
        slots=st.sampled_from((0, 2, 4, 4, 8)),
        missing=st.sets(st.integers(0, 3), max_size=2),
        kind=st.sampled_from(("cuda", "cuda", "cuda", "cpu")),
        is_open=st.booleans(),
    )
    def an_agent_comes_or_changes(
        self, name: str, slots: int, missing: set[int], kind: str, is_open: bool
    ) -> None:
        ids = tuple(slot for slot in range(slots) if slot not in missing)
        freed_at = dict.fromkeys(ids, self.now)
        self.pool.set_agent(
            AgentSlots(id=name, kind=kind, slots=ids, is_open=is_open, freed_at=freed_at)
        )
        self.decide()

    @precondition(lambda self: self.pool.agents)
    @rule(data=st.data(), is_told_first=st.booleans())
    def an_agent_goes(self, data: st.DataObject, is_told_first: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.pool.agents)))
        gangs = [running.request.id for running in self.pool.on_agent(name)]
        if is_told_first:
            self.pool.remove_agent(name)
        for request_id in gangs:
            self.pool.remove(request_id)
        if not is_told_first:
            self.pool.remove_agent(name)
        self.decide()

    @rule(data=st.data(), group_id=st.sampled_from(GROUPS))
    def a_group_changes(self, data: st.DataObject, group_id: int) -> None:
        self.pool.set_group(data.draw(groups(group_id)))
        self.decide()

    @rule(
        group=st.sampled_from(GROUPS),
        slots=st.sampled_from(SIZES),
        num=st.sampled_from((1, 1, 2, 5)),
        is_single_agent=st.booleans(),
        blocked=st.sets(st.sampled_from(AGENTS), max_size=1),
        number=st.integers(0, 3),
        more=st.sampled_from((0, 0, 1, 7)),
    )
    def requests_come(
        self,
        group: int,
        slots: int,
        more: int,
        num: int,
        is_single_agent: bool,
        blocked: set[str],
        number: int,
    ) -> None:
        for _ in range(num):
            self.number += 1
            self.pool.add(
                Request(
                    id=f"r{self.number}",
                    group=group,
                    slots=slots,
                    sizes=Sizes(slots, slots + more) if slots and more else None,
                    number=number,
                    is_single_agent=is_single_agent,
                    blocked=frozenset(blocked),
                )
            )
        self.decide()

    @precondition(lambda self: self.pool.num_waiting)
    @rule(data=st.data())
    def one_waits_no_more(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.pool.waiting()))
        self.pool.remove(request.id)
        self.decide()

    @precondition(lambda self: self.pool.running)
    @rule(data=st.data(), num=st.integers(1, 3), seconds=st.sampled_from((0.0, 1.0, 7.5)))
    def some_end(self, data: st.DataObject, num: int, seconds: float) -> None:
        self.now += seconds
        for _ in range(min(num, len(self.pool.running))):
            self.pool.remove(data.draw(st.sampled_from(sorted(self.pool.running))))
        self.decide()

    @precondition(lambda self: self.pool.running)
    @rule(data=st.data())
    def one_is_asked_to_leave(self, data: st.DataObject) -> None:
        self.pool.leave(data.draw(st.sampled_from(sorted(self.pool.running))))
        self.decide()

    @rule(seconds=st.sampled_from((0.5, 3.0)))
    def those_who_leave_have_left_and_queue_again(self, seconds: float) -> None:
        self.now += seconds
        for running in [*self.pool.running.values()]:
            if running.is_leaving:
                self.number += 1
                again = running.request
                self.pool.remove(again.id)
                slots = again.sizes.least if again.sizes else again.slots
                self.pool.add(replace(again, id=f"r{self.number}", slots=slots))
        self.decide()

    @rule(seconds=st.sampled_from((0.5, 5.0, 12.0)))
    def those_that_are_resized_go_on_and_all_train(self, seconds: float) -> None:
        self.now += seconds
        for running in [*self.pool.running.values()]:
            if running.becomes and not running.is_leaving:
                self.pool.go_on(running.request.id, self.now)
        for running in [*self.pool.running.values()]:
            self.pool.hold(replace(running, trains_since=running.since))
        self.decide()

    def decide(self) -> None:
        again = rebuilt(self.pool)
        assert self.pool.waiting() == again.waiting()
        before = rebuilt(self.pool)
        decisions = self.pool.decide(self.now)
        assert decisions == again.decide(self.now)
        assert reservations(self.pool) == reservations(again)
        self.check_starts(before, decisions)
        self.check_keeping(before, decisions)
        self.check_preemptions(before, decisions)
        self.check_resizes(before, decisions)
        self.check_first()

    def check_starts(self, before: Pool, decisions: Decisions) -> None:
        for start in decisions.starts:
            request = self.pool.running[start.request_id].request
            assert before.is_waiting(request.id)
            assert not self.pool.is_waiting(request.id)
            agents = [self.pool.agents[part.agent_id] for part in start.parts]
            assert len({agent.id for agent in agents}) == len(agents)
            assert len({agent.kind for agent in agents}) == 1
            assert request.blocked.isdisjoint(agent.id for agent in agents)
            assert sum(len(part.slot_ids) for part in start.parts) == request.slots
            for agent, part in zip(agents, start.parts, strict=True):
                assert set(part.slot_ids) <= set(before.free(agent.id))
                assert len(agents) == 1 or part.slot_ids == agent.slots
                assert request.slots or agent.is_open
            assert len(agents) == 1 or not request.is_single_agent
            most = self.pool.groups[request.group].max_slots
            assert most is None or not request.slots or self.pool.held(request.group) <= most

    def check_keeping(self, before: Pool, decisions: Decisions) -> None:
        """On agents kept for a request ahead nothing starts but backfill that can be preempted.

        And one for whom others were asked to leave there.
        """
        if self.policy is Policy.ROUND_ROBIN or (
            self.policy is Policy.FAIR_SHARE
            and (self.rules_of_pool.preemption or before.snapshot().overtakes(decisions.starts))
        ):
            return  # passes follow one another: the order before is not that of them all
        promised = {request.id for request in before.waiting() if request.promised}
        for start in decisions.starts:
            running = self.pool.running[start.request_id]
            for request_id, kept in reservations(self.pool).items():
                is_ahead = before.position(request_id) < before.position(start.request_id)
                is_due = start.request_id in promised
                if is_ahead and not is_due and {part.agent_id for part in start.parts} & set(kept):
                    assert not running.request.slots or (
                        running.is_backfill
                        and self.rules_of_pool.preemption
                        and self.priority(start.request_id) > self.priority(request_id)
                    )

    def check_preemptions(self, before: Pool, decisions: Decisions) -> None:
        assert self.rules_of_pool.preemption or not decisions.preemptions
        for promise in decisions.promises:
            assert self.pool.is_waiting(promise.request_id)
            assert set(promise.agents) <= set(self.pool.agents)
        asked_for = {gone.for_request_id for gone in decisions.preemptions}
        asked_for |= {one.for_request_id for one in decisions.resizes}
        assert {p.request_id for p in decisions.promises if p.agents} <= asked_for
        assert not any(running.request.promised for running in self.pool.running.values())
        assert len({gone.request_id for gone in decisions.preemptions}) == len(
            decisions.preemptions
        )
        for gone in decisions.preemptions:
            assert self.pool.running[gone.request_id].is_leaving
            assert self.pool.is_waiting(gone.for_request_id)
            victim, taker = self.group(gone.request_id), self.group(gone.for_request_id)
            assert victim.id != taker.id
            if self.policy is Policy.PRIORITY:
                assert victim.priority > taker.priority
        if self.policy is Policy.PRIORITY and decisions.preemptions and not decisions.starts:
            self.check_first_victims(before, decisions)

    def check_resizes(self, before: Pool, decisions: Decisions) -> None:
        for resize in decisions.resizes:
            gang = before.running.get(resize.request_id) or self.pool.running[resize.request_id]
            sizes, size = gang.request.sizes, size_of(resize.parts)
            assert sizes is not None
            assert sizes.least <= size <= sizes.most
            mine = self.pool.groups[gang.request.group]
            if resize.for_request_id:
                assert size < size_of(gang.next_parts)
                for part in resize.parts:
                    assert {*part.slot_ids} <= {*gang.slots_on(part.agent_id)}
                taker = self.group(resize.for_request_id)
                assert self.policy is not Policy.PRIORITY or mine.priority >= taker.priority
                continue
            assert size > gang.request.slots
            assert not gang.becomes
            assert gang.trains_since is not None
            assert gang.trains_since <= self.now - GROW_AFTER_S
            assert mine.max_slots is None or self.pool.held(mine.id) <= mine.max_slots
            for part in resize.parts:
                agent = self.pool.agents[part.agent_id]
                more = {*part.slot_ids} - {*gang.slots_on(agent.id)}
                assert more <= {*before.free(agent.id)}
                assert all(agent.freed_at[slot] <= self.now - GROW_AFTER_S for slot in more)
                is_kept = any(agent.id in kept for kept in reservations(self.pool).values())
                assert not (more and is_kept)

    def check_first_victims(self, before: Pool, decisions: Decisions) -> None:
        """The first who waits has those leave that cost least, and they make room for it."""
        first = next((r for r in before.waiting() if not is_capped(before, r)), None)
        victims = {
            g.request_id for g in decisions.preemptions if first and g.for_request_id == first.id
        }
        if first is None or not victims:
            return
        if any(request.promised for request in before.waiting()):
            return  # slots of leaving gangs are promised
        leaving = [r.request.id for r in before.running.values() if r.is_leaving]
        assert not fits(before, first, leaving)
        assert fits(before, first, [*leaving, *victims])
        for victim in victims:
            assert not fits(before, first, [*leaving, *(victims - {victim})])

    def check_first(self) -> None:
        """No slot is free that the first who waits and may start could use."""
        for request in self.pool.waiting():
            if not is_capped(self.pool, request):
                assert not fits(self.pool, request)
                return

    @invariant()
    def no_slot_is_held_twice(self) -> None:
        if not hasattr(self, "pool"):
            return
        held = [
            (agent_id, slot)
            for running in self.pool.running.values()
            for agent_id in running.agent_ids
            for slot in running.slots_on(agent_id)
        ]
        assert len(held) == len(set(held))
        for agent in self.pool.agents.values():
            taken = {slot for agent_id, slot in held if agent_id == agent.id}
            assert self.pool.free(agent.id) == tuple(
                slot for slot in agent.slots if slot not in taken
            )

    @invariant()
    def positions_tell_the_order(self) -> None:
        if not hasattr(self, "pool"):
            return
        waiting = self.pool.waiting()
        assert [self.pool.position(request.id) for request in waiting] == [*range(len(waiting))]
        assert self.pool.waiting(2) == waiting[:2]

    @invariant()
    def it_comes_to_rest(self) -> None:
        """Repeated without changes, it preempts nothing and soon decides nothing."""
        if not hasattr(self, "pool"):
            return
        again = rebuilt(self.pool)
        for _ in range(20):
            decisions = again.decide(self.now)
            assert not decisions.preemptions
            assert not decisions.resizes
            if decisions == Decisions():
                return
        raise AssertionError("it never comes to rest")

    def group(self, request_id: str) -> Group:
        if self.pool.is_waiting(request_id):
            mine = next(r for r in self.pool.waiting() if r.id == request_id)
        else:
            mine = self.pool.running[request_id].request
        return self.pool.groups[mine.group]

    def priority(self, request_id: str) -> int:
        return self.group(request_id).priority


@pytest.mark.parametrize("policy", list(Policy))
def test_random_histories_keep_every_promise(policy: Policy) -> None:
    machine = type("Histories", (Histories,), {"policy": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=30, stateful_step_count=25),
    )


@pytest.mark.parametrize("name", POLICIES)
def test_a_busy_pool_decides_as_one_built_anew(name: str) -> None:
    """With more who wait than may keep agents."""
    chance = random.Random(2)
    pool = BusyPool(POLICIES[name], num_agents=60, num_waiting=100).pool
    for step in range(25):
        again = rebuilt(pool)
        ended = chance.choice(sorted(pool.running))
        for one in (pool, again):
            one.remove(ended)
        assert pool.decide(float(step)) == again.decide(float(step))
        assert reservations(pool) == reservations(again)
        assert pool.waiting(20) == again.waiting(20)
