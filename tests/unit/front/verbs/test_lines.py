"""Lines about slots, queues and life cycles: requests and printed texts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from IPython.core.error import StdinNotImplementedError
from IPython.core.error import UsageError as LineError

import det_jupyter
from det_jupyter.client import Client
from det_jupyter.client.handle_text import state_word
from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationState,
    Archive,
    ChangeQueue,
    ChangeRequest,
    ChangeResources,
    CheckpointView,
    ClusterView,
    ContinueExperiment,
    CreateExperiment,
    Curve,
    Delete,
    EffectiveConfig,
    ExperimentQuery,
    ExperimentRows,
    ExperimentView,
    JobEntry,
    MoveInQueue,
    Pause,
    PoolStatus,
    Reason,
    SearchChangeView,
    SetPools,
    SetRetention,
    State,
    SwitchSlots,
    Unarchive,
)
from det_jupyter.contract.values.text import date
from det_jupyter.errors import ConfigError, Conflict, NotFound, UsageError
from det_jupyter.front.notebook.complete.magic_parsers import det_parser, line_parser
from det_jupyter.front.notebook.handles import connection, experiment_handles
from det_jupyter.front.notebook.magics import DetMagics, run_line
from det_jupyter.front.verbs.showing import describe_end, describe_state
from tests.problems import said
from tests.unit.client.documents_fake import FakeDocuments, state_of
from tests.unit.front.verbs.cluster_samples import (
    SENTENCE,
    agent,
    busy_agent,
    cluster,
    entry,
    held,
    holding,
    job,
    pool,
    reason,
    slot,
)
from tests.unit.front.verbs.finding_samples import rows_found
from tests.unit.front.verbs.recording_client import noted
from tests.unit.view.view_samples import CREATED_AT, allocation, checkpoint, experiment, trial


class Master:
    """Answers as the master does, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.view = experiment(trial(), priority=42, pool="default")
        self.agent = busy_agent()
        self.pool = pool(self.agent, agent(slot(0), name="right"), num_waiting=1)
        self.night = pool(name="night", policy="fair_share")
        self.found = rows_found(7)
        self.refusal: list[str] = []  # of changes of the queue
        self.noted: list[str] = []
        self.asked: list[Any] = []
        self.session = SimpleNamespace(info=SimpleNamespace(data_dir="data"))

    def experiment(self, experiment_id: int) -> ExperimentView:
        if experiment_id >= 90:
            raise NotFound(
                f"there is no experiment {experiment_id}", what="experiment", number=experiment_id
            )
        return self.view.model_copy(update={"id": experiment_id})

    def find(self, query: ExperimentQuery) -> ExperimentRows:
        return self.found

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        return [checkpoint(10, 0.5), checkpoint(20, 0.4, state="DELETED")]

    def change(self, request: ChangeRequest) -> Any:
        if isinstance(request, Archive | Unarchive | Delete):
            self.experiment(request.experiment_id)
        self.asked.append(noted(request))
        match request:
            case ChangeQueue():
                if self.refusal:
                    raise ConfigError(self.refusal)
                return [self.experiment(one.request.experiment_id) for one in request.changes]
            case ChangeResources() | MoveInQueue():
                return self.view.model_copy(update={"id": request.experiment_id})
            case SetRetention():
                return [checkpoint(i, 0.5) for i in range(25)]
            case SetPools():
                return [self.pool]
            case SwitchSlots():
                return self.agent
            case _:
                return self.view

    def continue_experiment(
        self, experiment_id: int, request: ContinueExperiment
    ) -> ExperimentView:
        self.asked.append((experiment_id, request.config))
        return self.view

    def create(self, request: CreateExperiment) -> ExperimentView:
        self.asked.append((request.parent_id, request.config["searcher"]))
        self.queues_anyway = request.queue_anyway
        return self.view.model_copy(update={"id": 8})

    def cluster(self, *, limit: int | None = None) -> ClusterView:
        return cluster(self.pool, self.night, holding=[holding()], queue=[entry()])

    def jobs(self) -> list[JobEntry]:
        return [job()]

    def pools(self) -> list[PoolStatus]:
        return [self.pool, self.night]

    def agents(self) -> list[AgentStatus]:
        return [agent for pool in self.pools() for agent in pool.agents]

    def problems(self) -> list[str]:
        return self.noted

    def reason(self, trial_id: int) -> Reason:
        if trial_id == 99:
            raise NotFound("there is no trial 99", what="trial", number=99)
        return reason(trial_id=trial_id)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    found = Master()
    monkeypatch.setattr(connection, "client", lambda: cast("Client", found))
    return found


