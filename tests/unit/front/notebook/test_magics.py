"""What the notebook says: where problems are, how far a wait is, what is missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, cast

import pytest

from det_jupyter.client import Client, Trial
from det_jupyter.client.experiment import Experiment
from det_jupyter.client.submission import find_slot_problems
from det_jupyter.contract.messages import (
    MAX_LINES,
    AgentStatus,
    ExperimentView,
    LogLine,
    LogPage,
    LogQuery,
    PoolStatus,
    SlotStatus,
    State,
    TrialView,
)
from det_jupyter.errors import Conflict, DetError, Problem, WaitTimeout
from det_jupyter.front.notebook import extension
from det_jupyter.front.notebook.complete.magic_parsers import cell_parser, line_parser
from det_jupyter.front.notebook.handles import experiment_handles, progress
from det_jupyter.front.notebook.handles.experiment_handles import NotebookExperiment
from det_jupyter.front.notebook.magics import DetMagics
from det_jupyter.front.notebook.submit.checks import find_class_problems
from det_jupyter.view.live import LiveExperiment
from tests.problems import said
from tests.unit.view.view_samples import experiment, slot, trial


def pool(*sizes: int, name: str = "default", connected: bool = True) -> PoolStatus:
    agents = [
        AgentStatus(
            id=f"with-{size}", hostname="here", pool=name, connected=connected,
            slots=[SlotStatus(slot=slot(i), state="free") for i in range(size)],
        )
        for size in sizes
    ]  # fmt: skip
    return PoolStatus(
        name=name, policy="priority", preemption=False, agents=agents, num_slots=sum(sizes),
        num_free=sum(sizes), num_waiting=0,
    )  # fmt: skip


class Master:
    """Answers as the master does."""

    def __init__(
        self, *, view: TrialView | None = None, whole: ExperimentView | None = None, lines: int = 0
    ) -> None:
        self.view = view
        self.whole = whole
        self.lines = [
            LogLine(id=i + 1, at=0.0, trial_id=1, run=1, rank=0, text=str(i)) for i in range(lines)
        ]

    def trial(self, trial_id: int) -> TrialView | None:
        return self.view

    def experiment(self, experiment_id: int) -> ExperimentView | None:
        return self.whole

    def logs(self, trial_id: int, query: LogQuery) -> LogPage:
        found = [line for line in self.lines if line.id > query.after]
        num = MAX_LINES if query.tail is None else min(query.tail, MAX_LINES)
        page = found[:num] if query.tail is None else found[len(found) - num :]
        last_id = page[-1].id if page else query.after
        return LogPage(lines=page, total=len(found), last_id=last_id, is_over=True)

    def as_client(self) -> Client:
        return cast("Client", self)


def test_help_shows_both_magics_as_they_are_typed() -> None:
    text = line_parser().format_help()
    assert "as a cell magic (%%det_experiment)" in text
    assert "%%%" not in text
    assert "--allow-large" in text
    assert cell_parser().format_help().startswith("%%det_experiment [options]")


IMPOSSIBLE = (
    "resources.slots_per_trial: got 5, but pool default has 1 agent with 4 slots and 1 agent with "
    "2 slots; values that can run: 1 to 4"
)


class Pools:
    """Says which sizes can run, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str, bool]] = []

    def pools(self) -> list[PoolStatus]:
        return [pool(16, name="big"), pool(4, 2)]

    def find_impossibility(
        self, slots: int, *, pool: str, is_single_agent: bool
    ) -> Problem | None:
        self.asked.append((slots, pool, is_single_agent))
        return Problem("", IMPOSSIBLE) if slots == 5 and not pool else None

    def problems_of(self, queue_anyway: bool = False, **resources: Any) -> list[str]:
        """Return what is told of an experiment that asks for this."""
        client = cast("Client", self)
        return said(
            find_slot_problems({"resources": resources}, client, queue_anyway=queue_anyway)
        )


def test_slots_that_a_pool_can_never_give_are_told_before_submission() -> None:
    master = Pools()
    assert master.problems_of(slots_per_trial=5) == [IMPOSSIBLE]
    assert master.problems_of(slots_per_trial=5, resource_pool="big", is_single_node=True) == []
    assert master.problems_of() == []
    assert master.asked == [(5, "", False), (5, "big", True), (1, "", False)]


@pytest.mark.parametrize(
    "resources",
    [{"slots_per_trial": "x"}, {"slots_per_trial": -1}, {"slots_per_trial": True},
     {"resource_pool": 5}],
)  # fmt: skip
def test_what_is_of_the_wrong_kind_is_not_asked_about(resources: dict[str, Any]) -> None:
    master = Pools()
    assert master.problems_of(**resources) == []
    assert not master.asked


