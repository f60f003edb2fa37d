"""Ranks of a trial: when there are any, and what code in one returns."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.client import Client, ExecutionError, Trial
from det_jupyter.client.handles import rank as module
from det_jupyter.client.handles.rank import Rank, _result
from det_jupyter.contract.messages import (
    AgentStatus,
    AllocationState,
    AllocationView,
    State,
    TrialView,
)
from det_jupyter.errors import Conflict
from tests.unit.view.view_samples import allocation, trial


def handle_on(view: TrialView, agents: Sequence[AgentStatus] = ()) -> Trial:
    class Master:
        def trial(self, trial_id: int) -> TrialView:
            return view

        def agents(self) -> Sequence[AgentStatus]:
            return agents

    return Trial(cast("Client", Master()), view.id, experiment_of=str)


def output(kind: str, **content: Any) -> dict[str, Any]:
    return {"msg_type": kind, "content": content}


def test_a_running_trial_has_its_ranks() -> None:
    ranks = handle_on(trial(allocation=allocation())).ranks
    assert [rank.view.rank for rank in ranks] == [0, 1]
    assert repr(ranks[1]).startswith("Rank 1 of trial 1 (pid ")


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (trial(allocation=None, state=State.COMPLETED), "it is over"),
        (trial(allocation=None, state=State.PAUSED), "it is paused"),
        (trial(allocation=None, state=State.ACTIVE), "its ranks are starting; try again"),
        (trial(allocation=allocation(AllocationState.QUEUED), waiting_for="needs 4 slots"),
         "needs 4 slots"),
    ],
)  # fmt: skip
def test_a_trial_without_ranks_says_why(view: TrialView, why: str) -> None:
    with pytest.raises(Conflict, match=f"trial 1 has no ranks now: {why}"):
        _ = handle_on(view).ranks


@pytest.mark.parametrize(
    ("text", "value"),
    [("[1, 2.5]", [1, 2.5]), ("'a'", "a"), ("tensor(3.)", "tensor(3.)"), ("f(", "f(")],
)
def test_plain_values_are_returned_as_values_and_others_as_their_text(
    text: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [
        output("stream", text="printed\n"),
        output("execute_result", data={"text/plain": text}),
    ]
    assert _result({"status": "ok"}, outputs, rank=1) == value
    assert capsys.readouterr().out == "printed\n"


def test_an_error_of_the_code_is_raised_with_its_rank() -> None:
    content = {"status": "error", "ename": "NameError", "evalue": "x is not defined"}
    with pytest.raises(ExecutionError, match="rank 1: NameError: x is not defined"):
        _result(content, [], rank=1)


def test_code_that_is_no_text_is_refused() -> None:
    rank = handle_on(trial(allocation=allocation())).ranks[0]
    assert isinstance(rank, Rank)
    with pytest.raises(TypeError, match="expected Python code as a string"):
        rank.execute(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("connected", "problem", "why"),
    [
        (False, "the cable is out", r"agent b is not connected \(the cable is out\)"),
        (False, "", "agent b is not connected"),
        (True, "", "its kernel is not up yet"),
    ],
)
def test_rank_on_another_computer_that_cannot_be_reached_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connected: bool, problem: str, why: str
) -> None:
    monkeypatch.setattr(module, "_KERNEL_UP_S", 0.05)
    monkeypatch.setattr(module, "_EXAMINED_S", 0.02)
    agent = AgentStatus(
        id="b",
        hostname="node-b",
        pid=1,
        pool="default",
        connected=connected,
        problem=problem,
        slots=[],
    )
    rank = handle_on(trial(allocation=elsewhere(tmp_path)), [agent]).ranks[0]
    assert repr(rank) == "Rank 0 of trial 1 (pid 4200 on node-b, cpu)"
    with pytest.raises(Conflict, match=f"^rank 0 of trial 1 does not answer: {why}$"):
        rank.execute("1")


def test_rank_that_has_ended_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_EXAMINED_S", 0.02)
    view = trial(allocation=elsewhere(tmp_path))
    rank = handle_on(view).ranks[0]
    view.allocation = None
    with pytest.raises(Conflict, match=r"does not answer: it has ended$"):
        rank.execute("1")


def test_rank_is_lost_when_its_file_is_gone_or_the_master_says_that_it_has_ended(
    tmp_path: Path,
) -> None:
    def nothing(**_: float) -> None:
        raise queue.Empty

    view = trial(allocation=allocation())
    rank = handle_on(view).ranks[0]  # its process is not seen from here
    with pytest.raises(queue.Empty):
        rank._next_message(nothing, time.monotonic())
    view.allocation = None
    with pytest.raises(Conflict, match=r"does not answer: it has ended$"):
        rank._next_message(nothing, time.monotonic() + 60)
    remote = handle_on(trial(allocation=elsewhere(tmp_path))).ranks[0]
    with pytest.raises(Conflict, match=r"does not answer: the connection to it was lost$"):
        remote._next_message(nothing, time.monotonic() + 60)
    Path(remote.connection_file).touch()
    with pytest.raises(queue.Empty):
        remote._next_message(nothing, time.monotonic())


def elsewhere(tmp_path: Path) -> AllocationView:
    held = allocation()
    file = str(tmp_path / "none.json")
    changes = {"is_remote": True, "host": "node-b", "connection_file": file}
    ranks = [rank.model_copy(update=changes) for rank in held.ranks]
    return held.model_copy(update={"ranks": ranks, "agent_ids": ["b", "b"]})