def det(line: str, cell: str | None = None) -> None:
    run_line(det_parser(), line, cell)


def det_experiment(line: str, cell: str | None = None) -> Any:
    return run_line(line_parser(), line, cell)


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("", {"keep": False}),
        ("--seconds 3 --rounds 2 --keep", {"seconds": 3.0, "rounds": 2, "keep": True}),
    ],
)
def test_a_diagnosis_is_one_of_the_experiment(
    words: str, given: dict[str, Any], master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        experiment_handles,
        "experiment",
        lambda number: SimpleNamespace(diagnose=lambda **how: asked.append((number, how))),
    )
    det_experiment(f"diagnose 7 {words}")
    assert asked == [(7, given)]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("slot enable left 0 1", ("left", [0, 1], True, False)),
        ("slot disable left 3 --drain", ("left", [3], False, True)),
        ("s disable left", ("left", None, False, False)),
        ("agent disable left --drain", ("left", None, False, True)),
        ("a enable left", ("left", None, True, False)),
        ("job move 5 --ahead-of 3", (5, {"ahead_of": 3})),
        ("j move 5 --behind 3", (5, {"behind": 3})),
    ],
)
def test_a_line_is_one_request(master: Master, line: str, asked: Any) -> None:
    det(line)
    assert master.asked == [asked]


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("set 5 --priority 10", (5, {"priority": 10})),
        ("set priority 5 10", (5, {"priority": 10})),
        ("set resource-pool 5 night", (5, {"resource_pool": "night"})),
        ("set 5 --max-slots 8", (5, {"max_slots": 8})),
        ("set 5 --max-slots none", (5, {"max_slots": "none"})),
        ("set 5 --weight 2 --pool night", (5, {"weight": 2.0, "resource_pool": "night"})),
        ("archive 5", (5, "archive")),
        ("unarchive 5", (5, "unarchive")),
        ("delete 5 --yes", (5, "delete")),
    ],
)
def test_an_experiment_is_steered_by_one_request(master: Master, line: str, asked: Any) -> None:
    det_experiment(line)
    assert master.asked == [asked]


