"""Reasons in rare cases: closed agents, agents to avoid, mixed fits, several foreign processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from det_jupyter.contract.messages import DeviceProcess
from det_jupyter.scheduler.model import AgentSlots, Group, PoolRules
from det_jupyter.scheduler.reasons import Withheld
from tests.unit.scheduler.reasons.reasons_world import (
    NOON,
    World,
    agent,
    ask,
    gang,
    offers,
    reason,
)

MINE = [Group(id=3, position=3.0), Group(id=5, position=5.0)]


def test_a_trial_without_slots_starts_when_its_agent_is_enabled() -> None:
    closed = AgentSlots(id="my box", slots=(), is_open=False)
    found = reason(
        World(
            agents=[closed],
            groups=MINE,
            queue=[ask(9, 5, 0)],
            away={"my box": Withheld(disabled=(0, 1))},
        )
    )
    assert found.sentence == (
        "needs a place for a trial without slots; none of 2 slots may be given out; slots 0, 1 of "
        "agent my box are disabled; can run when enough of them are enabled"
    )
    assert [line for _, line in offers(found)] == ["%det slot enable 'my box' 0 1"]


def test_a_trial_without_slots_cannot_run_where_none_are_taken() -> None:
    found = reason(
        World(
            agents=[agent("a", 4)],
            groups=MINE,
            rules=PoolRules(max_aux_per_agent=0),
            queue=[ask(9, 5, 0)],
        )
    )
    assert found.sentence == (
        "needs a place for a trial without slots; no agent of pool default takes trials without "
        "slots; ask for 1"
    )
    assert [remedy.values for remedy in found.remedies] == [{"slots_per_trial": 1}]


def test_places_without_slots_are_given_back_one_at_a_time() -> None:
    found = reason(
        World(
            agents=[agent("a", 4)],
            groups=MINE,
            rules=PoolRules(max_aux_per_agent=1),
            running=[gang(7, 3, {"a": []})],
            queue=[ask(8, 5, 0), ask(9, 5, 0)],
        )
    )
    assert found.sentence == (
        "needs a place for a trial without slots; agents carry at most 1 each, and all are full; "
        "1 trial of its own experiment is ahead of it; experiment 3 holds the rest; starts after "
        "that one"
    )


def test_whoever_must_avoid_all_agents_cannot_run() -> None:
    found = reason(
        World(
            agents=[agent("a", 4)],
            groups=MINE,
            queue=[ask(9, 5, 1, blocked=frozenset("a"))],
        )
    )
    assert found.cause == "impossible"
    assert found.sentence == (
        "needs 1 slot; it avoids agent a because of a log policy; pool default has no other "
        "agent; can run there again after a kill and a continue"
    )
    assert offers(found) == [
        (
            "kill its experiment and continue it: it may run there again; then it waits for its "
            "turn",
            "%det_experiment kill 5\n%det_experiment continue 5",
        )
    ]


def test_an_agent_that_the_pool_does_not_have_gives_nothing() -> None:
    found = reason(
        World(
            agents=[agent("a", 2)],
            groups=MINE,
            queue=[ask(9, 5, 4)],
            away={"elsewhere": Withheld(disabled=(0, 1, 2, 3))},
        )
    )
    assert (found.cause, [r.values for r in found.remedies]) == (
        "impossible",
        [{"slots_per_trial": 2}],
    )


def test_several_agents_that_are_gone_are_named_together() -> None:
    found = reason(
        World(absent=[agent("left", 4), agent("right", 4)], groups=MINE, queue=[ask(9, 5, 8)])
    )
    assert found.sentence == (
        "needs 8 slots; agents left with 4 slots and right with 4 slots are not connected; can "
        "run when they are back"
    )
    assert [remedy.text for remedy in found.remedies] == ["reconnect agents left and right"]


def test_nobody_is_asked_to_leave_for_a_mixed_fit() -> None:
    world = World(
        agents=[agent("a", 4), agent("b", 2)],
        groups=MINE,
        rules=PoolRules(preemption=True, allow_heterogeneous_fits=True),
        running=[gang(7, 3, {"a": [0]})],
        queue=[ask(9, 5, 6)],
    )
    found = reason(world)
    assert found.sentence == (
        "needs 6 slots of whole agents; 1 of these is idle; experiment 3 “name3” (trial 7, "
        "priority 42, since 10:00) holds 1; starts when it ends or is paused"
    )
    assert [remedy.verb for remedy in found.remedies] == ["wait", "pause", "kill_and_submit"]


def test_whole_agents_that_several_hold_are_counted() -> None:
    found = reason(
        World(
            agents=[agent("a", 4), agent("b", 4)],
            groups=[*MINE, Group(id=4, position=4.0)],
            running=[gang(7, 3, {"a": [0]}), gang(8, 4, {"b": [0]})],
            queue=[ask(9, 5, 8)],
        )
    )
    assert found.sentence == (
        "needs 8 slots, 2 whole agents of 4; none of these is idle; experiment 3 “name3” holds 1 "
        "and experiment 4 “name4” 1; starts when 2 more agents are idle"
    )


def test_whoever_ends_gives_back_all_that_it_uses() -> None:
    """8 slots are two whole agents of 4; agent a would have 5 without process 1."""
    one = DeviceProcess(pid=1, command="python")
    world = World(
        agents=[AgentSlots(id="a", kind="cuda", slots=(0, 1, 2)), agent("b", 4)],
        groups=MINE,
        queue=[ask(9, 5, 8)],
        away={"a": Withheld(occupied={3: [one], 4: [one]})},
    )
    assert reason(world).remedies[0].verb == "kill_and_submit"
    world.away = {"a": Withheld(occupied={3: [one]})}
    assert [(r.verb, r.values) for r in reason(world).remedies] == [
        ("ask_for_devices", {"pids": [1], "slot_ids": [3], "host": ""})
    ]


def test_several_processes_are_ended_together() -> None:
    idle = NOON - 120
    users = [DeviceProcess(pid=p, command=f"python {p}", idle_since=idle) for p in (1, 2)]
    found = reason(
        World(
            agents=[AgentSlots(id="a", slots=(0,))],
            groups=MINE,
            queue=[ask(9, 5, 3)],
            away={"a": Withheld(occupied={1: users[:1], 2: users[1:]})},
        )
    )
    assert offers(found) == [
        (
            "end python 1 (pid 1, idle for 2 min) and python 2 (pid 2, idle for 2 min) on agent a",
            "!kill 1 2",
        )
    ]


def test_max_slots_of_those_ahead_leaves_room() -> None:
    """Experiment 3 may hold 2: only one of its two trials goes first."""
    world = World(
        agents=[agent("a", 4)],
        groups=[Group(id=3, max_slots=2, position=3.0), *MINE[1:]],
        running=[gang(7, 5, {"a": range(4)})],
        queue=[ask(8, 3, 2), ask(10, 3, 2), ask(11, 5, 2)],
    )
    found = reason(world, "11")
    assert (found.position, found.ahead) == (2, [3])
    assert found.sentence == (
        "needs 2 slots; none of 4 is free; experiment 3 “name3” (trial 8, needs 2) is ahead of "
        "it; its own holds the rest; starts when trial 7 ends"
    )


def test_of_more_agents_than_those_ahead_one_is_left() -> None:
    world = World(
        agents=[agent("a", 4), agent("b", 4)],
        groups=[*MINE, Group(id=4, position=4.0)],
        running=[gang(7, 3, {"a": range(4), "b": range(4)})],
        queue=[ask(8, 4, 4), ask(9, 5, 2)],
    )
    assert [(r.verb, r.values) for r in reason(world).remedies][:1] == [("wait", {"trials": [7]})]
    larger = replace(world, queue=[ask(8, 4, 8), ask(9, 5, 2)])
    assert offers(reason(larger)) == [
        (
            "pause experiments 3 and 4, of which experiment 3 holds 8 slots and experiment 4 is "
            "ahead of it",
            "%det_experiment pause 3\n%det_experiment pause 4",
        )
    ]


def test_a_process_that_uses_several_devices_gives_all_of_them_back() -> None:
    """Slot 3 would be enough for a whole agent of 4, but process 1 uses slot 4 as well."""
    one, two = (DeviceProcess(pid=pid, command="python", idle_since=0.0) for pid in (1, 2))
    found = reason(
        World(
            agents=[AgentSlots(id="a", kind="cuda", slots=(0, 1, 2)), agent("b", 4)],
            groups=MINE,
            rules=PoolRules(),
            queue=[ask(9, 5, 8)],
            away={"a": Withheld(occupied={3: [one], 4: [one], 5: [two]})},
        )
    )
    assert "ask_for_devices" not in [remedy.verb for remedy in found.remedies]


def test_enabling_slots_helps_no_trial_without_slots_on_an_open_agent() -> None:
    found = reason(
        World(
            agents=[AgentSlots(id="a", slots=(0,))],
            groups=MINE,
            rules=PoolRules(max_aux_per_agent=1),
            running=[gang(7, 3, {"a": []})],
            queue=[ask(9, 5, 0)],
            away={"a": Withheld(disabled=(1,))},
        )
    )
    assert [remedy.verb for remedy in found.remedies] == ["wait", "pause"]


def test_what_a_process_uses_besides_must_not_make_its_agent_useless() -> None:
    """4 slots are 4 agents of 1 or 2 of 2, and no agent of 3, which slots 0 to 2 would make."""
    one, two = (DeviceProcess(pid=pid, command="python") for pid in (1, 2))
    world = World(
        agents=[agent("a", 0), *(agent(name, 1) for name in "bcd"), agent("e", 2)],
        groups=MINE,
        queue=[ask(9, 5, 4)],
        away={"a": Withheld(occupied={0: [one], 1: [one], 2: [one], 3: [two]})},
    )
    assert reason(world).remedies == []
    world.away = {"a": Withheld(occupied={0: [one], 1: [one], 2: [two], 3: [two]})}
    found = reason(world).remedies[0]
    assert (found.verb, found.values) == (
        "ask_for_devices",
        {"pids": [1], "slot_ids": [0], "host": ""},
    )


def used_by(pid: int, user: str = "") -> list[DeviceProcess]:
    return [DeviceProcess(pid=pid, command=f"python {pid}", user=user, idle_since=NOON - 600)]


def test_each_user_is_asked_for_what_is_theirs() -> None:
    found = reason(
        World(
            agents=[AgentSlots(id="a", slots=(0,))],
            groups=MINE,
            queue=[ask(9, 5, 4)],
            away={
                "a": Withheld(
                    occupied={1: used_by(1, "ada"), 2: used_by(2, "bob"), 3: used_by(3, "ada")}
                )
            },
            own_user="me",
        )
    )
    assert offers(found) == [
        (
            "ask ada to end python 1 (pid 1, ada, idle for 10 min) and python 3 (pid 3, ada, idle "
            "for 10 min) and ask bob to end python 2 (pid 2, bob, idle for 10 min) on agent a",
            "",
        )
    ]


@pytest.mark.parametrize(
    ("occupied", "told"),
    [
        ({"a": 1}, "python 1 (pid 1, idle for 10 min) uses 1 of 3 slots of agent a"),
        (
            {"a": 1, "b": 2},
            "python 1 (pid 1, idle for 10 min) and python 2 (pid 2, idle for 10 min) use 2 of 5 "
            "slots",
        ),
    ],
)
def test_slots_are_counted_where_strangers_use_some(occupied: dict[str, int], told: str) -> None:
    found = reason(
        World(
            agents=[agent("a", 2), agent("b", 1)],
            groups=MINE,
            queue=[ask(9, 5, 3)],
            away={name: Withheld(occupied={2: used_by(pid)}) for name, pid in occupied.items()},
        )
    )
    assert found.sentence.split("; ")[1] == told
    assert [process.pid for process in found.processes] == [*occupied.values()]


def test_processes_where_it_may_not_run_are_not_told() -> None:
    found = reason(
        World(
            agents=[agent("a", 2), agent("b", 2)],
            groups=MINE,
            queue=[ask(9, 5, 3, blocked=frozenset("b"))],
            away={
                name: Withheld(occupied={2: used_by(pid)})
                for pid, name in enumerate(["a", "b", "not here"])
            },
        )
    )
    assert [process.pid for process in found.processes] == [0]


@pytest.mark.parametrize(
    ("theirs", "own", "offered"),
    [(1, 42, None), (1, 1, None), (2, 42, 1), (41, 42, 40), (42, 42, 41), (42, 50, 41)],
)
def test_a_priority_is_offered_that_is_just_more_urgent_and_no_less_than_1(
    theirs: int, own: int, offered: int | None
) -> None:
    found = reason(
        World(
            agents=[agent("a", 2)],
            groups=[Group(id=3, priority=theirs), Group(id=5, priority=own, position=5.0)],
            rules=PoolRules(preemption=True),
            running=[gang(7, 3, {"a": [0, 1]})],
            queue=[ask(9, 5, 2)],
        )
    )
    values = [remedy.values for remedy in found.remedies if remedy.verb == "set"]
    assert values == ([] if offered is None else [{"priority": offered}])


@pytest.mark.parametrize(("slots", "need"), [(1, "1 slot"), (2, "2 slots on one agent")])
def test_that_slots_must_be_on_one_agent_is_said_of_several(slots: int, need: str) -> None:
    found = reason(
        World(
            agents=[agent("a", 2), agent("b", 2)],
            groups=MINE,
            running=[gang(7, 3, {"a": [0, 1]}), gang(8, 3, {"b": [0, 1]})],
            queue=[ask(9, 5, slots)],
        )
    )
    assert found.sentence.startswith(f"needs {need}; none of 4 is free; ")


@pytest.mark.parametrize("is_held", [False, True])
def test_an_agent_that_is_disabled_is_mentioned_if_it_is_empty(is_held: bool) -> None:
    found = reason(
        World(
            agents=[agent("left", 2), agent("right", 0)],
            groups=[*MINE, Group(id=4, position=4.0)],
            running=[
                gang(7, 3, {"left": [0, 1]}),
                *([gang(8, 4, {"right": [0]})] if is_held else []),
            ],
            queue=[ask(9, 5, 2)],
            away={"right": Withheld(disabled=(0, 1))},
        )
    )
    is_told = "of agent right none of 0 is free, 2 more are disabled" in found.sentence
    assert is_told is not is_held
