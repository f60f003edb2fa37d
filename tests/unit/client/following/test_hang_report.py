"""The report on a trial that hangs: a text for people who were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.client.handles.rank import Rank
from det_jupyter.contract.messages import HangReport, RankStall, State
from det_jupyter.errors import Conflict
from tests.unit.client.test_handles import on_trial
from tests.unit.view.view_samples import allocation, trial

WAITING = RankStall(
    rank=0, kind="waits", pid=41, batch=9, collective="all_reduce", evidence=["no CPU for 6 s"],
    begun={8: "all_reduce [4]", 7: "broadcast [4]"}, stack="in forward\nin all_reduce",
)  # fmt: skip
STILL = RankStall(
    rank=1, kind="still", pid=42, call="time.sleep", place="cell 1, line 2", child="in read()"
)
HANGING = allocation(num_ranks=2).model_copy(
    update={"hang": HangReport(since=105.0, at=109.0, ranks=[WAITING, STILL])}
)


def test_a_report_says_where_each_rank_is(tmp_path: Path) -> None:
    _, handle = on_trial(trial(allocation=HANGING))
    report = handle.hang_report(tmp_path / "hang.md")
    assert (tmp_path / "hang.md").read_text(encoding="utf-8") == report
    assert repr(report) == report == handle.hang_report()
    head, sentence, facts, first, nothing, stack, second, more = report.split("\n\n")
    assert head == "# Trial 1 of experiment 7 hangs"
    assert sentence.startswith("rank 1 has been waiting for its data loader")
    assert facts.splitlines()[0].startswith("- found at ")
    assert facts.splitlines()[-2:] == ["- 2 ranks, 58 steps completed", "- backend: gloo"]
    assert first == "## Rank 0 waits in all_reduce, batch 9 (process 41)"
    assert nothing.splitlines() == [
        "- no CPU for 6 s",
        "- last collectives of the default group: 7: broadcast [4]; 8: all_reduce [4]",
    ]
    assert stack == "```\nin forward\nin all_reduce\n```"
    assert second == "## Rank 1 is still (process 42)"
    assert more.splitlines() == [
        "- in `time.sleep` (cell 1, line 2)",
        "- its data loader's worker in read()",
    ]


def test_a_backend_that_is_not_known_is_not_told() -> None:
    starting = allocation(is_up=False).model_copy(update={"hang": HANGING.hang})
    assert "- backend" not in on_trial(trial(allocation=starting))[1].hang_report()


@pytest.mark.parametrize(
    ("state", "words"),
    [(State.ACTIVE, "it is active"), (State.COMPLETED, r"it is over \(completed\)")],
)
def test_a_trial_that_does_not_hang_has_no_report(state: State, words: str) -> None:
    _, handle = on_trial(trial(state=state))
    with pytest.raises(Conflict, match=rf"^trial 1 is not known to hang: {words}; trial\.stacks"):
        handle.hang_report()


def test_stacks_of_all_ranks_are_shown_and_why_one_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stack(rank: Rank) -> str:
        if rank.view.rank == 1:
            raise Conflict("it does not answer")
        return "in forward"

    monkeypatch.setattr(Rank, "stack", stack)
    stacks = on_trial(trial(allocation=allocation()))[1].stacks()
    assert stacks == {0: "in forward", 1: "(it does not answer)"}
    line = "─" * 60
    assert repr(stacks) == (
        f"── rank 0 {line}\nin forward\n── rank 1 {line}\n(it does not answer)"
    )
