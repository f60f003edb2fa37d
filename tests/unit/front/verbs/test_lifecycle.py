"""Verbs for several experiments: one request each, refusals at the end."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import Archive, Cancel, Delete, State
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.errors import Conflict, DetError, MasterUnreachable, NotFound, UsageError
from det_jupyter.front.verbs.experiment_list import numbers_of, with_existing
from det_jupyter.front.verbs.grammar import Call
from det_jupyter.front.verbs.lifecycle import archive, command, confirm, delete
from tests.unit.front.verbs.finding_samples import rows_found
from tests.unit.view.view_samples import checkpoint, experiment, trial


class Master:
    """Has these experiments; refuses changes of those in `refused`."""

    def __init__(self, *numbers: int, refused: dict[int, DetError] | None = None) -> None:
        self.numbers, self.refused = numbers, refused or {}
        self.changes: list[Any] = []

    def find(self, query: Any) -> Any:
        if query.limit is None:
            return rows_found(*self.numbers)
        newest = sorted(self.numbers, reverse=True)
        return rows_found(*newest[: query.limit], num_more=max(0, len(newest) - query.limit))

    def experiment(self, number: int) -> Any:
        if number not in self.numbers:
            raise NotFound(f"there is no experiment {number}", what="experiment", number=number)
        return experiment(trial(), id=number, name=f"net {number}", state=State.PAUSED)

    def checkpoints(self, number: int) -> Any:
        return [checkpoint(10, 0.5), checkpoint(20, 0.5, state="DELETED")]

    def change(self, change: Any) -> Any:
        if change.experiment_id in self.refused:
            raise self.refused[change.experiment_id]
        changed = self.experiment(change.experiment_id)
        self.changes.append(change)
        return changed


def call(master: Master, verb: str, *ids: range, yes: bool = True) -> Call:
    options = argparse.Namespace(
        verb=SimpleNamespace(name=verb), ids=[list(ids)], yes=yes, words=f"det e {verb}"
    )
    return Call(options=options, client=cast(Client, master), experiment=cast(Any, None))


def one(number: int) -> range:
    return range(number, number + 1)


def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Answer each question with no, and return the questions, as they come."""
    asked: list[str] = []

    def answer(text: str) -> str:
        asked.append(text)
        return "no"

    monkeypatch.setattr("builtins.input", answer)
    return asked


def test_each_experiment_is_changed_and_has_a_line() -> None:
    master = Master(1, 2, 3)
    said = command(call(master, "cancel", one(3), one(1), one(3)))
    assert master.changes == [Cancel(experiment_id=3), Cancel(experiment_id=1)]
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "Experiment 3 “net 3”",
        "Experiment 1 “net 1”",
    ]


@pytest.mark.parametrize(
    ("verb", "said"), [("archive", "hidden from lists"), ("unarchive", "shown in lists again")]
)
def test_an_archived_experiment_is_hidden_and_shown_again(verb: str, said: str) -> None:
    assert archive(call(Master(5), verb, one(5))) == f"Experiment 5 “net 5”: {said}."


def test_a_refusal_holds_up_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    master = Master(1, 2, 3, 4, refused={2: Conflict("2 is over"), 3: Conflict("3 is over")})
    with pytest.raises(Conflict) as caught:
        archive(call(master, "archive", range(1, 5)))
    assert str(caught.value) == (
        "2 of 4 experiments refused; the others are done:\n  2 is over\n  3 is over"
    )
    assert [change.experiment_id for change in master.changes] == [1, 4]
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_where_all_are_refused_none_is_said_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    master = Master(1, 2, refused={1: Conflict("no"), 2: Conflict("no")})
    with pytest.raises(Conflict, match=r"^2 of 2 experiments refused:\n  no\n  no$"):
        archive(call(master, "archive", range(1, 3)))
    assert capsys.readouterr().out == ""


def test_the_refusal_of_one_is_raised_as_it_is() -> None:
    error = Conflict("experiment 1 is over")
    with pytest.raises(Conflict) as caught:
        archive(call(Master(1, refused={1: error}), "archive", one(1)))
    assert caught.value is error


