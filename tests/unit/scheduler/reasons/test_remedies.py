"""The commonest waits on a shared computer: their reasons are true and have remedies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from det_jupyter.contract.messages import DeviceProcess, Reason
from det_jupyter.scheduler.model import AgentSlots, Group, Policy, PoolRules, Running
from det_jupyter.scheduler.reasons import Withheld
from tests.unit.scheduler.reasons.reasons_world import (
    NOON,
    World,
    agent,
    ask,
    end,
    gang,
    groups,
    offers,
    reason,
    why,
)

FAIR = PoolRules(policy=Policy.FAIR_SHARE)
TURNS = PoolRules(policy=Policy.ROUND_ROBIN)
SEARCH = [gang(i, 3, {"a": [i]}) for i in range(4)]
NEXT = [ask(20 + i, 3, 1) for i in range(12)]  # trials of the same search
TENS = {str(i): end(10 * (i + 1), 5 * (i + 1), 20 * (i + 1)) for i in range(8)}
IDLE = DeviceProcess(pid=4711, command="python x.py", idle_since=NOON - 600)
DRAINED = AgentSlots(id="left", kind="cuda", slots=())


def last_words(found: Reason) -> str:
    return found.sentence.rpartition("; ")[2]


def a_search(priority: int, slots: int, rules: PoolRules = PoolRules()) -> World:  # noqa: B008
    """4 trials of a search hold all of 4 slots; another trial needs some."""
    return World(
        agents=[agent("a", 4)],
        groups=[Group(id=3, position=3.0), Group(id=5, priority=priority, position=5.0)],
        running=SEARCH,
        queue=[*NEXT, ask(9, 5, slots)],
        ends=TENS,
        rules=rules,
    )


def test_whoever_is_ahead_of_a_search_waits_for_some_of_its_trials_only() -> None:
    found = reason(a_search(10, 2))
    assert last_words(found) == (
        "starts when 2 of its trials have ended, about 12:20 (12:10 to 12:40)"
    )
    assert offers(found) == [
        ("wait until 2 trials of experiment 3 have ended", ""),
        ("pause experiment 3 “name3”, which holds 4 slots", "%det_experiment pause 3"),
    ]


def test_behind_the_next_trials_of_a_search_one_waits_for_all_of_it() -> None:
    found = reason(a_search(50, 2))
    assert last_words(found) == "starts when experiment 3 ends or is paused"
    assert found.expected is None


def test_by_shares_the_first_end_of_a_search_makes_room_for_another_experiment() -> None:
    found = reason(a_search(42, 1, FAIR))
    assert last_words(found) == (
        "starts when one of its trials ends, about 12:10 (12:05 or later)"
    )


@pytest.mark.parametrize("rules", [FAIR, TURNS])
def test_by_shares_those_ends_are_named_that_let_nobody_else_go_first(rules: PoolRules) -> None:
    found = reason(
        World(
            agents=[agent("a", 8)],
            groups=groups(3, 4, 5, 6),
            running=[gang(i, 3 + i % 3, {"a": [i]}) for i in range(8)],
            queue=[*(ask(30 + i, 3 + i % 3, 1) for i in range(9)), ask(9, 6, 4)],
            ends=TENS,
            rules=rules,
        )
    )
    assert last_words(found) == (
        "starts when trials 0, 1, 2 and 3 have ended, about 12:40 (12:20 or later)"
    )


def test_on_several_agents_the_agent_is_named() -> None:
    running = [gang(i, 3, {name: [slot]}) for i, (name, slot) in enumerate(
        [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    )]  # fmt: skip
    found = reason(
        World(
            agents=[agent("a", 2), agent("b", 2)],
            groups=groups(3, 5),
            running=running,
            queue=[ask(9, 5, 2)],
        )
    )
    assert last_words(found) == "starts when 2 of its trials on agent a have ended"


def backfilled() -> World:
    less_urgent: Running = replace(gang(3, 3, {"a": [3]}), is_backfill=True)
    return World(
        agents=[agent("a", 4)],
        groups=[*(Group(id=i, priority=50, position=float(i)) for i in (1, 2)),
                Group(id=3, priority=60, position=3.0)],
        running=[gang(1, 1, {"a": range(3)}), less_urgent],
        queue=[ask(9, 2, 4)],
        ends={"1": end(20, 10, 40)},
        rules=PoolRules(preemption=True),
    )  # fmt: skip


def test_who_stands_in_leaves_by_itself() -> None:
    found = reason(backfilled())
    assert found.sentence.endswith(
        "starts when experiment 1 ends or is paused, about 12:20 (12:10 to 12:40); experiment 3, "
        "less urgent, is asked to leave then"
    )
    assert "%det_experiment pause 1" in [line for _, line in offers(found)]


def three_holders(slots: int) -> World:
    return World(
        agents=[agent("a", 4)],
        groups=groups(1, 2, 3, 4, 5),
        running=[gang(1, 1, {"a": [0]}), gang(2, 2, {"a": [1]}), gang(3, 3, {"a": [2, 3]})],
        queue=[ask(9, 4, slots), ask(11, 5, 1)],
    )


def test_where_no_one_holder_is_enough_a_few_are_paused() -> None:
    found = reason(three_holders(3))
    assert last_words(found) == "starts when 3 more slots on agent a are given back"
    assert offers(found) == [
        ("wait until 3 more slots on agent a are given back", ""),
        ("pause experiments 2 and 3, which hold 3 slots",
         "%det_experiment pause 2\n%det_experiment pause 3"),
    ]  # fmt: skip


def test_behind_somebody_it_is_said_who_has_to_make_room_for_both() -> None:
    found = reason(three_holders(3), "11")
    assert last_words(found) == "starts when experiments 1, 2 and 3 have ended"
    assert offers(found)[1] == (
        "pause experiments 3 and 4, of which experiment 3 holds 2 slots and experiment 4 is ahead "
        "of it",
        "%det_experiment pause 3\n%det_experiment pause 4",
    )


def test_what_is_not_kept_for_it_is_not_counted_bit_by_bit() -> None:
    """Nothing is kept for the second in line, so that those behind take what is given back."""
    world = three_holders(3)
    world.rules = PoolRules(reservation_depth=1)
    world.agents = [agent("a", 4), agent("b", 4)]
    world.running = [*world.running, *(gang(30 + i, 6 + i, {"b": [i]}) for i in range(4))]
    world.groups = groups(*range(1, 11))
    world.queue = [ask(9, 4, 4), ask(11, 5, 4), ask(12, 5, 1)]
    found = reason(world, "11")
    assert "wait" not in [remedy.verb for remedy in found.remedies]
    assert last_words(found) == "starts after experiment 4"


def test_a_smaller_trial_is_submitted_instead_of_the_one_that_waits() -> None:
    world = World(
        agents=[agent("a", 4)],
        groups=groups(1, 2, 3),
        running=[gang(1, 1, {"a": range(2)})],
        queue=[ask(9, 2, 4)],
    )
    assert offers(reason(world))[-1] == (
        "instead: kill it and submit it again with "
        "resources.slots_per_trial 2, which starts at once",
        "%det_experiment kill 2\nresources: {slots_per_trial: 2}",
    )
    # The request behind it would take the two slots in between.
    world.queue = [ask(9, 2, 4), ask(10, 3, 2)]
    assert "kill_and_submit" not in [remedy.verb for remedy in reason(world).remedies]
    # A search that runs is not worth killing.
    world.running, world.queue = [gang(1, 2, {"a": range(2)})], [ask(9, 2, 4)]
    assert "kill_and_submit" not in [remedy.verb for remedy in reason(world).remedies]


def test_a_drained_agent_names_who_still_runs_there() -> None:
    found = reason(
        World(
            agents=[DRAINED],
            groups=groups(1, 2),
            running=[gang(1, 1, {"left": range(4)})],
            queue=[ask(9, 2, 4)],
            away={"left": Withheld(disabled=(0, 1, 2, 3))},
        )
    )
    assert found.sentence == (
        "needs 4 slots; 4 slots of agent left are draining: experiment 1 “name1” still runs "
        "there; can run when they are enabled"
    )
    assert [holder.experiment_id for holder in found.holders] == [1]
    assert offers(found) == [
        ("enable 4 slots of agent left again; then it waits for its turn",
         "%det slot enable left 0 1 2 3"),
    ]  # fmt: skip


def test_an_agent_that_is_drained_in_part_says_how_many_are_held() -> None:
    found = reason(
        World(
            agents=[replace(DRAINED, slots=(3,))],
            groups=groups(1, 2),
            running=[gang(1, 1, {"left": [0, 1]})],
            queue=[ask(9, 2, 4)],
            away={"left": Withheld(disabled=(0, 1, 2))},
        )
    )
    assert found.sentence == (
        "needs 4 slots; 1 of 4 slots may be given out; 3 slots of agent left are draining: "
        "experiment 1 “name1” still runs there on 2 of them; can run when they are enabled"
    )
    assert offers(found)[0][1] == "%det slot enable left 0 1 2"


def test_on_several_agents_with_disabled_slots_holders_are_named_after_them() -> None:
    found = reason(
        World(
            agents=[DRAINED, replace(DRAINED, id="right")],
            groups=groups(1, 2, 3),
            running=[gang(1, 1, {"left": [0]}), gang(3, 3, {"right": [0]})],
            queue=[ask(9, 2, 2)],
            away={name: Withheld(disabled=(0, 1)) for name in ("left", "right")},
        )
    )
    assert found.sentence == (
        "needs 2 slots; none of 4 slots may be given out; slots 0, 1 of agent left and slots 0, 1 "
        "of agent right are disabled; experiment 1 “name1” and experiment 3 “name3” still run "
        "there; can run when enough of them are enabled"
    )


@pytest.mark.parametrize(
    ("process", "sentence", "command"),
    [
        (IDLE, "end python x.py (pid 4711, idle for 10 min) on agent a", "!kill 4711"),
        (
            IDLE.model_copy(update={"user": "me"}),
            "end python x.py (pid 4711, me, idle for 10 min) on agent a",
            "!kill 4711",
        ),
        (
            IDLE.model_copy(update={"user": "ada"}),
            "ask ada to end python x.py (pid 4711, ada, idle for 10 min) on agent a",
            "",
        ),
        (
            IDLE.model_copy(update={"idle_since": NOON - 5}),
            "end python x.py (pid 4711, idle for 5 s) on agent a; pid 4711 may be busy",
            "",
        ),
        (
            IDLE.model_copy(update={"idle_since": None}),
            "end python x.py (pid 4711) on agent a; pid 4711 may be busy",
            "",
        ),
    ],
)
def test_only_what_idles_and_is_ones_own_is_killed(
    process: DeviceProcess, sentence: str, command: str
) -> None:
    found = reason(
        World(
            agents=[AgentSlots(id="a", slots=(0, 1, 2))],
            groups=groups(5),
            queue=[ask(9, 5, 4)],
            away={"a": Withheld(occupied={3: [process]})},
            own_user="me",
        )
    )
    assert offers(found) == [(sentence, command)]


def test_an_agent_that_strangers_make_too_small_is_mentioned() -> None:
    found = reason(
        World(
            agents=[agent("left", 4), AgentSlots(id="right", kind="cuda", slots=(2, 3))],
            groups=groups(1, 2),
            running=[gang(1, 1, {"left": range(4)})],
            queue=[ask(9, 2, 4)],
            away={"right": Withheld(occupied={0: [IDLE], 1: [IDLE]})},
        )
    )
    assert found.sentence == (
        "needs 4 slots on one agent; none is free on agents with 4 slots or more; experiment 1 "
        "“name1” (trial 1, priority 42, since 10:00) holds 4; of agent right 2 of 2 are free, 2 "
        "more are used by python x.py (pid 4711, idle for 10 min); starts when it ends or is "
        "paused"
    )
    assert "!kill 4711" in [line for _, line in offers(found)]


def one_leaving(limit: float | None) -> World:
    return World(
        agents=[agent("a", 4)],
        groups=groups(1, 2),
        running=[gang(1, 1, {"a": range(4)}, is_leaving=True)],
        queue=[ask(9, 2, 4)],
        ends={"1": end(300, 200, 400)},  # were it to train on
        limits={} if limit is None else {"1": limit},
    )


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (NOON + 12_000, "starts when it has left, at the latest about 15:20"),
        (NOON - 600, "starts when it has left, which was due at 11:50"),
        (None, "starts when it has left"),
    ],
)
def test_who_leaves_has_a_limit(limit: float | None, words: str) -> None:
    found = reason(one_leaving(limit))
    assert last_words(found) == words
    kill = ("kill experiment 1: what it has not saved is lost", "%det_experiment kill 1")
    assert (kill in offers(found)) is (limit is not None)  # without a limit, it is being killed


def test_whether_a_kill_ends_more_than_what_leaves_is_said() -> None:
    world = one_leaving(NOON + 60)
    world.agents = [agent("a", 4), agent("b", 4)]
    world.running = [*world.running, gang(4, 1, {"b": range(4)})]
    world.queue = [ask(9, 2, 4)]
    assert "kill experiment 1 with all its trials: what it has not saved is lost" in [
        remedy.text for remedy in reason(world).remedies
    ]


def test_several_that_leave_are_they() -> None:
    found = reason(
        World(
            agents=[agent("a", 4)],
            groups=groups(1, 2, 3),
            running=[
                gang(1, 1, {"a": range(2)}, is_leaving=True),
                gang(3, 3, {"a": [2, 3]}, is_leaving=True),
            ],
            queue=[ask(9, 2, 4)],
        )
    )
    assert found.sentence == (
        "needs 4 slots; none of 4 is free; experiment 1 “name1” holds 2 (leaving) and experiment "
        "3 “name3” 2 (leaving); starts when they have left"
    )


def test_what_leaves_and_what_has_to_end_besides_are_told_apart() -> None:
    found = reason(
        World(
            agents=[agent("a", 4)],
            groups=groups(1, 2, 3),
            running=[
                gang(1, 1, {"a": range(2)}, is_leaving=True),
                gang(3, 3, {"a": [2, 3]}),
            ],
            queue=[ask(9, 2, 4)],
        )
    )
    assert (
        last_words(found) == "starts when experiment 1 has left and experiment 3 ends or is paused"
    )
    assert offers(found)[0] == (
        "wait until experiment 1 has left and trial 3 of experiment 3 ends",
        "",
    )


def test_another_pool_with_room_is_offered() -> None:
    world = World(
        agents=[agent("a", 4)],
        groups=groups(1, 2),
        running=[gang(1, 1, {"a": range(4)})],
        queue=[ask(9, 2, 4)],
        others={
            "small": World(agents=[agent("s", 2)]).pool(),
            "at night": World(agents=[agent("n", 8)]).pool(),
        },
    )
    assert offers(reason(world))[1] == (
        "move its experiment to pool at night, where there is room",
        "%det_experiment set 2 --pool 'at night'",
    )


def test_an_agent_that_lost_its_connection_is_told_as_it_would_be() -> None:
    found = reason(
        World(
            agents=[AgentSlots(id="left", slots=(), is_open=False)],
            absent=[agent("left", 4)],
            groups=groups(2),
            queue=[ask(9, 2, 4)],
        )
    )
    assert found.sentence == (
        "needs 4 slots; agent left with 4 slots is not connected; can run when it is back"
    )
    assert offers(found) == [("reconnect agent left", "")]


def test_what_is_expected_at_once_has_a_basis_in_words() -> None:
    world = World(agents=[agent("a", 4)], groups=groups(2), queue=[ask(9, 2, 4)])
    found = why(world.pool(), "9", world)
    assert found.expected is not None
    assert f"The time is estimated {found.expected.basis}." == (
        "The time is estimated from what is free."
    )


def a_search_that_makes_more(priority: int) -> World:
    """One trial of a search holds 2 of 4 slots; its next one will be made when that has ended."""
    return World(
        agents=[agent("a", 4)],
        groups=[Group(id=3, position=3.0), Group(id=5, priority=priority, position=5.0)],
        running=[gang(1, 3, {"a": [0, 1]})],
        queue=[ask(9, 5, 4)],
        ends=TENS,
        searching=[3],
    )


def test_whose_search_makes_more_trials_does_not_end_with_this_one() -> None:
    found = reason(a_search_that_makes_more(42))
    assert last_words(found) == "starts when it ends or is paused"
    assert found.expected is None
    assert [remedy.verb for remedy in found.remedies][:2] == ["wait", "pause"]
    assert (found.remedies[0].target, found.remedies[0].values) == ([3], {})


def test_trials_that_will_be_made_behind_it_are_not_waited_for() -> None:
    found = reason(a_search_that_makes_more(10))
    assert found.remedies[0].values == {"trials": [1]}
    assert found.expected is not None


def test_who_queues_again_ahead_is_not_said_to_make_room() -> None:
    world = World(
        agents=[agent("a", 2)],
        groups=groups(3, 5),
        running=[replace(gang(1, 3, {"a": [0, 1]}), is_leaving=True)],
        queue=[ask(9, 5, 2)],
        returning=["1"],
    )
    assert "starts when it has left" not in reason(world).sentence
    assert "starts when it has left" in reason(replace(world, returning=[])).sentence
