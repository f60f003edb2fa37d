"""Completion of our magics' lines, and of the YAML below them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from IPython.core.completer import CompletionContext

from det_jupyter.client import Client
from det_jupyter.contract.messages import ExperimentQuery, ExperimentRows
from det_jupyter.errors import MasterUnreachable
from det_jupyter.front.notebook import extension
from det_jupyter.front.notebook.complete import lines
from det_jupyter.front.notebook.complete.lines import Lookups
from det_jupyter.front.notebook.handles import connection
from tests.unit.front.verbs.finding_samples import rows_found


class NoMaster(Lookups):
    """Knows some words without asking anybody."""

    def __init__(self) -> None:
        super().__init__(lambda: None)

    def words(self, question: str, ask: Any) -> list[str]:
        return {
            "templates": ["cifar", "digits"],
            "experiments": ["12", "7"],
            "agents": ["left", "right"],
            "pools": ["default", "night"],
            "trials": ["9", "11"],
            "metrics of Cat": ["accuracy", "error"],
        }.get(question, [])


@pytest.fixture(autouse=True)
def _no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_lookups", NoMaster)


def offered(text: str, token: str | None = None) -> list[str]:
    """Return what is offered at the end of `text`; `token` is what IPython takes for the word."""
    cell = text.split("\n")
    line = cell[-1]
    if token is None:
        token = line.split(" ")[-1].rpartition("-")[2] if line else ""
    context = CompletionContext(
        token=token,
        full_text=text,
        cursor_position=len(line),
        cursor_line=len(cell) - 1,
        limit=500,
    )
    found = extension.match_det_experiment(context)
    return [each.text for each in found["completions"]]


def test_the_verbs_of_a_line_are_offered() -> None:
    assert offered("%det_experiment ch") == ["change"]
    assert set(offered("%det_experiment ")) >= {"list", "trials", "config", "change", "?"}
    assert set(offered("%det ")) >= {"slots", "job", "pool", "queue", "why", "template", "tpl"}
    offers = {"list", "ls", "move", "update", "u", "update-batch", "--help"}
    assert set(offered("%det job ")) == offers
    assert offered("%det a dis") == ["disable"]
    assert set(offered("%det  template ")) >= {"list", "show", "set", "delete"}


def test_numbers_names_and_options_follow_their_verbs() -> None:
    assert offered("%det_experiment show ") == ["12", "7", "--help"]
    assert offered("%det_experiment change 7 --max-t", "t") == ["trials"]
    assert offered("%det template show c") == ["cifar"]
    assert offered("%%det template set d") == ["digits"]
    assert offered("%%det_experiment --template ") == ["cifar", "digits"]
    assert "preview" in offered("%%det_experiment --slots 2 --p", "p")
    assert offered("%det_experiment nonsense ") == []


def test_agents_pools_trials_and_other_experiments_are_offered() -> None:
    assert offered("%det slot enable ") == ["left", "right", "--help"]
    assert offered("%det slot disable left ") == ["--drain", "--help"]
    assert offered("%det job move 5 --ahead-of ") == ["12", "7"]
    assert offered("%det job list -p ") == ["default", "night"]
    assert offered("%det why ") == ["9", "11", "--experiment", "--help"]
    assert offered("%det_experiment set 7 --pool n", "n") == ["night"]
    assert offered("%%det_experiment f") == ["fork"]
    assert offered("%%det_experiment fork ")[:2] == ["12", "7"]
    assert offered("%%det_experiment\nresources: {resource_pool: ") == ["default", "night"]
    assert offered("%%det_experiment fork 7\nsear") == ["searcher: "]


def test_options_of_the_logs_and_their_choices_are_offered() -> None:
    assert set(offered("%det_experiment logs 7 --", "")) >= {
        "trial", "rank", "tail", "since", "level", "search", "follow"
    }  # fmt: skip
    assert offered("%det_experiment logs 7 --level w") == ["warning"]


def test_other_cells_are_left_alone() -> None:
    assert offered("x = 1\nsea") == []
    assert offered("%details ") == []
    assert offered("%%det_experimental\nsea") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sear", ["searcher: "]),
        ("searcher:\n  div", ["divisor: "]),
        ("searcher: {name: adaptive_asha, max_le", ["max_length: "]),
        ("searcher:\n  name: adap", ["adaptive_asha"]),
        ("checkpoint_policy: ", ["best", "all", "none"]),
        ("perform_initial_validation: t", ["true"]),
        ("searcher:\n  max_length: {ep", ["epochs: "]),
        ("hyperparameters:\n  lr: {type: ", ["const", "int", "double", "log", "categorical"]),
        ("hyperparameters:\n  lr:\n    type: log\n    base: 10\n    m", ["minval: ", "maxval: "]),
        ("hyperparameters:\n  ", []),
        ("entrypoint: Cat\nsearcher: {metric: ", ["accuracy", "error"]),
        ("name: x\nna", []),  # given already
    ],
)
def test_yaml_is_completed_by_where_it_is(text: str, words: list[str]) -> None:
    found = offered(f"%%det_experiment\n{text}")
    assert set(found) == set(words)


def test_a_template_is_completed_like_a_configuration() -> None:
    assert offered("%%det template set x\nresources: {slots_p") == ["slots_per_trial: "]


def test_the_keys_of_a_searcher_are_those_of_its_name() -> None:
    keys = offered("%%det_experiment\nsearcher: {name: single, ")
    assert "max_length: " in keys
    assert "max_rungs: " not in keys


def test_a_slow_master_does_not_hold_up_the_prompt() -> None:
    may_answer = threading.Event()

    def ask(client: Client) -> list[str]:
        may_answer.wait(600)
        return ["late"]

    lookups = Lookups(lambda: cast("Client", object()))
    assert lookups.words("q", ask) == []
    may_answer.set()
    (asking,) = (each for each in threading.enumerate() if each.name == "det-complete")
    asking.join()
    assert lookups.words("q", ask) == ["late"]


def test_an_answer_is_asked_for_again_when_it_is_some_seconds_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, answers = [100.0], ["first", "second"]
    monkeypatch.setattr(lines, "time", SimpleNamespace(monotonic=lambda: now[0]))
    lookups = Lookups(lambda: cast("Client", object()))

    def words(question: str) -> list[str]:
        found = lookups.words(question, lambda client: [answers.pop(0)])
        for thread in threading.enumerate():
            if thread.name == "det-complete":
                assert thread.daemon
                thread.join()
        return found or lookups.words(question, lambda client: [])

    assert words("a") == ["first"]
    now[0] += 4.9
    assert words("a") == ["first"]
    assert words("b") == ["second"], "each question has an age of its own"
    answers.append("third")
    now[0] += 0.2
    words("a")
    assert words("a") == ["third"]
    assert answers == []


def test_a_tab_starts_no_master(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def client() -> str:
        asked.append("client")
        return "client"

    monkeypatch.setattr(connection, "client", client)
    monkeypatch.setattr(lines, "find_master", lambda: None)
    assert lines._running_master() is None
    assert asked == []
    monkeypatch.setattr(lines, "find_master", object)
    assert cast(Any, lines._running_master()) == "client"

    def refuse() -> None:
        raise MasterUnreachable("of another computer")

    monkeypatch.setattr(lines, "find_master", refuse)
    assert lines._running_master() is None


def test_a_master_that_has_just_ended_is_no_error() -> None:
    def ask(client: Client) -> list[str]:
        raise MasterUnreachable("gone")

    assert Lookups(lambda: cast("Client", object())).words("q", ask) == []
    assert Lookups(lambda: None).words("q", lambda client: ["never"]) == []


def test_metrics_come_from_the_experiments_of_the_class() -> None:
    from det_jupyter.contract.messages import Curve
    from det_jupyter.front.notebook.complete.lines import metric_names

    class Master:
        def find(self, query: ExperimentQuery) -> ExperimentRows:
            assert query.archived
            return rows_found(7, entrypoint="Cat", metric="accuracy")

        def curves(self, experiment_id: int, *, max_points: int) -> list[Curve]:
            groups = {"validation": "loss", "training": "lr"}
            return [Curve(trial_id=1, group=g, name=n, steps=[], values=[], times=[])
                    for g, n in groups.items()]  # fmt: skip

    client = cast("Client", Master())
    assert metric_names(client, "Cat") == ["accuracy", "loss"]
    assert metric_names(client, "Dog") == []
