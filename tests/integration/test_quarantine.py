"""What cannot be handled is set aside; its experiment ends, and all others go on.

The first experiment (A) is the one whose news makes a handler raise, after it has changed things.
The second (B) trains beside it and must complete, in the master that this happened to and in the
one that starts from what it stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from det_jupyter.errors import Conflict, DetError
from det_jupyter.master import events, machine
from det_jupyter.master.events import Event, NewsSetAside
from det_jupyter.master.faults import experiment_of
from det_jupyter.master.turn import Turn
from det_jupyter.records import CheckpointSaved, Record
from det_jupyter.wire import (
    ChangeResources,
    DevicesSeen,
    GangExited,
    GangStarted,
    MoveInQueue,
    RankProcess,
    State,
    SwitchSlots,
)
from tests.integration.master_support import (
    AGENT,
    Bench,
    batches,
    first_step,
    last_words,
    make_chunk,
    make_request,
    make_text_chunk,
    progress,
    started,
    validation,
)

A, B = 1, 2
RUNS = {A: "1.1.1", B: "2.2.1"}
LENGTH = {"batches": 100}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master with two experiments of one slot each, both of which have started."""
    bench = Bench(tmp_path / "det.sqlite3")
    bench.register()
    for _ in (A, B):
        request = make_request(resources={"slots_per_trial": 1})
        asyncio.run(bench.service.submit(request))
    yield bench
    bench.service.machine.check()
    bench.service.close()


def up(experiment_id: int) -> GangStarted:
    ranks = [RankProcess(rank=0, pid=10, connection_file="c", output_file="o")]
    return GangStarted(allocation_id=RUNS[experiment_id], at=1.0, ranks=ranks)


def gone(experiment_id: int, code: int = 0) -> GangExited:
    return GangExited(allocation_id=RUNS[experiment_id], at=2.0, exit_codes={0: code})


def saved(steps: int, uuid: str) -> CheckpointSaved:
    return CheckpointSaved(
        at=1.0, uuid=uuid, steps_completed=steps, path=f"/c/{uuid}", size_bytes=1, metadata={}
    )


def life_of(experiment_id: int) -> list[Record]:
    """Return what a trial journals that trains to its end."""
    middle: list[Record] = [
        batches(1, [0.5]),
        progress(50),
        validation(50, 0.5),
        saved(50, f"m{experiment_id}"),
    ]
    end: list[Record] = [validation(100, 0.1), saved(100, f"e{experiment_id}")]
    return [started(), first_step(), *middle, *end, *last_words()]


def live(bench: Bench, experiment_id: int) -> None:
    """Have a trial train to its end, or be killed if the master wants it."""
    journal = make_chunk(life_of(experiment_id), run=RUNS[experiment_id])
    printed = make_text_chunk("hello\n", stream="output-0", run=RUNS[experiment_id])
    bench.report(up(experiment_id))
    bench.report(journal, printed)
    bench.report(gone(experiment_id))
    assert bench.store.offsets_of(RUNS[experiment_id]) == {
        "journal-0": journal.size_bytes,
        "output-0": printed.size_bytes,
    }


def state_of(bench: Bench, experiment_id: int) -> State:
    return bench.service.machine.state.experiments[experiment_id].state


def write_down(bench: Bench) -> None:
    """Take a snapshot: what was handled before is not handled again."""
    with bench.store.transaction():
        bench.store.add_snapshot(bench.service.machine.state.seq, bench.service.machine.dump())


NEWS: list[Event] = [
    events.HparamsSampled(experiment_id=A, index=0, hparams={}),
    events.TrialJudged(experiment_id=A, index=0, is_pruned=False),
    events.CheckpointsDeleted(experiment_id=A, uuids=[]),
    events.ExperimentDeleted(experiment_id=A),
    events.LogMatched(allocation_id=RUNS[A], rank=0, pattern="x", action="exclude_node", line="x"),
    events.ValidationReported(allocation_id=RUNS[A], steps_completed=1, metric=0.5),
    events.RecordArrived(allocation_id=RUNS[A], rank=0, record=started()),
    up(A),
    gone(A),
]
OF_AGENTS: list[Event] = [
    events.AgentRegistered(agent_id=AGENT, session="x", hostname="h", pid=1, slots=[]),
    events.AgentAway(agent_id=AGENT),
    events.AgentLost(agent_id=AGENT),
    events.DevicesReported(agent_id=AGENT, processes={}),
    events.PoolsSet(pools=[]),
    events.ClockStepped(by_s=5.0),
]
REQUESTS: list[Event] = [
    events.PauseRequested(experiment_id=A),
    events.ActivateRequested(experiment_id=A),
    events.CancelRequested(experiment_id=A),
    events.KillTrialRequested(trial_id=A),
    events.SearchChangeRequested(experiment_id=A, max_length=LENGTH),
    events.ResourcesChangeRequested(experiment_id=A, change=ChangeResources(priority=3)),
    events.MoveRequested(experiment_id=A, move=MoveInQueue(ahead_of=B)),
    events.SlotsSwitched(agent_id=AGENT, switch=SwitchSlots(enabled=False, slots=[0])),
    events.ArchiveRequested(experiment_id=A, is_archived=True),
    events.DeleteRequested(experiment_id=A),
    events.ContinueRequested(experiment_id=A, config={}),
    events.RetentionSet(
        experiment_id=A, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
    ),
]
SUBMITTED = "experiment_submitted"
KILL = events.KillRequested(experiment_id=A)