def test_without_a_master_the_rest_is_not_asked(capsys: pytest.CaptureFixture[str]) -> None:
    master = Master(1, 2, 3, refused={2: MasterUnreachable("stopped")})
    with pytest.raises(MasterUnreachable):
        archive(call(master, "archive", range(1, 4)))
    assert master.changes == [Archive(experiment_id=1)]
    assert capsys.readouterr().out.startswith("Experiment 1 ")


def test_what_is_deleted_is_named_with_what_it_has() -> None:
    master = Master(1, 2)
    said = delete(call(master, "delete", one(1)))
    assert master.changes == [Delete(experiment_id=1)]
    size = checkpoint(10, 0.5).size_bytes
    assert size > 0
    assert said.startswith("Deleting experiment 1 “net 1” with 1 trial, 1 checkpoint (")
    assert said.endswith("), all metrics and logs.")


def test_of_several_to_delete_those_that_there_are_go(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(monkeypatch)
    master = Master(1, 2)
    said = delete(call(master, "delete", one(1), one(9), one(2), yes=False))
    assert (said, master.changes) == ("Nothing is deleted; all stay.", [])
    [question] = asked
    assert question.splitlines()[-1] == ("Delete these 2 experiments? It cannot be undone. [y/N] ")
    with pytest.raises(Conflict, match="1 of 3 experiments refused; the others are done"):
        delete(call(master, "delete", one(1), one(9), one(2)))
    assert [change.experiment_id for change in master.changes] == [1, 2]


def test_where_none_is_an_experiment_the_first_is_the_error() -> None:
    with pytest.raises(NotFound, match="there is no experiment 8"):
        delete(call(Master(1), "delete", one(8), one(9)))


def test_twenty_are_named_in_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = questions(monkeypatch)
    delete(call(Master(*range(1, 24)), "delete", range(1, 24), yes=False))
    lines = asked[0].splitlines()
    assert len(lines) == 22
    assert lines[20] == "  … and 3 more"


@pytest.mark.parametrize(
    ("answer", "is_so"), [("y", True), (" YES ", True), ("", False), ("n", False), ("yep", False)]
)
def test_only_a_yes_is_a_yes(monkeypatch: pytest.MonkeyPatch, answer: str, is_so: bool) -> None:
    monkeypatch.setattr("builtins.input", lambda text: answer)
    assert confirm("Delete it?", argparse.Namespace(yes=False)) is is_so


@pytest.mark.parametrize("error", [EOFError, NotImplementedError])
def test_a_front_end_that_takes_no_answer_is_told_what_to_add(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def no_input(text: str) -> str:
        raise error

    monkeypatch.setattr("builtins.input", no_input)
    with pytest.raises(
        UsageError, match="det e delete: this front end takes no answer; add --yes"
    ):
        confirm("Delete it?", argparse.Namespace(yes=False, words="det e delete"))


def test_of_a_range_those_count_that_there_are_and_a_number_always_does() -> None:
    master = Master(2, 4, 6)
    assert numbers_of(call(master, "kill", range(1, 5), one(9), range(4, 7))) == [2, 4, 9, 6]
    assert numbers_of(call(master, "kill", one(7))) == [7]
    with pytest.raises(NotFound, match=r"of 10-19, 30-31; there are: 2, 4, 6$"):
        numbers_of(call(master, "kill", range(10, 20), range(30, 32)))


@pytest.mark.parametrize(
    ("numbers", "hint"),
    [
        ((), "there are none yet"),
        ((3, 1), "there are: 1, 3"),
        (range(1, 9), "the newest are: 4, 5, 6, 7, 8"),
    ],
)
def test_an_error_about_a_number_names_those_that_there_are(numbers: Any, hint: str) -> None:
    text = "there is no experiment 99; it may have been deleted"
    error = NotFound(text, what="experiment", number=99)
    found = with_existing(error, cast(Client, Master(*numbers)), NOTEBOOK)
    assert str(found) == f"there is no experiment 99; {hint}"


def test_other_errors_stay_as_they_are() -> None:
    master = cast(Client, Master(1))
    error = NotFound("there is no trial 3 in experiment 1")
    assert with_existing(error, master, NOTEBOOK) is error
    error = NotFound("there is no trial 3", what="trial", number=3)
    for reader, line in ((NOTEBOOK, "`%det task list`"), (SHELL, "`det task list`")):
        found = with_existing(error, master, reader)
        assert str(found).startswith(f"there is no trial 3; {line} shows those that run")