@pytest.mark.parametrize(
    ("line", "start"),
    [
        ("slots", "Pool default (by priority, with preemption): 9 slots: 2 used"),
        ("slot", "Agent left  ██▓▞x···  8 slots: 2 used"),
        ("agent", "Agent ID  Hostname"),
        ("task ls", "Task ID  Allocation ID"),
        ("job", "#  ID  Type"),
        ("j list -p default", "#  ID  Type"),
        ("rp", "Name     Scheduler"),
        ("queue", "Pool default (by priority, with preemption): 9 slots: 2 used"),
        ("why 9", f"Trial 9: {SENTENCE}"),
        ("why --experiment 5", f"Trial 1: {SENTENCE}"),
        ("task list --csv", "Task ID,Allocation ID,Name"),
        ("slot --json", '[\n  {\n    "Agent ID": "left"'),
    ],
)
def test_what_there_is_is_listed(
    master: Master, capsys: pytest.CaptureFixture[str], line: str, start: str
) -> None:
    det(line)
    assert capsys.readouterr().out.startswith(start)
    assert not master.asked


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("slt", "invalid choice: 'slt'; did you mean slot?"),
        ("job moev 5", "invalid choice: 'moev'; did you mean move?"),
        ("job move x --ahead-of 3", "got 'x', expected the number of an experiment"),
        ("job move 5", "one of the arguments --ahead-of --behind/--behind-of is required"),
        ("job update 5", "%det job update: nothing to change; give --priority"),
        ("why seven", "got 'seven', expected the number of a trial, or --experiment ID"),
        ("why {t.id}", "or --experiment ID; t.id is not defined here"),
        ("job update w --priority 1", "expected the number of an experiment; write {w.id}"),
        ("e create a.yaml . -f", "there is no `%det experiment create`: put `%%det_experiment"),
        ("m move digits Vision", "there is no `%det model move`: there are no workspaces here"),
        ("model register-version digits", "one of the arguments UUID --experiment is required"),
        ("model create a --metadata owner", "got 'owner', expected KEY=VALUE"),
        ("master status", "there is no `%det master`: `!det master status` asks in a shell"),
        ("agent disable", "%det agent disable: give the name of an agent, or --all"),
        ("agent enable left --all", "give the name of an agent, or --all"),
        ("agent add b", "a notebook is saved with its output: give --output FILE"),
        ("pool set", "give either a file, or %%det pool set above YAML"),
        ("slot disable", "are required: agent (see %det slot disable --help)"),
        ("slot disable left x", "got 'x', expected a whole number, 0 or more"),
        (
            "agent enable left right",
            "%det agent enable: unrecognized arguments: right (see %det agent enable --help)",
        ),
    ],
)
def test_a_wrong_line_is_told_in_one(master: Master, line: str, problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        det(line)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not master.asked


def test_a_wrong_line_is_an_error_that_ipython_prints_in_one_line() -> None:
    magics: Any = DetMagics(shell=None)
    for run in (magics.det, magics.det_experiment):
        with pytest.raises(LineError, match="invalid choice: 'slt'"):
            run("slt")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("set 5", "%det_experiment set: nothing to change; give --name"),
        ("set 5 --max-slots some", "got 'some', expected a whole number, or none"),
        ("pause w.id", "got 'w.id', expected the number of an experiment; write {w.id}"),
        (
            "pause {w.id}",
            "got '{w.id}', expected the number of an experiment; w.id is not defined here",
        ),
        ("create a.yaml .", "there is no `%det_experiment create`: put `%%det_experiment"),
        ("arhive 5", "invalid choice: 'arhive'; did you mean archive?"),
        ("7", "invalid choice: '7'; expected list"),
        ("set nam 7 x", "invalid choice: 'nam'; did you mean name?"),
        ("set 5 --weight 0", "got '0', expected a number above 0"),
        ("set 5 --weight inf", "got 'inf', expected a number above 0"),
        ("pause ²", "got '²', expected the number of an experiment"),
        ("logs 5 --tail -5", "got '-5', expected a whole number, 0 or more"),
    ],
)
def test_a_wrong_line_about_an_experiment_is_told_in_one(
    master: Master, line: str, problem: str
) -> None:
    with pytest.raises(UsageError) as caught:
        det_experiment(line)
    assert problem in str(caught.value)


def test_an_unknown_pool_or_trial_is_told_with_those_that_there_are(master: Master) -> None:
    with pytest.raises(NotFound, match="there is no pool 'nigth'; there are: default, night"):
        det("job list -p nigth")
    with pytest.raises(NotFound, match="there is no trial 99"):
        det("why 99")


