"""In random pools, every trial that waits has a reason, and its remedies are true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import DeviceFault, DeviceProcess, Estimate, Remedy
from det_jupyter.scheduler.model import (
    AgentSlots,
    Fitting,
    Group,
    Policy,
    PoolRules,
    Request,
)
from det_jupyter.scheduler.reasons import Withheld
from tests.scheduler_pool import Pool
from tests.unit.scheduler.reasons.reasons_world import NOON, World, apply, settle, why

NEVER = ("occupied", "disabled", "lost", "no_agent", "agent_gone", "impossible")

rules = st.builds(
    PoolRules,
    policy=st.sampled_from(Policy),
    preemption=st.booleans(),
    fitting=st.sampled_from(Fitting),
    allow_heterogeneous_fits=st.booleans(),
    max_aux_per_agent=st.integers(0, 2),
    reservation_depth=st.sampled_from([1, 2, 32, 32]),
)


@st.composite
def agent_lists(draw: st.DrawFn, first: str = "abcd") -> list[AgentSlots]:
    num = draw(st.sampled_from([0, *range(1, len(first) + 1), *range(1, len(first) + 1)]))
    sizes = draw(st.lists(st.sampled_from([1, 2, 4, 4, 8]), min_size=num, max_size=num))
    return [
        AgentSlots(
            id=first[i],
            kind=draw(st.sampled_from(["cuda", "cuda", "cpu"])),
            slots=tuple(range(size)),
            is_open=draw(st.sampled_from([True, True, True, False])),
        )
        for i, size in enumerate(sizes)
    ]


@st.composite
def group_lists(draw: st.DrawFn, num: int) -> list[Group]:
    """Draw groups with distinct positions."""
    positions = draw(st.permutations(range(1, num + 1)))
    return [
        Group(
            id=i + 1,
            priority=draw(st.sampled_from([10, 42, 42, 50])),
            weight=draw(st.sampled_from([1.0, 1.0, 3.0])),
            max_slots=draw(st.sampled_from([None, None, None, 2, 4, 8])),
            position=float(positions[i]),
        )
        for i in range(num)
    ]


@st.composite
def odd_worlds(draw: st.DrawFn) -> World:
    """Draw all that there is; nothing runs yet."""
    groups = draw(group_lists(draw(st.integers(1, 5))))
    blocked = st.frozensets(st.sampled_from("abcd"), max_size=1)
    queue = [
        Request(
            id=str(trial),
            group=draw(st.integers(1, len(groups))),
            slots=draw(st.sampled_from([0, 1, 1, 1, 2, 2, 3, 4, 4, 8, 8, 12])),
            number=trial,
            is_single_agent=draw(st.sampled_from([False, False, True])),
            blocked=draw(blocked) if draw(st.integers(0, 5)) == 0 else frozenset(),
        )
        for trial in range(100, 100 + draw(st.integers(1, 14)))
    ]
    away: dict[str, Withheld] = {}
    offered = []
    for here in draw(agent_lists()):
        away[here.id] = draw(withheld(len(here.slots)))
        lost = {*away[here.id].disabled, *away[here.id].occupied, *away[here.id].lost}
        offered.append(replace(here, slots=tuple(s for s in here.slots if s not in lost)))
    return World(
        agents=offered,
        groups=groups,
        queue=queue,
        rules=draw(rules),
        away=away,
        absent=draw(agent_lists("yz")),
    )


@st.composite
def usual_worlds(draw: st.DrawFn) -> World:
    """Draw equal agents, all of them there, and several trials of a few experiments."""
    size = draw(st.sampled_from([2, 4, 8]))
    agents = [
        AgentSlots(id=name, kind="cuda", slots=tuple(range(size)))
        for name in "abcd"[: draw(st.integers(1, 4))]
    ]
    groups = draw(group_lists(draw(st.integers(2, 5))))
    sizes = [draw(st.sampled_from([1, 1, 2, size, size, 2 * size])) for _ in groups]
    owners = draw(st.lists(st.integers(1, len(groups)), min_size=6, max_size=16))
    queue = [
        Request(id=str(100 + i), group=owner, slots=sizes[owner - 1], number=100 + i)
        for i, owner in enumerate(owners)
    ]
    others = {"night": other_pool(draw(st.integers(0, size)))} if draw(st.booleans()) else {}
    return World(agents=agents, groups=groups, queue=queue, rules=draw(rules), others=others)


def other_pool(num_slots: int) -> Pool:
    pool = Pool()
    pool.set_agent(AgentSlots(id="n", kind="cuda", slots=tuple(range(num_slots))))
    return pool


worlds = st.one_of(odd_worlds(), usual_worlds())


@st.composite
def withheld(draw: st.DrawFn, size: int) -> Withheld:
    pids = st.lists(st.integers(1, 3), min_size=1, max_size=2, unique=True)
    return Withheld(
        disabled=_some(draw, size),
        occupied={
            slot: [DeviceProcess(pid=pid, command=f"python {pid}") for pid in draw(pids)]
            for slot in _some(draw, size)
        },
        lost={slot: DeviceFault(index=slot, at=NOON) for slot in _some(draw, size)},
    )


def _some(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    if draw(st.integers(0, 2)):
        return ()
    return tuple(sorted(draw(st.sets(st.integers(0, size - 1)))))


def lived(world: World, data: st.DataObject) -> None:
    """Let the pool live for a while and write down who runs and who waits at the end."""
    pool = Pool(world.rules)
    for here in world.agents:
        pool.set_agent(here)
    for group in world.groups:
        pool.set_group(group)
    moment = NOON - 3600
    for request in world.queue:
        pool.add(request)
        moment += data.draw(st.sampled_from([0.0, 60.0]))
        if data.draw(st.booleans()):
            pool.decide(moment)
        if pool.running and data.draw(st.integers(0, 3)) == 0:
            pool.remove(data.draw(st.sampled_from(sorted(pool.running))))
        if pool.running and data.draw(st.integers(0, 5)) == 0:
            pool.leave(data.draw(st.sampled_from(sorted(pool.running))))
    pool.decide(NOON)
    pool.decide(NOON)
    world.running = list(pool.running.values())
    world.queue = pool.waiting()
    world.ends = {
        gang.request.id: Estimate(at=at, earliest=(NOON + at) / 2, latest=2 * at - NOON, basis="b")
        for gang in world.running
        if (at := NOON + data.draw(st.sampled_from([0, 60, 600, 3600]))) > NOON
    }


def settled(world: World) -> Pool:
    pool = world.pool()
    for _ in range(3):
        if not pool.decide(world.now).starts:
            break
    return pool


@settings(max_examples=30)
@given(worlds, st.data())
def test_every_waiting_trial_has_a_reason_and_what_its_remedies_say_starts_it(
    world: World, data: st.DataObject
) -> None:
    lived(world, data)
    pool = settled(world)
    for waiting in pool.waiting():
        reason = why(pool, waiting.id, world)
        event(reason.cause)
        names_need = (
            f"{waiting.slots} slot" if waiting.slots else "a place for a trial without slots"
        )
        assert names_need in reason.sentence
        assert "\n" not in reason.sentence
        assert len(reason.remedies) <= 4
        assert (reason.expected is None) == bool(reason.why_unknown)
        if reason.expected is not None:
            assert world.now <= reason.expected.earliest <= reason.expected.at
            assert reason.expected.at <= (reason.expected.latest or reason.expected.at)
        for remedy in reason.remedies:
            event(f"{reason.cause}: {remedy.verb}")
            check(remedy, world, waiting, reason.cause)
        if not reason.remedies:
            event(f"{reason.cause}: no remedy")


@settings(max_examples=30)
@given(odd_worlds(), st.data())
def test_what_a_trial_that_cannot_run_waits_for_is_all_that_it_needs(
    world: World, data: st.DataObject
) -> None:
    lived(world, data)
    pool = settled(world)
    for waiting in pool.waiting():
        found = why(pool, waiting.id, world)
        if found.cause not in ("occupied", "disabled", "lost", "agent_gone"):
            continue
        words = set(found.sentence.rpartition("can run when ")[2].replace(",", "").split())
        better = put_right(
            world,
            enable="enabled" in words,
            free=not words.isdisjoint({"end", "ends"}),
            reset="reset" in words,
            reconnect="back" in words,
        )
        then = settled(better)
        if then.is_waiting(waiting.id):
            assert why(then, waiting.id, better).cause not in NEVER, found.sentence


def put_right(world: World, *, enable: bool, free: bool, reset: bool, reconnect: bool) -> World:
    agents = []
    for here in world.agents:
        withheld = world.away[here.id]
        left = {
            *(() if enable else withheld.disabled),
            *(() if free else withheld.occupied),
            *(() if reset else withheld.lost),
        }
        more = {*withheld.disabled, *withheld.occupied, *withheld.lost} - left
        is_open = here.is_open or (enable and bool(withheld.disabled))
        slots = tuple(sorted({*here.slots, *more}))
        agents.append(replace(here, slots=slots, is_open=is_open))
    away = {
        name: replace(
            one,
            disabled=() if enable else one.disabled,
            occupied={} if free else one.occupied,
            lost={} if reset else one.lost,
        )
        for name, one in world.away.items()
    }
    absent = list(world.absent)
    agents += absent if reconnect else []
    return replace(world, agents=agents, away=away, absent=[] if reconnect else absent)


def check(remedy: Remedy, world: World, waiting: Request, cause: str) -> None:
    pool = settled(world)
    if remedy.verb == "add_agent" and cause == "no_agent":
        return
    if "pool" in remedy.values:
        assert starts_elsewhere(world, waiting, pool.waiting())
        return
    request_id = apply(remedy, pool, world, waiting)
    settle(pool, world.now)
    if request_id in pool.running:
        return
    assert cause in NEVER, (remedy, waiting)
    assert "waits for its turn" in remedy.text or "can run" in remedy.text
    left = world if cause == "impossible" else replace(world, away={}, absent=())
    after = why(pool, request_id, left).cause
    hopeless = (cause,) if cause == "impossible" else NEVER
    assert after not in hopeless, (remedy, waiting)


def starts_elsewhere(world: World, waiting: Request, queue: Sequence[Request]) -> bool:
    """Whether the trial starts in the other pool once its whole experiment waits there."""
    there = other_pool(len(world.others["night"].agents["n"].slots))
    there.set_group(next(group for group in world.groups if group.id == waiting.group))
    for request in queue:
        if request.group == waiting.group:
            there.add(request)
    settle(there, world.now)
    return waiting.id in there.running
