"""Reasons word by word: the sentence of each cause, and the lines of its remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from det_jupyter.contract.messages import DeviceProcess
from det_jupyter.scheduler.model import AgentSlots, Group, Policy, PoolRules
from det_jupyter.scheduler.reasons import PoolSurvey, Title, Withheld, why_waiting
from det_jupyter.scheduler.reasons.sentence import latest_leaving
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

TITLES = {3: Title("resnet", "work/eda.ipynb"), 4: Title("bert"), 5: Title("mine")}
RESNET = gang(7, 3, {"a": range(6)})
HALVES = [gang(7, 3, {"a": range(4)}), gang(8, 4, {"a": range(4, 8)})]
SOON = {"7": end(20, 10, 40)}
SCRIPT = DeviceProcess(
    pid=71, command="python  train.py\n--lr 3", user="ann", memory_bytes=12_300_000_000
)
KERNEL = DeviceProcess(
    pid=72,
    command="ipykernel",
    memory_bytes=3_000_000_000,
    kernel_id="k",
    notebook="work/eda.ipynb",
    idle_since=NOON - 7200,
)
TAKEN = DeviceProcess(pid=73, command="", user="anna", claim="held", since=NOON - 7200)
TAKEN_NOW = DeviceProcess(pid=73, command="", user="anna", claim="held", since=NOON - 60)
NEXT = DeviceProcess(pid=74, command="", user="ben", claim="next", since=NOON - 600)
NAMELESS = DeviceProcess(pid=0, command="", claim="held")
WITHHELD = AgentSlots(id="a", kind="cuda", slots=(2, 3))  # and 0, 1 are not given out


def one_agent(**facts: object) -> World:
    """8 slots on one agent; experiments 3, 4 and 5."""
    given = {"agents": [agent("a", 8)], "groups": groups(3, 4, 5), "titles": TITLES, **facts}
    return World(**given)  # type: ignore[arg-type]


WAIT = "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” (trial 7, priority 42, since 10:00, "
FAIR = PoolRules(policy=Policy.FAIR_SHARE)
TABLE = {
    "one holder": (
        one_agent(running=[RESNET], queue=[ask(9, 5, 4)], ends=SOON),
        "slots",
        WAIT + "notebook eda.ipynb) holds 6; starts when it ends or is paused, about 12:20 "
        "(12:10 to 12:40)",
    ),
    "one holder, nobody knows how long": (
        one_agent(running=[RESNET], queue=[ask(9, 5, 4)]),
        "slots",
        WAIT + "notebook eda.ipynb) holds 6; starts when it ends or is paused",
    ),
    "one holder, under fair share priorities mean nothing": (
        one_agent(running=[RESNET], queue=[ask(9, 5, 4)], rules=FAIR),
        "slots",
        "needs 4 slots; 2 of 8 are free; experiment 3 “resnet” (trial 7, since 10:00, notebook "
        "eda.ipynb) holds 6; starts when it ends or is paused",
    ),
    "one holder that is leaving": (
        one_agent(running=[replace(RESNET, is_leaving=True)], queue=[ask(9, 5, 4)]),
        "slots",
        WAIT + "notebook eda.ipynb) holds 6 and is leaving; starts when it has left",
    ),
    "one of two holders is enough": (
        one_agent(running=HALVES, queue=[ask(9, 5, 4)]),
        "slots",
        "needs 4 slots; none of 8 is free; experiment 3 “resnet” holds 4 and experiment 4 “bert” "
        "4; starts when experiment 3 or experiment 4 ends or is paused",
    ),
    "both holders have to go": (
        one_agent(running=HALVES, queue=[ask(9, 5, 8)], ends={**SOON, "8": end(60, 50, 90)}),
        "slots",
        "needs 8 slots; none of 8 is free; experiment 3 “resnet” holds 4 and experiment 4 “bert” "
        "4; starts when experiments 3 and 4 have ended, about 13:00 (12:50 to 13:30)",
    ),
    "a crowd": (
        World(
            agents=[agent("a", 8)],
            groups=groups(*range(1, 9), 20),
            running=[gang(i, i, {"a": [i - 1]}) for i in range(1, 9)],
            queue=[ask(9, 20, 4)],
        ),
        "slots",
        "needs 4 slots; none of 8 is free; experiment 1 “name1” holds 1, experiment 2 “name2” 1 "
        "and 6 more experiments 6; starts when 4 of the 8 trials on agent a have ended",
    ),
    "one of a crowd is enough": (
        World(
            agents=[agent("a", 8)],
            groups=groups(*range(1, 9), 20),
            running=[gang(i, i, {"a": [i - 1]}) for i in range(1, 9)],
            queue=[ask(9, 20, 1)],
        ),
        "slots",
        "needs 1 slot; none of 8 is free; experiment 1 “name1” holds 1, experiment 2 “name2” 1 "
        "and 6 more experiments 6; starts when one of these trials ends",
    ),
    "its own experiment": (
        one_agent(running=[gang(7, 5, {"a": range(8)})], queue=[ask(9, 5, 4)]),
        "slots",
        "needs 4 slots; none of 8 is free; its own experiment (trial 7, priority 42, since 10:00) "
        "holds 8; starts when trial 7 ends",
    ),
    "a search": (
        one_agent(
            running=[gang(i, 3, {"a": [i]}, since=60.0 * i) for i in range(8)],
            queue=[ask(9, 5, 1)],
        ),
        "slots",
        "needs 1 slot; none of 8 is free; experiment 3 “resnet” (8 trials, priority 42, since "
        "11:53, notebook eda.ipynb) holds 8; starts when one of its trials ends",
    ),
    "an agent that left would be enough": (
        World(
            agents=[agent("a", 4)],
            absent=[agent("b", 4), agent("c", 4), agent("old", 4)],
            left={"b": NOON - 60, "c": NOON - 30, "old": NOON - 90000},
            groups=groups(3, 5),
            running=[gang(7, 3, {"a": range(4)})],
            queue=[ask(9, 5, 4)],
        ),
        "slots",
        "needs 4 slots; none of 4 is free; c left at 11:59 and b left at 11:59; experiment 3 "
        "“name3” (trial 7, priority 42, since 10:00) holds 4; starts when it ends or is paused",
    ),
    "whole agents, one of which left": (
        World(
            agents=[agent("a", 4), agent("b", 4)],
            absent=[agent("c", 4)],
            left={"c": NOON - 60},
            groups=groups(3, 5),
            running=[gang(7, 3, {"a": [0]})],
            queue=[ask(9, 5, 8)],
        ),
        "slots",
        "needs 8 slots, 2 whole agents of 4; 1 of these is idle; c left at 11:59; experiment 3 "
        "“name3” (trial 7, priority 42, since 10:00) holds 1; starts when it ends or is paused",
    ),
    "the nearest of several agents": (
        World(
            agents=[agent("a", 4), agent("b", 4)],
            groups=groups(3, 5),
            running=[gang(7, 3, {"a": [0]}), gang(8, 3, {"b": [0, 1]})],
            queue=[ask(9, 5, 4)],
        ),
        "slots",
        "needs 4 slots on one agent; agent a comes nearest with 3 of 4 free; experiment 3 “name3” "
        "(2 trials, priority 42, since 10:00) holds 3; starts when one of its trials ends",
    ),
    "whole agents": (
        World(
            agents=[agent("a", 4), agent("b", 4), agent("c", 4)],
            groups=groups(3, 5),
            running=[gang(7, 3, {"a": [0]}), gang(8, 3, {"b": [0]})],
            queue=[ask(9, 5, 8)],
            ends=SOON,
        ),
        "slots",
        "needs 8 slots, 2 whole agents of 4; 1 of these is idle; experiment 3 “name3” (trial 7, "
        "priority 42, since 10:00) holds 1; starts when it ends or is paused, about 12:20 (12:10 "
        "to 12:40)",
    ),
    "slots that others keep from use": (
        World(
            agents=[WITHHELD],
            groups=groups(3, 5),
            running=[gang(7, 3, {"a": [2, 3]})],
            queue=[ask(9, 5, 2)],
            away={"a": Withheld(disabled=(0,), occupied={1: [SCRIPT, KERNEL]})},
        ),
        "slots",
        "needs 2 slots; none of 2 is free; experiment 3 “name3” (trial 7, priority 42, since "
        "10:00) holds 2; 1 more is disabled and 1 more is used by python train.py --lr 3 (pid 71, "
        "ann, 12 GB) and 1 more process; starts when it ends or is paused",
    ),
    "a place without slots": (
        World(
            agents=[agent("a", 4)],
            groups=groups(3, 5),
            rules=PoolRules(max_aux_per_agent=1),
            running=[gang(7, 3, {"a": []})],
            queue=[ask(9, 5, 0)],
        ),
        "slots",
        "needs a place for a trial without slots; agents carry at most 1 each, and all are full; "
        "experiment 3 “name3” (trial 7, priority 42, since 10:00) holds 1; starts when it ends or "
        "is paused",
    ),
    "kept for one ahead": (
        one_agent(running=[RESNET], queue=[ask(8, 4, 8), ask(9, 5, 1)], ends=SOON),
        "turn",
        "needs 1 slot; 2 of 8 are free, but kept for experiment 4 “bert” (trial 8, needs 8), "
        "which is ahead of it; starts after experiment 4",
    ),
    "room for both after an end": (
        one_agent(running=[RESNET], queue=[ask(8, 4, 4), ask(9, 5, 4)], ends=SOON),
        "turn",
        "needs 4 slots; 2 of 8 are free; experiment 4 “bert” (trial 8, needs 4) is ahead of it; "
        "experiment 3 holds the rest; starts when experiment 3 ends or is paused, about 12:20 "
        "(12:10 to 12:40)",
    ),
    "behind its own experiment": (
        one_agent(running=HALVES, queue=[ask(9, 5, 4), ask(10, 5, 4), ask(11, 5, 4)]),
        "turn",
        "needs 4 slots; none of 8 is free; 2 trials of its own experiment are ahead of it; "
        "experiments 3 and 4 hold the rest; starts after them",
    ),
    "room for both after several ends": (
        one_agent(
            running=[gang(i, i, {"a": [i]}) for i in range(8)],
            groups=groups(*range(8), 20, 21),
            queue=[ask(8, 20, 2), ask(9, 21, 1)],
            ends={str(i): end(10 * i, 5 * i, 20 * i) for i in range(8)},
        ),
        "turn",
        "needs 1 slot; none of 8 is free; experiment 20 “name20” (trial 8, needs 2) is ahead of "
        "it; 8 other experiments hold the rest; starts when 3 of the 8 trials on agent a have "
        "ended, about 12:20 (12:00 to 12:40)",
    ),
    "behind many": (
        one_agent(
            running=[gang(7, 3, {"a": range(8)})],
            queue=[*(ask(i, 4, 8) for i in range(20, 23)), ask(9, 5, 8)],
        ),
        "turn",
        "needs 8 slots; none of 8 is free; 3 trials (experiment 4) are ahead of it; experiment 3 "
        "holds the rest; starts after them",
    ),
    "max_slots": (
        World(
            agents=[agent("a", 8)],
            groups=[Group(id=5, max_slots=4, position=5.0)],
            running=[gang(7, 5, {"a": range(4)})],
            queue=[ask(9, 5, 4)],
            ends=SOON,
        ),
        "max_slots",
        "needs 4 slots; its experiment holds 4 and may hold 4 (max_slots); starts when one of its "
        "trials ends, about 12:20 (12:10 to 12:40)",
    ),
    "max_slots below what one trial needs": (
        World(
            agents=[agent("a", 8)],
            groups=[Group(id=5, max_slots=2, position=5.0)],
            queue=[ask(9, 5, 4)],
        ),
        "max_slots",
        "needs 4 slots; its experiment holds 0 and may hold 2 (max_slots); can run when max_slots "
        "is raised",
    ),
    "a stranger": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 4)],
            away={"a": Withheld(occupied={0: [SCRIPT], 1: [SCRIPT]})},
        ),
        "occupied",
        "needs 4 slots; python train.py --lr 3 (pid 71, ann, 12 GB) uses 2 of 4 slots of agent a; "
        "can run when it ends",
    ),
    "another user's trial": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 3)],
            away={"a": Withheld(occupied={0: [TAKEN], 1: [TAKEN]})},
        ),
        "occupied",
        "needs 3 slots; anna’s trial has had slots 0, 1 for 2 h; can run when it ends",
    ),
    "other users' trials and a program": (
        World(
            agents=[AgentSlots(id="a", slots=(4,)), agent("b", 1)],
            groups=groups(5),
            queue=[ask(9, 5, 3)],
            away={
                "a": Withheld(
                    occupied={0: [TAKEN], 1: [TAKEN_NOW, SCRIPT], 2: [SCRIPT], 3: [NAMELESS]}
                )
            },
        ),
        "occupied",
        "needs 3 slots; anna’s trials have had slots 0, 1 of agent a for up to 2 h; another "
        "user’s trial has had slot 3 of agent a; python train.py --lr 3 (pid 71, ann, 12 GB) uses "
        "1 of 5 slots of agent a; can run when they end",
    ),
    "slots that are kept for another user": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 3)],
            away={"a": Withheld(occupied={1: [NEXT]})},
        ),
        "occupied",
        "needs 3 slots; slot 1 is kept for ben, who has waited for 10 min; can run when it is its "
        "turn",
    ),
    "its own experiment and another user's trial": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            running=[gang(7, 5, {"a": [2, 3]})],
            queue=[ask(9, 5, 2)],
            away={"a": Withheld(occupied={0: [TAKEN], 1: [NEXT]})},
        ),
        "slots",
        "needs 2 slots; none of 2 is free; its own experiment (trial 7, priority 42, since 10:00) "
        "holds 2; anna’s trial has had slot 0 for 2 h and slot 1 is kept for ben, who has waited "
        "for 10 min; starts when trial 7 ends",
    ),
    "a disabled slot and a stranger": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 4)],
            away={"a": Withheld(disabled=(0,), occupied={1: [SCRIPT]})},
        ),
        "occupied",
        "needs 4 slots; 2 of 4 slots may be given out; slot 0 of agent a is disabled; python "
        "train.py --lr 3 (pid 71, ann, 12 GB) uses 1 of 4 slots of agent a; can run when the slot "
        "is enabled and the program ends",
    ),
    "a stranger, disabled slots and agents that are gone": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 12)],
            away={"a": Withheld(disabled=(0, 1), occupied={1: [SCRIPT]})},
            absent=[agent("y", 4), agent("z", 4)],
        ),
        "agent_gone",
        "needs 12 slots; 2 of 12 slots may be given out; slots 0, 1 of agent a are disabled; "
        "python train.py --lr 3 (pid 71, ann, 12 GB) uses 1 of 4 slots of agent a; agents y with "
        "4 slots and z with 4 slots are not connected; can run when enough of the slots are "
        "enabled, the program ends and the agents are back",
    ),
    "strangers": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 3)],
            away={"a": Withheld(occupied={0: [SCRIPT], 1: [KERNEL]})},
        ),
        "occupied",
        "needs 3 slots; python train.py --lr 3 (pid 71, ann, 12 GB) and the kernel of eda.ipynb "
        "(pid 72, 3.0 GB, idle for 2 h) use 2 of 4 slots of agent a; can run when they end",
    ),
    "disabled": (
        World(
            agents=[WITHHELD],
            groups=groups(5),
            queue=[ask(9, 5, 3)],
            away={"a": Withheld(disabled=(0, 1))},
        ),
        "disabled",
        "needs 3 slots; 2 of 4 slots may be given out; slots 0, 1 of agent a are disabled; can "
        "run when enough of them are enabled",
    ),
    "no agent": (
        World(groups=groups(5), queue=[ask(9, 5, 4)], pool_name="gpu"),
        "no_agent",
        "needs 4 slots; no agent of pool gpu is connected; starts when one comes that has them",
    ),
    "an agent that is gone": (
        World(
            agents=[agent("a", 2)],
            absent=[agent("right", 8)],
            groups=groups(5),
            queue=[ask(9, 5, 4)],
        ),
        "agent_gone",
        "needs 4 slots; agent right with 8 slots is not connected; can run when it is back",
    ),
    "an agent elsewhere that left": (
        World(
            agents=[agent("a", 2)],
            absent=[agent("right", 8)],
            left={"right": NOON - 60},
            groups=groups(5),
            queue=[ask(9, 5, 4)],
        ),
        "agent_gone",
        "needs 4 slots; agent right with 8 slots left at 11:59; can run when it is back",
    ),
    "agents elsewhere that left one after the other": (
        World(
            agents=[agent("a", 2)],
            absent=[agent("y", 4), agent("z", 4)],
            left={"y": NOON - 60, "z": NOON - 600},
            groups=groups(5),
            queue=[ask(9, 5, 8)],
        ),
        "agent_gone",
        "needs 8 slots; agents y with 4 slots (left at 11:59) and z with 4 slots (left at 11:50) "
        "are not connected; can run when they are back",
    ),
    "impossible": (
        World(agents=[agent("a", 8), agent("b", 8)], groups=groups(5), queue=[ask(9, 5, 12)]),
        "impossible",
        "needs 12 slots; pool default has 2 agents with 8 slots each; values that can run: 1 to "
        "8, 16; ask for 8 or 16 instead of 12",
    ),
    "impossible on the agents that it does not avoid": (
        World(
            agents=[agent("a", 8), agent("b", 4)],
            groups=groups(5),
            queue=[ask(9, 5, 8, blocked=frozenset("a"))],
        ),
        "impossible",
        "needs 8 slots; it avoids agent a because of a log policy; pool default has 1 agent with "
        "4 slots besides; values that can run: 1 to 4; can run there again after a kill and a "
        "continue, or ask for 4 instead of 8",
    ),
    "odd names": (
        World(
            agents=[agent("a", 4)],
            groups=groups(3, 5),
            titles={3: Title("<b>a\nvery " + "long " * 30, "x/" + "n" * 80 + ".ipynb")},
            running=[gang(7, 3, {"a": range(4)}, since=90_000)],
            queue=[ask(9, 5, 1)],
        ),
        "slots",
        "needs 1 slot; none of 4 is free; experiment 3 “<b>a very long long long long long long…” "
        "(trial 7, priority 42, since Oct 3, 11:00, notebook "
        "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…) holds 4; starts when it ends or is paused",
    ),
}


@pytest.mark.parametrize(("world", "cause", "sentence"), TABLE.values(), ids=TABLE.keys())
def test_a_reason_is_one_sentence(world: World, cause: str, sentence: str) -> None:
    found = reason(world)
    if any(request.id == "11" for request in world.queue):
        found = reason(world, "11")
    assert (found.cause, found.sentence) == (cause, sentence)


PAUSE = ("pause experiment 3 “resnet”, which holds 6 slots", "%det_experiment pause 3")


def anew(value: int) -> tuple[str, str]:
    return (
        "instead: kill it and submit it again with "
        f"resources.slots_per_trial {value}, which starts at once",
        f"%det_experiment kill 5\nresources: {{slots_per_trial: {value}}}",
    )


FEWER = anew(2)


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (
            TABLE["one holder"][0],
            [("wait until trial 7 of experiment 3 ends, about 12:20 (12:10 to 12:40)", ""),
             PAUSE, FEWER],
        ),
        (
            replace(TABLE["one holder"][0], rules=PoolRules(preemption=True), ends={}),
            [("wait until trial 7 of experiment 3 ends", ""),
             ("make its experiment more urgent: priority 41 instead of 42; less urgent trials are "
              "asked to save and leave", "%det_experiment set 5 --priority 41"),
             PAUSE, FEWER],
        ),
        (
            replace(TABLE["one holder that is leaving"][0], limits={"7": NOON + 600}),
            [("wait until experiment 3 has left, at the latest about 12:10", ""),
             ("kill experiment 3: what it has not saved is lost", "%det_experiment kill 3"),
             FEWER],
        ),
        (
            TABLE["kept for one ahead"][0],
            [("move experiment 5 ahead of experiment 4 “bert”", "%det job move 5 --ahead-of 4"),
             ("pause experiment 4 “bert”, which is ahead of it", "%det_experiment pause 4")],
        ),
        (
            TABLE["max_slots"][0],
            [("wait until trial 7 of its own experiment ends, about 12:20 (12:10 to 12:40)", ""),
             ("raise max_slots of its experiment from 4 to 8",
              "%det_experiment set 5 --max-slots 8")],
        ),
        (
            TABLE["a stranger"][0],
            [("ask ann to end python train.py --lr 3 (pid 71, ann, 12 GB) on agent a; pid 71 may "
              "be busy", "")],
        ),
        (
            # Of two devices the idle one is asked for.
            TABLE["strangers"][0],
            [("shut down the kernel of eda.ipynb (pid 72, 3.0 GB, idle for 2 h) on agent a", "")],
        ),
        (
            TABLE["disabled"][0],
            [("enable 1 slot of agent a again", "%det slot enable a 0")],
        ),
        (
            replace(
                TABLE["disabled"][0], running=[gang(7, 3, {"a": [2, 3]})], groups=groups(3, 5)
            ),
            [("enable 1 slot of agent a again; then it waits for its turn",
              "%det slot enable a 0")],
        ),
        (TABLE["an agent that is gone"][0], [("reconnect agent right", "")]),
        (
            TABLE["impossible"][0],
            [anew(8), anew(16)],
        ),
        (
            TABLE["a crowd"][0],
            [("wait until 4 of the 8 trials on agent a have ended", ""),
             ("pause experiments 5, 6, 7 and 8, which hold 4 slots",
              "%det_experiment pause 5\n%det_experiment pause 6\n%det_experiment pause 7\n"
              "%det_experiment pause 8")],
        ),
    ],
)  # fmt: skip
def test_remedies_are_offered_with_what_to_type_the_mildest_first(
    world: World, expected: Sequence[tuple[str, str]]
) -> None:
    assert offers(reason(world)) == expected


def test_a_reason_carries_the_facts_as_data() -> None:
    found = reason(
        one_agent(running=[RESNET], queue=[ask(8, 4, 4), ask(9, 5, 4)], ends=SOON, pool_name="gpu")
    )
    numbers = (found.trial_id, found.slots, found.free, found.total, found.pool)
    assert numbers == (9, 4, 2, 8, "gpu")
    assert (found.position, found.ahead) == (1, [4])
    assert [holder.model_dump() for holder in found.holders] == [
        {
            "experiment_id": 3,
            "experiment_name": "resnet",
            "trial_ids": [7],
            "slots": 6,
            "priority": 42,
            "since": NOON - 7200,
            "notebook": "work/eda.ipynb",
            "is_leaving": False,
            "num_given": 0,
        }
    ]
    assert found.expected == end(20, 10, 40)
    assert found.why_unknown == ""


def test_strangers_are_listed_once() -> None:
    found = reason(TABLE["strangers"][0])
    assert found.processes == [SCRIPT, KERNEL]
    assert [remedy.values["pids"] for remedy in found.remedies] == [[72]]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("one holder, nobody knows how long", "how long trial 7 will run is not known yet"),
        ("a crowd", "how long 8 trials in its way will run is not known yet"),
        ("one holder that is leaving", "how long it takes to leave is not known"),
        ("kept for one ahead", "others go first, and how long they will run is not known yet"),
        ("impossible", "it cannot run as things are"),
        ("max_slots below what one trial needs", "it cannot run as things are"),
        ("one holder", ""),
    ],
)
def test_what_is_not_known_is_said(name: str, why: str) -> None:
    assert reason(TABLE[name][0]).why_unknown == why


def test_of_what_goes_first_a_bound_is_told() -> None:
    world = one_agent(running=[gang(7, 3, {"a": range(8)})], ends=SOON)
    world.queue = [ask(8, 4, 8), ask(9, 5, 8)]
    assert reason(world).why_unknown == (
        "others go first, and how long they will run is not known yet; not before 12:10"
    )


def test_whoever_stands_far_behind_is_told_how_far() -> None:
    world = one_agent(running=[gang(7, 3, {"a": range(8)})])
    world.queue = [*(ask(i, 4, 1) for i in range(1000, 1300)), ask(9000, 5, 1)]
    found = reason(world, "9000")
    assert found.sentence == (
        "needs 1 slot; none of 8 is free; 300 trials are ahead of it; experiment 3 holds the "
        "rest; starts after them"
    )
    assert (found.position, found.remedies) == (300, [])


def test_many_reasons_share_one_survey() -> None:
    world = one_agent(running=[RESNET], queue=[ask(8, 4, 4), ask(9, 5, 4)], ends=SOON)
    pool = world.pool()
    pool.decide(world.now)
    gathered = PoolSurvey(pool.snapshot(), world)
    assert [why_waiting(gathered, r) for r in ("8", "9")] == [
        why(pool, r, world) for r in ("8", "9")
    ]


def test_a_request_that_the_next_pass_starts_says_so() -> None:
    world = one_agent(queue=[ask(9, 5, 4)])
    found = why(world.pool(), "9", world)
    assert found.sentence == "needs 4 slots; 8 of 8 are free; starts in a moment"


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ([NOON + 600], ", at the latest about 12:10"),
        ([NOON + 600, NOON + 1200], ", at the latest about 12:20"),
        ([NOON - 600, NOON - 1200], ", which was due at 11:50"),
        ([NOON], ", which was due at 12:00"),
        ([NOON + 600, None], ""),
        ([None], ""),
    ],
)
def test_until_when_those_who_leave_have_time(limits: list[float | None], told: str) -> None:
    known = {str(trial): limit for trial, limit in enumerate(limits) if limit is not None}
    gangs = [gang(trial, 3, {"a": [trial]}) for trial in range(len(limits))]
    assert latest_leaving(World(limits=known), gangs) == told