def test_every_kind_of_event_is_tried_here() -> None:
    union = get_args(get_args(Event)[0])
    tried = {type(event) for event in [*NEWS, *OF_AGENTS, *REQUESTS, KILL]}
    assert set(union) == tried | {events.ExperimentSubmitted, NewsSetAside}


def raise_at(monkeypatch: pytest.MonkeyPatch, kind: str) -> list[Event]:
    """Have the handler of that kind change what it does and then raise, but for B."""
    handle, hit = machine._dispatch, list[Event]()

    def handle_and_raise(turn: Turn, event: Event) -> None:
        is_concerned = event.kind == kind and experiment_of(turn.state, event) != B
        try:
            handle(turn, event)
            for trial in turn.state.trials.values() if is_concerned else ():
                trial.message = "half changed"
        except DetError:
            if not is_concerned:
                raise
        if is_concerned:
            hit.append(event)
            raise RuntimeError(f"no {kind}")

    monkeypatch.setattr(machine, "_dispatch", handle_and_raise)
    return hit


def check_others(bench: Bench) -> None:
    """Assert that B is as it should be, here and after a restart in which all is replayed."""
    again = Bench(bench.store.path)  # as after a SIGKILL: nothing but what is stored
    try:
        for one in (bench, again):
            assert state_of(one, B) is State.COMPLETED
            assert one.service.trial(B).steps_completed == 100
            assert one.service.trial(B).best_metric == 0.1
            assert not one.service.experiment(B).message
            one.service.machine.check()
            metrics = [item for item in one.store.feed(0, B, 1000) if item.kind == "metrics"]
            assert len(metrics) == 3
            trials = one.service.machine.state.trials.values()
            assert not any(trial.message == "half changed" for trial in trials)
        assert again.service.machine.state.last_trial_id == 2
    finally:
        again.service.close()


@pytest.mark.parametrize("event", NEWS, ids=lambda event: event.kind)
def test_news_whose_handler_raises_end_their_experiment_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    hit = raise_at(monkeypatch, event.kind)
    bench.service.take(event)
    assert hit == [event]
    live(bench, B)
    bench.report(gone(A, code=-9))
    view = bench.service.experiment(A)
    assert view.state is State.ERROR
    assert view.message == (
        f"the master failed at {event.kind} (RuntimeError: no {event.kind}); "
        "master.log has the traceback"
    )
    (row,) = bench.store.quarantine.rows()
    assert row[0] == A
    assert json.loads(row[2])["kind"] == event.kind
    assert "handle_and_raise" in row[3]
    assert bench.commands()[-1] == "close_run"
    check_others(bench)


@pytest.mark.parametrize("event", NEWS, ids=lambda event: event.kind)
def test_reports_whose_handler_raises_are_acknowledged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    raise_at(monkeypatch, event.kind)
    live(bench, A)
    live(bench, B)
    assert state_of(bench, A) in (State.COMPLETED, State.ERROR)
    check_others(bench)


@pytest.mark.parametrize("event", OF_AGENTS, ids=lambda event: event.kind)
def test_news_of_agents_whose_handler_raises_end_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    write_down(bench)
    before = bench.service.machine.dump()
    raise_at(monkeypatch, event.kind)
    if isinstance(event, events.AgentRegistered):
        with pytest.raises(Conflict, match="failed to take agent"):
            bench.register()
    elif isinstance(event, events.DevicesReported):
        bench.report(DevicesSeen(at=1.0, processes={}))
    else:
        bench.service.take(event)
    assert bench.service.machine.dump() == before
    assert len(bench.store.quarantine.rows()) == 1
    for experiment_id in (A, B):
        live(bench, experiment_id)
        assert state_of(bench, experiment_id) is State.COMPLETED
    monkeypatch.undo()
    check_others(bench)


@pytest.mark.parametrize("event", REQUESTS, ids=lambda event: event.kind)
def test_a_request_whose_handler_raises_is_refused_and_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    before = bench.service.machine.dump()
    raise_at(monkeypatch, event.kind)
    with pytest.raises(Conflict, match=f"failed at {event.kind} .* has changed nothing"):
        bench.service.apply(event)
    assert bench.service.machine.dump() == before
    for experiment_id in (A, B):
        live(bench, experiment_id)
        assert state_of(bench, experiment_id) is State.COMPLETED
    check_others(bench)


def test_a_submission_whose_handler_raises_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_down(bench)
    raise_at(monkeypatch, SUBMITTED)
    with pytest.raises(Conflict, match="failed at experiment_submitted"):
        asyncio.run(bench.service.submit(make_request()))
    live(bench, A)
    live(bench, B)
    assert list(bench.service.machine.state.experiments) == [A, B]
    check_others(bench)


def test_an_experiment_that_cannot_be_submitted_any_more_takes_no_number_of_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(bench, A)
    live(bench, B)
    handle = machine._dispatch

    def refuse_first(turn: Turn, event: Event) -> None:
        handle(turn, event)
        if event.kind == SUBMITTED and turn.state.last_experiment_id == A:
            raise RuntimeError("not any more")

    monkeypatch.setattr(machine, "_dispatch", refuse_first)
    check_others(bench)
    again = Bench(bench.store.path)
    assert list(again.service.machine.state.experiments) == [B]
    assert "not any more" in again.store.quarantine.rows()[0][3]
    again.service.close()


def test_a_kill_ends_an_experiment_whatever_is_wrong_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_at(monkeypatch, KILL.kind)
    bench.service.apply(KILL)
    assert bench.commands()[-1] == "kill_gang"
    bench.report(gone(A, code=-9))
    assert state_of(bench, A) is State.ERROR
    live(bench, B)
    check_others(bench)
