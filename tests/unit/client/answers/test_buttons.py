"""Buttons and questions of a page that act on ranks: profiles, stacks, commands, TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from det_jupyter.client.answers import answering
from det_jupyter.client.answers.answering import answer, command_answer
from det_jupyter.client.handles.rank import Rank
from det_jupyter.client.handles.trial import Trial
from det_jupyter.client.handles.trial_orders import Trace, Traces
from det_jupyter.contract.host.tensorboards import Board
from det_jupyter.contract.messages import Reason, Remedy, RemedyVerb, State, TraceView
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.errors import Conflict
from det_jupyter.view.making.waits import _BUTTONS
from tests.unit.client.handles.test_experiment import Wired
from tests.unit.view.view_cluster_samples import cluster, entry
from tests.unit.view.view_samples import allocation, experiment, trial


def wired_with(own: Any = None, **changes: Any) -> Wired:
    own = own or trial(allocation=allocation())
    wired = Wired(experiments=experiment(own, **changes))
    wired.answers["1"] = own
    return wired


def asked(wired: Wired, **question: Any) -> dict[str, Any]:
    return answer(wired.client, 7, {"request": 5, **question})


def posted(wired: Wired) -> list[tuple[str, Any]]:
    return [(path, body) for method, path, body in wired.asked if method == "POST"]


@pytest.mark.parametrize("command", ["kill", "pause", "activate"])
def test_a_verb_is_one_change(command: str) -> None:
    wired = wired_with()
    command_answer(wired.client, 7, {"command": command})
    assert [path for path, _ in posted(wired)] == [f"experiments/7/{command}"]


REMEDIES = [
    Remedy(verb="wait", text="wait"),
    Remedy(verb="set", target=[3], values={"priority": 5}, text="let it go first"),
]
OFFERED = Reason(trial_id=1, cause="slots", sentence="it waits", remedies=REMEDIES)


def test_a_remedy_is_carried_out_while_it_is_offered() -> None:
    wired = wired_with()
    wired.answers["cluster"] = cluster(queue=[entry(1, experiment_id=7, reason=OFFERED)])
    command_answer(wired.client, 7, {"command": REMEDIES[1].id})
    [(path, body)] = posted(wired)
    assert (path, body["priority"]) == ("experiments/3/resources", 5)
    wired.answers["cluster"] = cluster(queue=[entry(1, experiment_id=8, reason=OFFERED)])
    with pytest.raises(Conflict, match="the queue has changed meanwhile"):
        command_answer(wired.client, 7, {"command": REMEDIES[1].id})
    assert len(posted(wired)) == 1


@pytest.mark.parametrize("verb", sorted(set(get_args(RemedyVerb)) - _BUTTONS.keys()))
def test_remedy_without_a_button_is_for_the_user_to_carry_out(verb: RemedyVerb) -> None:
    wired = wired_with()
    remedy = Remedy(verb=verb, target=[3], text="end it")
    reason = OFFERED.model_copy(update={"remedies": [remedy]})
    wired.answers["cluster"] = cluster(queue=[entry(1, experiment_id=7, reason=reason)])
    with pytest.raises(Conflict, match="typed, or done by hand"):
        command_answer(wired.client, 7, {"command": remedy.id})
    assert posted(wired) == []


AT_ONCE = Remedy(verb="pause_at_once", target=[7], text="").id
LEAVING = Leaving(experiment_id=7, then="queues")


@pytest.mark.parametrize(
    ("own", "state", "is_paused"),
    [
        (trial(), State.ACTIVE, False),
        (trial(leaving=LEAVING), State.ACTIVE, True),
        (trial(), State.PAUSING, True),
        (trial(), State.PAUSED, True),
    ],
)
def test_ranks_that_do_not_leave_are_ended_at_once(
    own: Any, state: State, is_paused: bool
) -> None:
    wired = wired_with(own, state=state)
    if is_paused:
        command_answer(wired.client, 7, {"command": AT_ONCE})
        assert posted(wired) == [("experiments/7/pause", {"at_once": True})]
    else:
        with pytest.raises(Conflict, match="its ranks do not leave any more"):
            command_answer(wired.client, 7, {"command": AT_ONCE})
        assert posted(wired) == []


@pytest.mark.parametrize(("rank", "ranks"), [(None, [0, 1]), (1, [1]), (9, [])])
def test_stacks_of_the_ranks_that_are_asked_for_are_told(
    rank: int | None, ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stack(one: Rank) -> str:
        if one.view.rank == 0:
            raise Conflict("it does not answer")
        return "x" * 10**6 + "in forward"

    monkeypatch.setattr(Rank, "stack", stack)
    found = asked(wired_with(), type="stacks", trial_id=1, rank=rank)
    assert found["error"] == ""
    assert [each["rank"] for each in found["stacks"]] == ranks
    for each in found["stacks"]:
        if each["rank"] == 0:
            assert (each["error"], each["stack"]) == ("it does not answer", "")
        else:
            assert each["stack"].endswith("in forward")
            assert len(each["stack"]) == answering._MAX_STACK


@pytest.mark.parametrize(
    ("question", "given"),
    [({}, {}), ({"steps": 3, "ranks": [1]}, {"steps": 3, "ranks": [1]}), ({"steps": None}, {})],
)
def test_a_profile_is_recorded_and_its_traces_are_named(
    question: dict[str, Any],
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "trace.json.gz"
    file.write_bytes(b"12345")
    views = [
        TraceView(rank=0, error="no room"),
        TraceView(rank=1, path=str(file), size_bytes=5, first=3, steps=2),
    ]
    asked_for: list[Any] = []

    def profile(own: Trial, **how: Any) -> Traces:
        asked_for.append((own.id, how))
        return Traces(Trace(view) for view in views)

    monkeypatch.setattr(Trial, "profile", profile)
    found = asked(wired_with(), type="profile", trial_id=1, **question)
    assert (found["path"], found["size_bytes"], found["error"]) == (str(file), 5, "")
    assert [line.partition(":")[0] for line in found["text"].splitlines()] == ["Rank 0", "Rank 1"]
    assert len(found["traces"]) == 2
    assert asked_for == [(1, given)]
    file.unlink()
    assert "no trace: no room" in asked(wired_with(), type="profile", trial_id=1)["error"]
    gone = asked(wired_with(), type="profile", trial_id=8)
    assert gone["error"] == "experiment 7 has no trial 8"


def test_the_tensorboard_of_an_experiment_is_named_with_a_way_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = Board(
        id=1, pid=1, birth="", url="http://localhost:6006/", experiments=[7], trials=[],
        logdir="", started_at=0.0,
    )  # fmt: skip
    monkeypatch.setattr(answering, "board_of", lambda number: board)
    monkeypatch.setattr(answering, "gethostname", lambda: "here")
    found = asked(wired_with(), type="tensorboard")
    assert found["url"] == "http://localhost:6006/"
    assert found["tunnel"] == "ssh -NL 6006:localhost:6006 here"


def test_a_cell_without_the_callback_is_shown_with_it_or_told_to_be_unclear() -> None:
    cell = "def fit(core_context):\n    trainer = Trainer(model)\n    trainer.train()\n"
    wired = wired_with(trial(plain_trainer="transformers.Trainer"))
    wired.answers["code"] = {"files": {"In [1]": "x = 1\n", "In [2]": cell}}
    found = asked(wired, type="callback")
    assert "where to add it in DigitsTrial is unclear; " in found["error"]


def test_a_cell_is_shown_as_it_is_and_with_the_callback() -> None:
    imports = "from transformers import Trainer\n"
    cell = f"{imports}def DigitsTrial(hparams):\n    t = Trainer(model)\n    t.train()\n"
    wired = wired_with(trial(plain_trainer="transformers.Trainer"))
    wired.answers["code"] = {"files": {"In [1]": "x = 1\n", "In [2]": cell}}
    found = asked(wired, type="callback")
    assert (found["before"], found["error"]) == (cell, "")
    assert "Trainer(model, callbacks=[det])" in found["after"]