def test_lists_for_programs_are_one_document_whatever_there_is(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(master, "jobs", lambda: [job(), job(5, pool="night")])
    master.noted = ["pools.yaml: polls: unknown key"]
    for noun in ("slot", "agent", "task", "job", "pool"):
        det(f"{noun} list --json")
        rows = json.loads(capsys.readouterr().out)
        assert rows
        det(f"{noun} list --csv")
        header, *cells = csv.reader(capsys.readouterr().out.splitlines())
        assert all(header), "what is for people only is left out"
        assert [len(each) for each in cells] == [len(header)] * len(rows)
    det("job list --json -p night")
    assert [row["ID"] for row in json.loads(capsys.readouterr().out)] == [5]
    monkeypatch.setattr(master, "cluster", lambda limit: cluster(pool(num_waiting=1)))
    monkeypatch.setattr(master, "jobs", list)
    for noun in ("task", "job"):
        det(f"{noun} list --json")
        captured = capsys.readouterr()
        assert captured.out == "[]\n"
    det("task list --json")
    assert capsys.readouterr().err == "… and 1 more\n"


def test_what_is_wrong_with_the_file_of_the_pools_is_told(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.noted = ["not followed: pools.yaml: polls: unknown key", "pool a: the scheduler fails"]
    for line in ("slots", "pool list"):
        det(line)
        assert capsys.readouterr().out.splitlines()[-2:] == [
            "Note: not followed: pools.yaml: polls: unknown key",
            "Note: pool a: the scheduler fails",
        ]
    assert "polls: unknown key" in det_jupyter.slots()._repr_html_()


def test_how_many_more_trials_wait_is_told(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    queued = allocation(AllocationState.QUEUED)
    master.view = experiment(trial(), *(trial(id=i, allocation=queued) for i in (2, 3, 4)))
    det_experiment("why 5")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"Trial 2: {SENTENCE}"
    assert lines[-1] == "2 more trials of experiment 5 wait; `%det queue` lists all that do."


def test_a_number_that_is_none_is_told_with_those_that_there_are(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(experiment_id: int) -> ExperimentView:
        raise NotFound("`list` shows those that are", what="experiment", number=experiment_id)

    monkeypatch.setattr(master, "experiment", refuse)
    magics: Any = DetMagics(shell=None)
    with pytest.raises(NotFound, match=r"^there is no experiment 99; there are: 7$"):
        magics.det_experiment("why 99")
    master.found = rows_found(8, 7, 6, 5, 4, num_more=3)
    with pytest.raises(NotFound, match="there is no experiment 99; the newest are: 4, 5, 6, 7, 8"):
        magics.det_experiment("why 99")
    master.found = rows_found()
    with pytest.raises(NotFound, match="there is no experiment 99; there are none yet"):
        magics.det("why --experiment 99")
    with pytest.raises(NotFound, match="there is no trial 99; `%det task list` shows"):
        magics.det("why 99")


def test_all_agents_are_switched_one_by_one(master: Master) -> None:
    det("agent disable --all")
    assert [name for name, *_ in master.asked] == ["left", "right"]


def test_what_becomes_of_the_trials_on_a_slot_is_told(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.agent = agent(held(0, 0, "leaving"), slot(1, "disabled"))
    det("slot disable left 0 1")
    told = "Agent left: 2 slots: 1 leaving, 1 disabled."
    leaves = "Trial 7 is asked to save its state and leave."
    assert capsys.readouterr().out == f"{told} {leaves}\n"
    det("slot disable left 0 1 --drain")  # that it may finish would be a lie
    assert capsys.readouterr().out == f"{told} {leaves}\n"
    det("slot enable left")
    assert capsys.readouterr().out == f"{told}\n"
    running = [held(i, 0, trial_id=i, is_draining=True) for i in range(2, 9)]
    master.agent = agent(held(0, 0, "leaving"), held(1, 0, "leaving", trial_id=8), *running)
    det("agent disable left --drain")
    assert capsys.readouterr().out == (
        "Agent left: 9 slots: 7 used, 2 leaving. Trials 7 and 8 are asked to save their state and "
        "leave. Trials 2, 3, 4, 5 and 6 may finish first.\n"
    )
    master.agent = agent(*(held(i, 0, trial_id=i, is_draining=True) for i in range(9)))
    det("agent disable left --drain")
    assert "Trials 0, 1, 2, 3, 4 and 4 more may finish first." in capsys.readouterr().out


def asked_of(master: Master) -> list[tuple[int, str, dict[str, Any]]]:
    """Return the changes of the one request that the master got."""
    (request,) = master.asked
    assert not request.dry_run
    return [
        (each.request.experiment_id, each.where, each.request.given()) for each in request.changes
    ]


def test_several_jobs_are_changed_by_one_request(master: Master) -> None:
    det("job update-batch 3.priority=10 5.ahead-of=3 6.weight=1.5 7.resource-pool=night")
    assert asked_of(master) == [
        (3, "3.priority", {"priority": 10}),
        (5, "5.ahead-of", {"ahead_of": 3}),
        (6, "6.weight", {"weight": 1.5}),
        (7, "7.resource-pool", {"resource_pool": "night"}),
    ]


def test_an_experiment_is_updated_by_one_request(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    det("job update 5 --behind-of 8 --weight 2 --priority 10 --resource-pool night")
    assert asked_of(master) == [
        (5, "--resource-pool", {"resource_pool": "night"}),
        (5, "--priority", {"priority": 10}),
        (5, "--weight", {"weight": 2.0}),
        (5, "--behind-of", {"behind": 8}),
    ]
    assert capsys.readouterr().out.startswith("Experiment 5 “digits”: priority 42")


def problems_of(line: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        det(line)
    return said(caught.value.problems)


def test_what_cannot_be_read_is_reported_with_what_the_master_refuses(master: Master) -> None:
    master.refusal = ["99.weight: there is no experiment 99"]
    known = "priority, weight, resource-pool, ahead-of, behind-of"
    operations = (
        "5.prio=3 x 6.weight= 2.ahead-of=x 2.priority=[1,2] 2.weight=nan 3.weight=[1 "
        "3.weight=true 99.weight=2"
    )
    assert problems_of(f"job update-batch {operations}") == [
        f"got '5.prio=3', expected ID.OPERATION=VALUE with one of {known}",
        f"got 'x', expected ID.OPERATION=VALUE with one of {known}",
        "6.weight=: expected a value after the =",
        "2.ahead-of: got 'x', expected an experiment, or its number",
        "2.priority: got [1, 2], expected a whole number from 1 to 99",
        "2.weight: got 'nan', expected a number above 0",
        "3.weight: got '[1', expected a number above 0",
        "3.weight: got 'true', expected a number above 0",
        "99.weight: there is no experiment 99",
        "Nothing is changed.",
        "`%det job list` shows the experiments that are not over.",
    ]
    assert [request.dry_run for request in master.asked] == [True]


def test_a_refused_update_says_that_nothing_is_changed(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "jobs", lambda: [job(experiment_id=5)])
    master.refusal = ["--priority: got 0, expected a number from 1 to 99"]
    assert problems_of("job update 5 --priority 0") == master.refusal
    assert problems_of("job update 5 --priority 0 --weight 2") == [
        *master.refusal, "Nothing is changed."
    ]  # fmt: skip
    master.asked.clear()
    assert problems_of("job update-batch 5.weight=x") == [
        "5.weight: got 'x', expected a number above 0"
    ]
    assert not master.asked


POOLS = """pools:
  - pool_name: default
  - pool_name: night
    agents: ["gpu-*"]
    scheduler: {type: fair_share}
"""


def test_pools_are_set_from_a_cell_or_a_file(
    master: Master, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    det("pool set", POOLS)
    assert "Note" not in capsys.readouterr().out
    file = tmp_path / "pools.yaml"
    file.write_text(f"{POOLS}agents: [{{id: left, slots: 'cpu:8'}}]\n")
    det(f"pool set {file}")
    night = {"pool_name": "night", "agents": ["gpu-*"], "scheduler": {"type": "fair_share"}}
    assert master.asked == [[{"pool_name": "default"}, night]] * 2
    assert capsys.readouterr().out.splitlines() == [
        "Pool default (by priority, with preemption): 9 slots: 2 used, 1 leaving, 1 occupied by "
        "others, 1 disabled, 4 free; 1 trial waiting",
        "Note: agents are simulated only by the file pools.yaml, from the next start on.",
    ]


def test_what_is_wrong_with_pools_is_told_with_its_line(master: Master, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        det("pool set", POOLS.replace("fair_share", "fare_share").replace("agents", "agnets"))
    first, second = said(caught.value.problems)
    assert first.startswith("line 5: pools[1].agnets: unknown key")
    assert second.startswith("line 6: pools[1].scheduler.type: got 'fare_share'")
    file = tmp_path / "pools.yaml"
    file.write_text("polls: []\n")
    with pytest.raises(ConfigError, match=r"pools.yaml: expected the key pools with a list"):
        det(f"pool set {file}")
    assert not master.asked


def test_only_pools_are_set_from_a_cell(master: Master) -> None:
    with pytest.raises(UsageError, match="%%det slots: takes no cell; write %det"):
        det("slots", "x")


@pytest.mark.parametrize(("answer", "asked"), [("y", [(5, "delete")]), ("", []), ("no", [])])
def test_deleting_asks_first_and_says_what_is_lost(
    master: Master,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: str,
    asked: list[Any],
) -> None:
    questions: list[str] = []

    def reply(question: str) -> str:
        questions.append(question)
        return answer

    monkeypatch.setattr("builtins.input", reply)
    det_experiment("delete 5")
    assert master.asked == asked
    what = "experiment 5 “digits” with 1 trial, 1 checkpoint (620 kB), all metrics and logs"
    assert questions == [f"Delete {what}? It cannot be undone. [y/N] "]
    out = capsys.readouterr().out
    kept = "Nothing is deleted; Experiment 5 “digits” stays.\n"
    assert out == (f"Deleting {what}.\n" if asked else kept)


def test_several_are_deleted_after_one_question(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []

    def reply(question: str) -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr("builtins.input", reply)
    master.found = rows_found(2, 4, 6, 9)
    with pytest.raises(Conflict, match=r"1 of 4 experiments .*done:\n  there is no experiment 95"):
        det_experiment("delete 95 9 3-6 4")
    assert master.asked == [(9, "delete"), (4, "delete"), (6, "delete")]
    assert [line.split()[:2] for line in questions[0].splitlines()] == [
        ["experiment", "9"], ["experiment", "4"], ["experiment", "6"], ["Delete", "these"]
    ]  # fmt: skip
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_of_several_each_refusal_is_named_and_the_others_are_done(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = list[int]()

    def change(request: Pause) -> ExperimentView:
        if request.experiment_id == 4:
            raise Conflict("experiment 4 is over (completed) and cannot be paused")
        view = master.experiment(request.experiment_id)
        done.append(request.experiment_id)
        return view

    monkeypatch.setattr(master, "change", change)
    with pytest.raises(Conflict) as caught:
        det_experiment("pause 3 4 99 5")
    assert done == [3, 5]
    assert str(caught.value).splitlines() == [
        "2 of 4 experiments refused; the others are done:",
        "  experiment 4 is over (completed) and cannot be paused",
        "  there is no experiment 99",
    ]
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == [
        "Experiment 3 “digits”", "Experiment 5 “digits”"
    ]  # fmt: skip


def test_a_range_without_experiments_and_a_wrong_one_are_refused(master: Master) -> None:
    with pytest.raises(NotFound, match="there is no experiment of 20-30"):
        det_experiment("archive 20-30")
    with pytest.raises(UsageError, match="got '7-3', expected the lower number first"):
        det_experiment("archive 7-3")
    for verb in ("archive", "compare", "describe"):
        with pytest.raises(NotFound, match="there is no experiment of 20-"):
            det_experiment(f"{verb} 20-{10**30}")
    assert not master.asked


RETENTION = "retention 5 --save-experiment-best 1 --save-trial-best 0 --save-trial-latest 0"


def test_checkpoints_are_deleted_after_they_were_shown(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []

    def reply(question: str) -> str:
        questions.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", reply)
    det_experiment(RETENTION)
    question = "Delete 25 checkpoints (16 MB) of experiment 5? It cannot be undone. [y/N] "
    assert questions == [question]
    assert [request.dry_run for request in master.asked] == [True]
    lines = capsys.readouterr().out.splitlines()
    first = "  Checkpoint uuid-0 of trial 1: batch 0, metric 0.5, 620 kB, "
    assert lines[0] == f"{first}global_batch_size=64, lr=0.05"
    assert lines[-2:] == ["  … and 5 more", "Nothing is deleted, and the policy stays as it is."]
    det_experiment(f"{RETENTION} --yes")
    assert [request.dry_run for request in master.asked] == [True, True, False]
    assert capsys.readouterr().out.splitlines()[-1] == (
        "Deleted 25 checkpoints (16 MB) of experiment 5."
    )


@pytest.mark.parametrize(
    ("policy", "gone", "told"),
    [
        ("0 0 0", [], "Nothing of experiment 5 was to be deleted; those that would go are in use "
         "or registered, and stay for now."),
        ("0 0 0", [10], "Deleted 1 checkpoint (620 kB) of experiment 5; others that would go are "
         "in use or registered, and stay for now."),
        ("0 0 1", [10], "Deleted 1 checkpoint (620 kB) of experiment 5."),
        ("1 0 1", [], "Nothing of experiment 5 was to be deleted; the policy keeps 2 "
         "checkpoints."),
    ],
)  # fmt: skip
def test_checkpoints_in_use_stay_and_that_is_told(
    master: Master,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    policy: str,
    gone: list[int],
    told: str,
) -> None:
    (tmp_path / "metadata.json").touch()
    here = [checkpoint(i, 0.5, path=str(tmp_path)) for i in (10, 20)]
    others = [checkpoint(30, 0.5, state="DELETED"), checkpoint(40, 0.5, path=str(tmp_path / "x"))]
    monkeypatch.setattr(master, "checkpoints", lambda experiment_id: [*here, *others])
    doomed = [one for one in here if one.steps_completed in gone]
    monkeypatch.setattr(master, "change", lambda request: doomed)
    best, trial_best, latest = policy.split()
    det_experiment(
        f"retention 5 --yes --save-experiment-best {best} --save-trial-best {trial_best} "
        f"--save-trial-latest {latest}"
    )
    assert capsys.readouterr().out.splitlines()[-1] == told


def test_where_no_answer_can_be_given_nothing_is_deleted(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(question: str) -> str:
        raise StdinNotImplementedError("no stdin")

    monkeypatch.setattr("builtins.input", refuse)
    with pytest.raises(UsageError, match="this front end takes no answer; add --yes"):
        det_experiment("delete 5")
    assert not master.asked


def test_changes_come_from_a_file_or_from_the_cell(master: Master, tmp_path: Path) -> None:
    file = tmp_path / "changes.yaml"
    file.write_text("max_restarts: 2\n")
    det_experiment(f"continue 5 --config-file {file} --config max_restarts=3")
    assert master.asked == [(5, {"max_restarts": 3})]
    with pytest.raises(LineError, match="give either --config-file, or YAML below the line"):
        cast(Any, DetMagics()).det_experiment(f"continue 5 --config-file {file}", "a: 1\n")
    with pytest.raises(ConfigError) as caught:
        det_experiment("continue 5 --config odd", "a: [1\n")
    found = said(caught.value.problems)
    assert len(found) == 2
    assert "this is not YAML" in found[0]
    assert found[1].startswith("--config: got 'odd', expected KEY=VALUE")
    assert len(master.asked) == 1


def test_a_cells_yaml_and_the_lines_changes_go_to_a_fork(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = "searcher: {metric: error}\n"
    child = det_experiment("fork 7 --config searcher.max_length.epochs=3 --trial 2", cell)
    assert child.id == 8
    searcher = {"name": "single", "metric": "error", "smaller_is_better": False,
                "max_length": {"epochs": 3}, "source_trial_id": 2}  # fmt: skip
    assert master.asked == [(7, searcher)]
    assert capsys.readouterr().out == "Experiment 8 is a fork of experiment 7.\n"


def test_a_fork_can_queue_though_nothing_can_run_it(master: Master) -> None:
    det_experiment("fork 7")
    assert not master.queues_anyway
    det_experiment("fork 7 --queue-anyway")
    assert master.queues_anyway


def test_a_cells_yaml_goes_to_what_is_continued(master: Master) -> None:
    assert det_experiment("continue 7", "max_restarts: 2\n").id == 7
    assert master.asked == [(7, {"max_restarts": 2})]


def test_the_cell_magic_knows_fork_and_continue(master: Master) -> None:
    magics: Any = DetMagics(shell=None)
    child = magics.det_experiment("fork 7", "max_restarts: 2\n")
    assert child.id == 8
    magics.det_experiment("continue 7", "")
    assert master.asked[1] == (7, {})


def test_slots_queue_and_jobs_show_themselves(master: Master) -> None:
    slots, queue, jobs = det_jupyter.slots(), det_jupyter.queue(), det_jupyter.jobs()
    assert repr(slots).startswith("Pool default (by priority, with preemption)")
    assert slots.view.pools[0].num_free == 4
    assert SENTENCE in repr(queue)
    assert queue.view.queue[0].trial_id == 9
    assert repr(jobs).splitlines()[1].split()[1] == "3"
    assert jobs.view[0].name == "resnet"
    for shown in (slots, queue, jobs):
        assert shown._repr_html_().startswith("<div>")


def test_to_show_an_experiment_is_to_return_its_handle(master: Master) -> None:
    assert det_experiment("show 7").id == 7


@pytest.mark.parametrize(
    ("state", "running", "left"),
    [
        (
            State.PAUSING,
            "pausing",
            "pausing",
        ),
        (State.PAUSED, "paused", "paused"),
        (State.STOPPING_KILLED, "being killed", "being killed"),
        (State.STOPPING_CANCELED, "stopping", "stopping"),
        (State.ACTIVE, "running", "queued"),
    ],
)
def test_a_state_is_told_with_what_is_still_waited_for(
    state: State, running: str, left: str
) -> None:
    assert describe_state(experiment(trial(), state=state)) == running
    assert describe_state(experiment(trial(allocation=None), state=state)) == left


@pytest.mark.parametrize("state", State)
def test_waiting_for_an_experiment_succeeds_only_if_it_completes(state: State) -> None:
    view = experiment(trial(allocation=None), state=state)
    if state is State.COMPLETED:
        assert describe_end(view) == "Experiment 7 “digits”: completed"
    else:
        with pytest.raises(Conflict, match=f"Experiment 7 “digits”: {state_word(view)}"):
            describe_end(view)


def test_waiting_for_what_is_over_returns_at_once_and_says_why_it_cannot(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    master.view = experiment(trial(allocation=None), state=State.COMPLETED)
    ended = master.view.model_copy(update={"ended_at": CREATED_AT + 9})
    documents = FakeDocuments(experiment=[state_of(ended)])
    monkeypatch.setattr(master, "document", documents.document, raising=False)
    det_experiment("wait 7")
    assert capsys.readouterr().out == "Experiment 7 “digits”: completed\n"
    documents.versions = {"experiment": [Conflict("its metrics cannot be read")]}
    with pytest.raises(Conflict, match="its metrics cannot be read"):
        det_experiment("wait 7")


def test_names_descriptions_and_labels_are_set_by_lines(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = master.view.config | {"name": "wide", "labels": ["good"], "description": "So."}
    master.view = master.view.model_copy(update={"name": "wide", "config": config})
    det_experiment("set 7 --name 'wide nets' --description 'As on Monday.' --priority 3")
    det_experiment("label add 7 good wide")
    det_experiment("label remove 7 wide")
    assert master.asked == [
        (7, {"name": "wide nets", "description": "As on Monday."}),
        (7, {"priority": 3}),
        (7, {"add_labels": ["good", "wide"]}),
        (7, {"remove_labels": ["wide"]}),
    ]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Experiment 7: renamed to “wide”, description changed."
    assert lines[2:] == ["Experiment 7: labels good."] * 2


def test_changes_of_a_search_are_below_its_configuration(
    master: Master, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = {"max_trials": 4, "max_length": None}, {"max_trials": 6}
    length = {"max_length": {"epochs": 2}}
    changes = [SearchChangeView(at=CREATED_AT, before=before, after=after | length)]
    master.view = master.view.model_copy(update={"search_changes": changes})
    config = EffectiveConfig(yaml="name: digits\n", config={}, origins={})
    monkeypatch.setattr(master, "effective_config", lambda experiment_id: config, raising=False)
    det_experiment("config 7")
    assert capsys.readouterr().out.splitlines() == [
        "name: digits",
        f"Changed {date(CREATED_AT)}: max_trials 4 → 6, max_length - → {{epochs: 2}}",
    ]


def test_tables_and_code_are_written_by_lines(
    master: Master,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    curve = Curve(trial_id=1, group="batches", name="loss", steps=[1], values=[0.5], times=[9.0])
    code = {"Cell In[5]": "class T: ...\n"}
    monkeypatch.setattr(
        master, "curves", lambda i, max_points=None, repeats=False: [curve], raising=False
    )
    monkeypatch.setattr(master, "code", lambda i: code, raising=False)
    table, folder = tmp_path / "a.csv", tmp_path / "code"
    det_experiment(f"export 7 --to {table}")
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["metric"], row["value"]) for row in rows] == [("loss", "0.5")]
    det_experiment(f"export 7 --to {table} --what trials")
    assert next(csv.DictReader(table.read_text().splitlines()))["hparams.lr"] == "0.05"
    det_experiment("code 7")
    det_experiment(f"code 7 --to {folder}")
    assert capsys.readouterr().out.splitlines() == [
        f"Wrote 1 row, metrics of experiment 7, to {table}.",
        f"Wrote 1 row, trials of experiment 7, to {table}.",
        "# ── Cell In[5]",
        "class T: ...",
        f"Wrote {folder / 'cell_5.py'}",
    ]