def test_a_pool_that_is_not_there_is_told_before_submission() -> None:
    problem = "resources.resource_pool: got 'bg', expected one of big, default"
    assert Pools().problems_of(resource_pool="bg") == [problem]
    assert Pools().problems_of(queue_anyway=True, resource_pool="bg") == [problem]
    assert Pools().problems_of(queue_anyway=True, slots_per_trial=5) == []


def test_an_entrypoint_that_is_not_there_names_those_that_are() -> None:
    (problem,) = find_class_problems("Cat", {"__name__": "__main__", "x": 1})
    assert str(problem) == (
        "entrypoint: 'Cat' is not defined in this notebook; "
        "run the cell that defines it (it defines no class or function yet)"
    )
    assert said(find_class_problems("x", {"x": 1})) == [
        "entrypoint: 'x' is of type int, expected a class or a function"
    ]


@pytest.mark.parametrize(
    ("steps", "fraction", "total"), [(22, 22 / 60, 60), (60, 1.0, 60), (0, 0.0, None)]
)
def test_the_bar_counts_to_the_length_of_the_trial(
    steps: int, fraction: float, total: int | None
) -> None:
    one = trial().model_copy(update={"steps_completed": steps, "progress": fraction})
    # The experiment's own progress comes as an item of its own: it may be older or newer.
    view = experiment(one).model_copy(update={"progress": 0.35})
    view.config["searcher"]["max_length"] = {"epochs": 3}
    assert progress._fields(LiveExperiment(view, [], [], 1))["total"] == total


def test_before_the_first_report_the_bar_has_the_length_that_was_asked_for() -> None:
    one = trial().model_copy(update={"steps_completed": 3, "progress": 0.0})
    view = experiment(one)
    view.config["searcher"]["max_length"] = {"batches": 60}
    assert progress._fields(LiveExperiment(view, [], [], 1))["total"] == 60


def test_the_bar_of_a_script_that_reported_nothing_is_full_when_it_has_completed() -> None:
    ended = {"state": State.COMPLETED, "progress": 1.0}
    view = experiment(trial().model_copy(update=ended | {"steps_completed": 0}))
    view = view.model_copy(update=ended)
    fields = progress._fields(LiveExperiment(view, [], [], 1))
    assert (fields["n"], fields["total"], fields["unit"]) == (1, 1, "trials")


def test_ranks_that_are_not_up_yet_are_said_to_start() -> None:
    view = trial().model_copy(update={"state": State.ACTIVE, "allocation": None})
    with pytest.raises(Conflict, match="its ranks are starting; try again in a moment"):
        _ = Trial(Master(view=view).as_client(), 1).ranks
    paused = view.model_copy(update={"state": State.PAUSED})
    with pytest.raises(Conflict, match="it is paused"):
        _ = Trial(Master(view=paused).as_client(), 1).ranks


@pytest.mark.parametrize(("tail", "num"), [(None, 25_000), (12_000, 12_000), (5, 5), (0, 0)])
def test_logs_are_complete_however_many_there_are(tail: int | None, num: int) -> None:
    lines = Trial(Master(lines=25_000).as_client(), 1).logs(tail=tail)
    assert [line.id for line in lines] == list(range(25_001 - num, 25_001))


def test_a_wait_that_took_too_long_is_an_error_of_ours_and_pythons() -> None:
    assert issubclass(WaitTimeout, DetError)
    assert issubclass(WaitTimeout, TimeoutError)
    assert str(WaitTimeout("it goes on")) == "it goes on"


def test_why_a_trial_ended_early_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view = experiment(trial()).model_copy(
        update={"state": State.COMPLETED, "message": "invalid hyperparameters: lr is too large"}
    )

    def ended(self: Experiment, timeout: float | None = None, **kwargs: Any) -> State:
        return State.COMPLETED

    monkeypatch.setattr(Experiment, "wait", ended)
    state = NotebookExperiment(Master(whole=view).as_client(), 7).wait()
    assert state is State.COMPLETED
    assert capsys.readouterr().out == "invalid hyperparameters: lr is too large\n"


def test_the_extension_loads_where_no_master_can_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registered: list[type] = []

    class Shell:
        Completer = object()

        def register_magics(self, magics: type) -> None:
            registered.append(magics)

    def refuse() -> None:
        raise DetError("cannot use the folder /proc/det")

    monkeypatch.setattr(extension, "spawn_master", refuse)
    extension.load_ipython_extension(cast("Any", Shell()))
    assert registered == [DetMagics]
    assert capsys.readouterr().out == "cannot use the folder /proc/det\n"


@pytest.mark.parametrize("module", extension.IMPORTED_LATER)
def test_what_is_imported_in_the_background_exists(module: str) -> None:
    assert find_spec(f"det_jupyter.front.notebook.{module}") is not None


def test_an_experiment_is_asked_for_by_its_number_or_its_name() -> None:
    with pytest.raises(DetError, match=r"got 1\.5, expected an experiment's number or its name"):
        experiment_handles.experiment(1.5)  # type: ignore[arg-type]
