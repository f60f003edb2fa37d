"""Events that cannot be handled are set aside; their experiment ends, and others go on.

An event about the first experiment (A) makes a handler raise, after it has changed the state. The
second (B) trains beside it and must complete, in this master and in one that starts from what this
one has stored.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, get_args

import pytest

from det_jupyter.contract.messages import (
    AgentReport,
    AgentReports,
    ChangeResources,
    DevicesSeen,
    GangExited,
    GangStarted,
    ImportedTrial,
    QueueChange,
    RankProcess,
    RanksSeen,
    RoomReported,
    RunReport,
    SlotView,
    StartUnmanaged,
    State,
    changes,
    models,
)
from det_jupyter.contract.run.journal import BatchTimings, CheckpointSaved, RankFailure, Record
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.errors import Conflict, DetError
from det_jupyter.master.machine import machine
from det_jupyter.master.machine.handlers import agents
from det_jupyter.master.machine.model import events
from det_jupyter.master.machine.model.events import ContentSetAside, Event
from det_jupyter.master.machine.model.state import Experiment, Trial
from det_jupyter.master.machine.model.turn import Turn
from det_jupyter.master.machine.rules import placing
from det_jupyter.master.machine.rules.giving_up import experiment_of
from det_jupyter.master.service.storing.stored_rows import read_metrics
from det_jupyter.scheduler.decide import Pass
from det_jupyter.scheduler.model import Request
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
from tests.unit.master.machine_invariants import check_machine

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
    check_machine(bench.service.machine)
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
    """Return the records of a trial that trains to its end."""
    middle: list[Record] = [
        batches(1, [0.5]),
        progress(50),
        validation(50, 0.5),
        saved(50, f"m{experiment_id}"),
    ]
    end: list[Record] = [validation(100, 0.1), saved(100, f"e{experiment_id}")]
    return [started(), first_step(), *middle, *end, *last_words()]


def live(bench: Bench, experiment_id: int) -> None:
    """Train a trial to its end, or kill it if the master commands it."""
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
    """Take a snapshot, so that earlier events are not replayed."""
    with bench.store.transaction():
        bench.store.history.add_snapshot(
            bench.service.machine.state.seq, bench.service.machine.dump()
        )


NEWS: list[Event] = [
    events.HparamsSampled(experiment_id=A, index=0, hparams={}),
    events.TrialJudged(experiment_id=A, index=0, is_pruned=False),
    events.CheckpointsDeleted(experiment_id=A, uuids=[]),
    events.ExperimentDeleted(experiment_id=A),
    events.LogMatched(allocation_id=RUNS[A], rank=0, pattern="x", action="exclude_node", line="x"),
    events.ValidationReported(allocation_id=RUNS[A], steps_completed=1, metric=0.5),
    events.LossReported(allocation_id=RUNS[A], metric="loss", steps_completed=1, value=inf),
    events.RecordArrived(allocation_id=RUNS[A], rank=0, record=started()),
    up(A),
    RanksSeen(allocation_id=RUNS[A], at=1.0, places={}),
    RoomReported(allocation_id=RUNS[A], at=1.0, wait=None),
    events.RoomFound(trial_id=A),
    events.UnmanagedHeard(allocation_id=RUNS[A], silent_since=1.0),
    gone(A),
]
OF_AGENTS: list[Event] = [
    events.AgentRegistered(agent_id=AGENT, session="x", hostname="h", pid=1, slots=[]),
    events.AgentAway(agent_id=AGENT),
    events.AgentsReachable(agents=[AGENT]),
    events.ClustersChanged(names=["ray"]),
    events.AgentLost(agent_id=AGENT),
    events.AgentRemoved(agent_id=AGENT),
    events.DevicesReported(agent_id=AGENT, processes={}),
    changes.SetPools(pools=[]),
    events.ClockStepped(by_s=5.0),
    events.SlotsSettled(),
]
RUN = ImportedTrial(
    source="one", state="COMPLETED", hparams={}, created_at=1.0, ended_at=2.0, steps_completed=1
)
REQUESTS: list[events.Request] = [
    changes.Pause(experiment_id=A),
    changes.Activate(experiment_id=A),
    changes.Cancel(experiment_id=A),
    changes.KillTrial(trial_id=A),
    changes.ProfileTrial(trial_id=A),
    changes.ChangeTrial(trial_id=A, lr=0.5),
    changes.ChangeSearch(experiment_id=A, max_length=parse_length(LENGTH)),
    changes.ChangeResources(experiment_id=A, priority=3),
    changes.ChangeDetails(experiment_id=A, name="other"),
    changes.MoveInQueue(experiment_id=A, ahead_of=B),
    changes.ChangeQueue(
        changes=[QueueChange(where="", request=ChangeResources(experiment_id=A, priority=3))]
    ),
    changes.SwitchSlots(agent_id=AGENT, enabled=False, slots=[0]),
    changes.Archive(experiment_id=A),
    changes.Unarchive(experiment_id=A),
    changes.Delete(experiment_id=A),
    events.ContinueRequested(experiment_id=A, config={}),
    changes.DropCheckpoints(uuids=["none"]),
    changes.MoveCheckpoints(uuids=["none"], location="/elsewhere"),
    changes.SetRetention(
        experiment_id=A, save_experiment_best=0, save_trial_best=0, save_trial_latest=0
    ),
    changes.ImportExperiment(
        config=make_request().config,
        capsule=make_request().capsule,
        python="",
        cwd="/",
        key="runs",
        source="/runs",
        trials=[RUN],
    ),
    StartUnmanaged(
        config=make_request().config,
        capsule=make_request().capsule,
        python="",
        cwd="/",
        key="by hand",
        started_at=1.0,
        host="h",
        slots=[SlotView(id=-1, kind="cpu", index=0, name="CPU")],
        ranks=[RankProcess(rank=0, pid=10, connection_file="c", output_file="o")],
    ),
    models.CreateModel(name="digits"),
    models.EditModel(model="digits", notes="none"),
    models.SetAlias(model="digits", alias="best", number=1),
    models.RegisterVersion(model="digits", uuid="none"),
    models.EditVersion(model="digits", number=1, notes="none"),
    models.DeleteVersion(model="digits", number=1),
    models.DeleteModel(model="digits"),
]
SUBMITTED = "experiment_submitted"
KILL = changes.Kill(experiment_id=A)


def test_every_kind_of_event_is_tried_here() -> None:
    union = get_args(get_args(Event)[0])
    tried = {type(event) for event in [*NEWS, *OF_AGENTS, *REQUESTS, KILL]}
    assert set(union) == tried | {events.ExperimentSubmitted, ContentSetAside}


def raise_at(monkeypatch: pytest.MonkeyPatch, *kinds: str) -> list[Event]:
    """Make the handlers of these kinds raise after a change of the state, except for B."""
    handlers, hit = machine.HANDLERS, list[Event]()

    def handle_and_raise(turn: Turn, event: Event) -> None:
        is_concerned = event.kind in kinds and experiment_of(turn.state, event) != B
        try:
            handlers[type(event)](turn, event)
            for trial in turn.state.trials.values() if is_concerned else ():
                trial.message = "half changed"
        except DetError:
            if not is_concerned:
                raise
        if is_concerned:
            hit.append(event)
            raise RuntimeError(f"no {event.kind}")

    monkeypatch.setattr(machine, "HANDLERS", dict.fromkeys(handlers, handle_and_raise))
    return hit


def check_others(bench: Bench, num_trials: int = 2) -> None:
    """Assert that B is unaffected, here and after a restart in which all events are replayed."""
    again = Bench(bench.store.path)  # as after a SIGKILL
    try:
        for one in (bench, again):
            assert state_of(one, B) is State.COMPLETED
            assert one.service.views.trial(B).steps_completed == 100
            assert one.service.views.trial(B).best_metric == 0.1
            assert not one.service.views.experiment(B).message
            check_machine(one.service.machine)
            metrics = [item for item in one.store.feed.after(0, B, 1000) if item.kind == "metrics"]
            assert len(metrics) == 3
            trials = one.service.machine.state.trials.values()
            assert not any(trial.message == "half changed" for trial in trials)
        assert again.service.machine.state.last_trial_id == num_trials
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
    view = bench.service.views.experiment(A)
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


@pytest.mark.parametrize(
    "kind", ["gang_started", "record_arrived", "validation_reported", "gang_exited"]
)
def test_reports_whose_handler_raises_are_acknowledged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    hit = raise_at(monkeypatch, kind)
    live(bench, A)
    assert hit
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


def test_requests_whose_handlers_raise_are_refused_and_change_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = bench.service.machine.dump()
    raise_at(monkeypatch, *(event.kind for event in REQUESTS))
    for event in REQUESTS:
        with pytest.raises(Conflict, match=f"failed at {event.kind} .* has changed nothing"):
            bench.service.apply(event)
        assert bench.service.machine.dump() == before, event.kind
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
    handlers = machine.HANDLERS

    def refuse_first(turn: Turn, event: Event) -> None:
        handlers[type(event)](turn, event)
        if event.kind == SUBMITTED and turn.state.last_experiment_id == A:
            raise RuntimeError("not any more")

    monkeypatch.setattr(machine, "HANDLERS", dict.fromkeys(handlers, refuse_first))
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


# Stored data


DAMAGES = [
    "", "\x00", "null", "[]", "{}", '{"kind": "from the future"}', "[" * 100_000, b"\xff", "\udcff"
]  # fmt: skip


def damage(bench: Bench, table: str, content: str | bytes, where: str) -> None:
    """Overwrite a stored value; lone surrogates stand for bytes that are not UTF-8."""
    value, json_ = content, "?"
    if isinstance(content, str) and not content.isascii():
        value, json_ = content.encode("utf-8", "surrogateescape"), "CAST(? AS TEXT)"
    with closing(sqlite3.connect(bench.store.path)) as db, db:
        assert (
            db.execute(f"UPDATE {table} SET json = {json_} WHERE {where}", (value,)).rowcount > 0
        )
    db.close()


@pytest.mark.parametrize("text", DAMAGES)
def test_a_stored_event_that_cannot_be_read_stops_no_start(
    bench: Bench, text: str | bytes
) -> None:
    live(bench, B)
    bench.report(up(A))
    damage(bench, "events", text, "json LIKE '%gang_started%' AND json LIKE '%\"1.1.1\"%'")
    check_others(bench)
    again = Bench(bench.store.path)
    kept = str(text)[:65536].encode("utf-8", "replace").decode()
    assert [row[2] for row in again.store.quarantine.rows()] == [kept]
    again.register()
    assert state_of(again, A) is State.ACTIVE, "nothing says whose event it was"
    again.service.close()


def test_a_stored_event_of_an_experiment_ends_it_if_it_cannot_be_read(bench: Bench) -> None:
    bench.service.apply(changes.MoveInQueue(experiment_id=A, behind=B))
    live(bench, B)
    damage(bench, "events", '{"experiment_id": 1}', "json LIKE '%move_in_queue%'")
    for _ in range(2):
        check_others(bench)
    again = Bench(bench.store.path)
    assert len(again.store.quarantine.rows()) == 1
    assert again.service.views.experiment(A).state is State.STOPPING_ERROR
    assert "stored event" in again.service.views.experiment(A).message
    again.register(runs=[RunReport(allocation_id=RUNS[A], alive=True)])
    assert again.commands() == ["kill_gang"]
    again.report(gone(A, code=-9))
    assert state_of(again, A) is State.ERROR
    check_machine(again.service.machine)
    again.service.close()


def test_damaged_numbers_keep_no_agent_and_no_view_away(bench: Bench) -> None:
    live(bench, A)
    bench.report(up(B))
    bench.report(make_chunk([progress(10)], run=RUNS[B]))
    with closing(sqlite3.connect(bench.store.path)) as db, db:
        assert db.execute("UPDATE offsets SET bytes = 'abc'").rowcount
        assert db.execute("UPDATE numbers SET last_trial_id = 'x'").rowcount
        assert db.execute("UPDATE progress SET steps_completed = 'x', fraction = 9e999").rowcount
    db.close()
    again = Bench(bench.store.path)
    again.register(runs=[RunReport(allocation_id=RUNS[B], alive=True)])
    views = [again.service.views.experiment(number) for number in (1, 2)]
    assert [view.trials[0].steps_completed for view in views] == [0, 0]
    again.service.close()


def test_an_experiment_gets_no_number_of_one_whose_events_are_missing(bench: Bench) -> None:
    live(bench, A)
    with closing(sqlite3.connect(bench.store.path)) as db, db:
        db.execute("DELETE FROM events")
        db.execute("DELETE FROM snapshots")
    db.close()
    again = Bench(bench.store.path)
    again.register()
    assert asyncio.run(again.service.submit(make_request())).id == 3
    again.service.close()


@pytest.mark.parametrize("text", DAMAGES)
def test_a_snapshot_that_cannot_be_read_is_passed_over(bench: Bench, text: str | bytes) -> None:
    live(bench, A)
    live(bench, B)
    write_down(bench)
    whole = bench.service.machine.dump()
    damage(bench, "snapshots", '{"seq": "x"}' if text == "{}" else text, "true")
    again = Bench(bench.store.path)
    assert again.service.machine.dump() == whole
    assert len(again.store.quarantine.rows()) == 1
    again.service.close()


def test_an_experiment_whose_configuration_is_not_understood_any_more_ends(bench: Bench) -> None:
    bench.service.machine.state.experiments[A].config["searcher"]["name"] = "of another version"
    write_down(bench)
    again = Bench(bench.store.path)
    again.register(runs=[RunReport(allocation_id=run, alive=True) for run in RUNS.values()])
    assert again.commands() == ["kill_gang"]
    again.report(gone(A, code=-9))
    assert state_of(again, A) is State.ERROR
    assert "its stored configuration or search" in again.service.views.experiment(A).message
    live(again, B)
    check_others(again)
    again.service.close()


@pytest.mark.parametrize("text", DAMAGES)
def test_rows_that_cannot_be_read_keep_nobody_from_the_others(
    bench: Bench, text: str | bytes
) -> None:
    bench.store.set_template(1.0, "bad", "{}")
    bench.store.set_template(1.0, "good", '{"name": "a"}')
    timings = [BatchTimings(at=1.0, first=i, records=[8], durations_ns={}) for i in (1, 2)]
    bench.report(make_chunk([*timings, batches(1, [0.5]), batches(2, [0.4, 0.3])]))
    damage(bench, "templates", text, "name = 'bad'")
    damage(bench, "timings", text, "first_step = 1")
    damage(bench, "feed", text, "first_step = 1")
    assert [one.name for one in bench.store.templates()][-1] == "good"
    assert [one.first for one in bench.store.timings(1, after=0, limit=9)] == [2]
    assert [data["first"] for _, data in read_metrics(bench.store.path, A)] == [2]
    assert bench.store.feed.after(0, A, 1000)
    damage(bench, "feed", text, "first_step = 2")
    bench.store.truncate_metrics(A, 2)
    assert list(read_metrics(bench.store.path, A)) == []


def test_a_page_of_rows_that_cannot_be_read_ends_no_feed(bench: Bench) -> None:
    last = bench.store.feed.after(0, A, 1000)[-1].seq
    damage(bench, "feed", "{", f"seq < {last}")
    assert [item.seq for item in bench.store.feed.after(0, A, 1)] == [last]
    assert bench.store.feed.news_after(0, 1)


# Which experiment is at fault


def test_an_experiment_that_cannot_be_started_is_given_up_by_another_ones_event(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(bench.service.submit(make_request(resources={"slots_per_trial": 1})))
    make_plan = placing.make_plan

    def plan(experiment: Experiment, *about: Any) -> Any:
        if experiment.id == 3:
            raise KeyError("no such thing")
        return make_plan(experiment, *about)

    monkeypatch.setattr("det_jupyter.master.machine.rules.placing.make_plan", plan)
    live(bench, A)
    assert state_of(bench, A) is State.COMPLETED
    assert state_of(bench, 3) is State.ERROR
    assert "KeyError: 'no such thing'" in bench.service.views.experiment(3).message
    live(bench, B)
    check_others(bench, num_trials=3)


def break_pass(
    monkeypatch: pytest.MonkeyPatch, is_broken: Callable[[Pass, Request], bool]
) -> None:
    """Make the scheduler raise where it would start such a request."""
    start = Pass._start

    def start_or_raise(taken: Pass, request: Request) -> bool:
        if is_broken(taken, request):
            raise ZeroDivisionError("no such place")
        return start(taken, request)

    monkeypatch.setattr(Pass, "_start", start_or_raise)


def submit(bench: Bench) -> None:
    asyncio.run(bench.service.submit(make_request(resources={"slots_per_trial": 1})))


def test_an_experiment_that_no_pass_can_look_at_is_given_up_and_the_others_go_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        submit(bench)
    break_pass(monkeypatch, lambda _, request: request.group == 3)
    live(bench, A)
    assert state_of(bench, A) is State.COMPLETED
    assert state_of(bench, 3) is State.ERROR
    assert "ZeroDivisionError: no such place" in bench.service.views.experiment(3).message
    assert bench.service.machine.state.trials[4].holds_slots
    assert bench.service.problems == []
    live(bench, B)
    check_others(bench, num_trials=4)


def test_a_submission_that_no_pass_can_look_at_ends_at_once_and_says_why(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_pass(monkeypatch, lambda _, request: request.group == 3)
    submit(bench)
    assert state_of(bench, 3) is State.ERROR
    assert bench.service.views.experiment(3).message == (
        "the master failed at a pass of the scheduler (ZeroDivisionError: no such place); "
        "master.log has the traceback"
    )
    for experiment_id in (A, B):
        live(bench, experiment_id)
    check_others(bench, num_trials=3)


def test_where_no_pass_works_nothing_starts_and_what_runs_goes_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        submit(bench)
    with monkeypatch.context() as broken:
        break_pass(broken, lambda *_: True)
        live(bench, A)
        assert state_of(bench, A) is State.COMPLETED
        (problem,) = bench.service.problems
        assert problem.startswith(
            "pool default: no waiting trial starts, because the scheduler fails "
            "(ZeroDivisionError: no such place); "
        )
        assert any("pass" in record.message and record.exc_info for record in caplog.records)
        assert bench.store.quarantine.rows() == []
        assert not bench.service.machine.state.trials[3].holds_slots
    live(bench, B)
    assert bench.service.problems == []
    assert bench.service.machine.state.trials[3].holds_slots
    check_others(bench, num_trials=4)


def test_an_agent_is_taken_on_though_one_of_its_runs_cannot_be_settled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = agents._reconcile

    def fail_at_first(turn: Turn, trial: Trial, *about: Any) -> None:
        settle(turn, trial, *about)
        if trial.id == A and trial.failure is None and trial.state is State.ACTIVE:
            raise KeyError("no such run")

    monkeypatch.setattr(agents, "_reconcile", fail_at_first)
    bench.register(runs=[RunReport(allocation_id=run, alive=True) for run in RUNS.values()])
    assert state_of(bench, A) is State.STOPPING_ERROR
    assert set(bench.commands()) == {"kill_gang"}
    bench.report(gone(A, code=-9))
    live(bench, B)
    check_others(bench)


# Malformed input


@pytest.mark.parametrize(
    "report",
    [
        GangStarted(
            allocation_id=RUNS[A],
            at=1.0,
            ranks=[RankProcess(rank=99, pid=1, connection_file="", output_file="")],
        ),
        GangStarted(allocation_id=RUNS[A], at=1.0, ranks=[]),
        GangStarted(allocation_id="1.1.99999999999999999999", at=1.0, ranks=[]),
        GangExited(allocation_id="..", at=1.0, exit_codes={}),
        GangExited(allocation_id=f"1.{'9' * 5000}.1", at=1.0, exit_codes={}),
        GangExited(allocation_id="٣.٣.٣", at=1.0, exit_codes={7: None}, first_failed=99),
        DevicesSeen(at=1.0, processes={-5: [], 10**30: []}),
        make_chunk([started(), first_step(), saved(1, "u")], run=RUNS[A], rank=99),
        make_chunk([started()], run="a.b.c"),
        make_text_chunk("x\n", stream="journal-99999999999999999999", run=RUNS[A]),
        make_text_chunk("x\n", stream=f"output-{'1' * 5000}", run=RUNS[A]),
        make_text_chunk("x\n", stream="output-²", run=RUNS[A]),
        make_text_chunk("x\n", stream="\u061c", run=RUNS[A]),
        make_text_chunk("\x00\x1b[2J\n", stream="output-0", run=RUNS[A]),
    ],
    ids=lambda report: f"{report.kind}"[:20],
)
def test_reports_with_nonsense_change_nothing(bench: Bench, report: AgentReport) -> None:
    before = bench.service.machine.state.experiments[A].model_dump_json()
    trial = bench.service.machine.state.trials[A].model_dump_json()
    bench.report(report)
    assert bench.service.machine.state.experiments[A].model_dump_json() == before
    assert bench.service.machine.state.trials[A].model_dump_json() == trial
    for experiment_id in (A, B):
        bench.report(up(experiment_id))
        bench.report(make_chunk(life_of(experiment_id), run=RUNS[experiment_id]))
        bench.report(gone(experiment_id))
        assert state_of(bench, experiment_id) is State.COMPLETED
    check_others(bench)


@pytest.mark.parametrize(
    "report",
    [
        None,
        {"kind": "from the future"},
        {"kind": "gang_exited", "allocation_id": RUNS[B], "at": 1e400},
        {"kind": "chunk", "allocation_id": RUNS[B], "stream": "journal-0", "offset": 0,
         "size_bytes": 5, "text": "\ud800"},
        {"kind": "chunk", "allocation_id": RUNS[B], "stream": "output-0", "offset": 2**70,
         "size_bytes": 5, "text": ""},
    ],
)  # fmt: skip
def test_a_report_that_is_none_keeps_none_of_its_batch_away(bench: Bench, report: Any) -> None:
    batch = {"session": "first", "reports": [report, up(A).model_dump()]}
    bench.service.take_reports(AGENT, AgentReports.model_validate(batch))
    allocation = bench.service.machine.state.trials[A].allocation
    assert allocation is not None
    assert allocation.ranks
    assert len(bench.store.quarantine.rows()) == 1
    if report and report.get("offset") == 0:
        assert bench.store.offsets_of(RUNS[B]) == {"journal-0": 5}


def test_an_error_that_would_move_the_terminal_is_shown_without_that(bench: Bench) -> None:
    failure = RankFailure(at=1.0, rank=0, error="\x1b[31mOops\x1b[0m \x07\u061c", traceback="")
    bench.report(up(A), make_chunk([started(), replace(failure, final=True)], run=RUNS[A]))
    bench.report(gone(A, code=1))
    assert bench.service.views.experiment(A).message == "trial 1: Oops \ufffd\ufffd"
    policies = [{"pattern": "boom", "action": "cancel_retries"}]
    request = make_request(resources={"slots_per_trial": 1}, log_policies=policies)
    asyncio.run(bench.service.submit(request))
    RUNS[3] = "3.3.1"
    bench.report(up(3), make_text_chunk("\x1b]0;title\x07boom\n", stream="output-0", run=RUNS[3]))
    assert bench.service.machine.state.trials[3].message.endswith("printed: boom")
