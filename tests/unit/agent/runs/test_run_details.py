"""What is told of the end of a run besides exit codes: last words, full disks, other causes."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.run_end import describe_entered, with_details
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import GangExited, GangPlan
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page
from tests.unit.agent.link.test_outbox import make_run

CRASH = """terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 16 vs 12
Fatal Python error: Aborted

Current thread 0x1 (most recent call first):
  File "/home/ann/train.py", line 3 in train
"""
EXITED = GangExited(
    allocation_id="1.1.1", at=1.0, exit_codes={0: -9, 1: -6}, first_failed=1, first_ended=1
)


@pytest.mark.parametrize(
    ("entered", "text"),
    [
        ({}, ""),
        ({0: (0, ""), 1: (0, "")}, ""),
        ({0: (3, "barrier"), 1: (3, "barrier")}, ""),
        (
            {0: (3, "barrier"), 1: (3, "barrier"), 2: (3, "all_reduce [1]")},
            "rank 2 entered all_reduce [1] where rank 0 entered barrier",
        ),
        (
            {2: (4, "barrier"), 1: (5, "all_reduce [1]"), 0: (4, "barrier"), 3: (5, "x")},
            "rank 1 entered all_reduce [1] where rank 0 entered another collective",
        ),
        ({7: (5, "barrier"), 4: (5, "x")}, "rank 7 entered barrier where rank 4 entered x"),
    ],
)
def test_ranks_in_different_collectives_are_named(
    entered: dict[int, tuple[int, str]], text: str
) -> None:
    assert describe_entered(entered) == text


@pytest.fixture
def crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentRun:
    """Return a run whose rank 1 has printed words of gloo and ended."""
    monkeypatch.setattr(paths, "find_full_folder", lambda: "")
    monkeypatch.setattr(paths, "data_dir", lambda: tmp_path)
    run = make_run(tmp_path)
    create_page(run.dir.control)
    create_evidence_page(run.dir.evidence, 2)
    run.dir.output(1).write_text(f"epoch 3\n{CRASH}")
    return run


def test_the_last_words_and_the_batch_are_those_of_the_rank_that_ended_first(
    crashed: AgentRun,
) -> None:
    with closing(ControlPage(crashed.dir.control)) as page:
        page.batch_writer(1)(8)
    with closing(EvidencePage(crashed.dir.evidence)) as evidence:
        for rank, text in enumerate((b"all_reduce [3]", b"all_reduce [4]")):
            evidence.set(rank, "entered", 5)
            evidence.set_collective(rank, text)
    exited = with_details(crashed, EXITED)
    assert exited.batch == 7
    assert exited.last_words is not None
    assert exited.last_words.error == (
        "rank 1 entered all_reduce [4] where rank 0 entered all_reduce [3]"
    )


def test_details_are_told_as_far_as_user_code_has_left_them(crashed: AgentRun) -> None:
    crashed.dir.control.unlink()
    crashed.dir.evidence.unlink()
    exited = with_details(crashed, EXITED)
    assert exited.batch is None
    assert exited.last_words is not None
    assert "gloo got 16 bytes, expected 12" in exited.last_words.error


@pytest.mark.parametrize("change", [{"killed": True}, {"lost": True}, {"first_ended": None}])
def test_of_ranks_that_were_ended_nothing_more_is_told(
    crashed: AgentRun, change: dict[str, bool | None]
) -> None:
    exited = EXITED.model_copy(update={"first_failed": None, **change})
    assert with_details(crashed, exited) == exited


def test_a_run_whose_folder_was_removed_says_so(crashed: AgentRun) -> None:
    shutil.rmtree(crashed.dir.path)
    exited = with_details(crashed, EXITED)
    assert not exited.error_is_final
    assert exited.error == (
        f"the run's folder was removed while it trained: {crashed.dir.path}; leave "
        f"{crashed.dir.path.parent} alone while something runs"
    )


@pytest.mark.parametrize(("agent", "where"), [("", ""), ("b", "on agent b: ")])
@pytest.mark.parametrize("has_failed", [True, False])
def test_a_full_disk_is_the_reason_why_a_rank_has_failed(
    crashed: AgentRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    agent: str,
    where: str,
    has_failed: bool,
) -> None:
    monkeypatch.setattr(paths, "find_full_folder", lambda: "/data is full")
    crashed.remote_agent = agent
    failed = {"first_failed": 1 if has_failed else None, "exit_codes": {0: 0, 1: 0}}
    exited = with_details(crashed, EXITED.model_copy(update=failed))
    assert exited.no_room is has_failed
    if has_failed:
        assert (exited.error, exited.error_is_final) == (f"{where}/data is full", False)
        assert exited.full_folder == str(tmp_path)
    else:
        assert exited.error == ""


def test_paths_of_a_crash_are_relative_to_the_context_directory(
    crashed: AgentRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GangPlan, "has_context", property(lambda plan: True))
    text = CRASH.replace("/home/ann", str(crashed.dir.work))
    crashed.dir.output(1).write_text(text)
    words = with_details(crashed, EXITED).last_words
    assert words is not None
    assert 'File "train.py", line 3' in words.traceback
